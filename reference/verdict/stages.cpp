// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/stages.hpp"

#include <algorithm>
#include <iterator>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/verdict/stage_judging.hpp"

namespace goldenrule::verdict {
namespace {

const StageRow* find_row(const StageSlice& slice, const std::string& name) {
  const auto table = slice.table();
  const auto found = std::ranges::find(table, name, &StageRow::name);
  return found == table.end() ? nullptr : &*found;
}

void require_known(const StageSlice& slice, const KernelStages& kernel) {
  std::string known;
  for (const StageRow& row : slice.table()) {
    known += (known.empty() ? "one of " : ", ") + std::string(row.name);
  }
  for (const auto& [name, tensor] : kernel.tensors) {
    if (find_row(slice, name) == nullptr) {
      throw Error(ErrorKind::kSchema, "/stages", known, "'" + name + "'");
    }
    if (!call::info(tensor.dtype()).is_float) {
      throw Error(ErrorKind::kType, stage_path(name), "a floating-point type",
                  std::string(call::info(tensor.dtype()).name));
    }
  }
  for (const auto& [name, form] : kernel.forms) {
    if (kernel.tensors.contains(name)) continue;
    throw Error(ErrorKind::kSchema, stage_path(name) + "@form", "the form of a stage that is there",
                form + " of none");
  }
  if (kernel.chunk < 0 || kernel.chunk > kLongestChunk) {
    throw Error(ErrorKind::kValue, "/stages@chunk",
                "from 1 to " + std::to_string(kLongestChunk) + " tokens",
                std::to_string(kernel.chunk));
  }
}

// Whether a kernel may end chunks where none end otherwise.
bool splits_chunks(const call::Record& record, std::int64_t chunk) {
  const call::Plan plan = call::make_plan(record, false);
  return std::ranges::any_of(plan.sequences, [&](const call::Sequence& s) {
    return std::ranges::any_of(s.checkpoints, [&](std::int64_t position) {
      return position % chunk != 0 && position < s.token_count;
    });
  });
}

// The contract of a kernel with chunks of the declared size.
contract::Contract in_chunks_of(contract::Contract contract, std::int64_t chunk) {
  if (auto* forward = std::get_if<contract::Chunked>(&contract.model)) forward->chunk = chunk;
  if (auto* back = std::get_if<contract::ChunkedAdjoint>(&contract.model)) back->chunk = chunk;
  return contract;
}

// Tokens of a chunk; nothing where the contract has none.
std::optional<std::int64_t> chunk_of(const contract::Contract& contract) {
  if (contract.chunked() != nullptr) return contract.chunked()->chunk;
  if (contract.adjoint() != nullptr) return contract.adjoint()->chunk;
  return std::nullopt;
}

}  // namespace

StageJudging::StageJudging(const Slice& slice, const call::Record& record,
                           const contract::Contract& contract, const KernelStages& kernel)
    : record_(record), kernel_(kernel), contract_(contract) {
  if (slice.stages == nullptr) {
    throw Error(ErrorKind::kSchema, "/stages", "no stages: none are known of this operation",
                std::to_string(kernel.tensors.size()));
  }
  slice_ = slice.stages;
  require_known(*slice_, kernel);
  report_.contract = contract.name;
  for (const StageRow& row : slice_->table()) {
    report_.order.emplace_back(row.name);
    if (!kernel.tensors.contains(std::string(row.name))) report_.absent.emplace_back(row.name);
  }
  if (!chunk_of(contract)) {
    report_.reason = "contract " + contract.name + " has no chunks: name one that has";
    return;
  }
  report_.chunk = kernel.chunk > 0 ? kernel.chunk : *chunk_of(contract);
  report_.chunk_origin = kernel.chunk > 0 ? "declared" : "of the contract";
  if (splits_chunks(record, report_.chunk)) {
    report_.reason = "the call asks for checkpoints inside of chunks of " +
                     std::to_string(report_.chunk) +
                     ", where a kernel may end a chunk or not: its stages are not determined";
    return;
  }
  is_open_ = true;
  shares_runs_ = slice_->by_heads != nullptr && report_.chunk == *chunk_of(contract);
  contract_ = in_chunks_of(contract, report_.chunk);
  undo_widening();
}

std::vector<std::string> absent_before(const StagesReport& report, const std::string& name) {
  const auto place = [&](const std::string& n) { return std::ranges::find(report.order, n); };
  std::vector<std::string> before;
  std::ranges::copy_if(report.absent, std::back_inserter(before),
                       [&](const std::string& n) { return place(n) < place(name); });
  return before;
}

std::string refused_saved(const StagesReport& report) {
  const auto bad = std::ranges::find_if(report.stages, [](const StageReport& stage) {
    return stage.saved && stage.tensor.verdict == Verdict::kOutOfBudget;
  });
  return bad == report.stages.end() ? std::string() : bad->tensor.name;
}

call::TensorMap exact_stages(const StageSlice& slice, const call::Record& record,
                             std::int64_t chunk) {
  std::vector<std::string> names;
  for (const StageRow& row : slice.table()) names.emplace_back(row.name);
  call::TensorMap map;
  for (auto& [name, stage] : slice.evaluate(record, chunk, names, scalar::Precision::kQuad)) {
    const Exact& e = stage.expected.exact;
    map.emplace(name, call::Tensor(call::DType::kF64, e.shape, e.golden));
  }
  return map;
}

StagesReport judge_stages(const Slice& slice, const call::Record& record,
                          const contract::Contract& contract, const KernelStages& kernel) {
  StageJudging judging(slice, record, contract, kernel);
  while (judging.is_open()) judging.judge(nullptr);
  return judging.report();
}

}  // namespace goldenrule::verdict

// SPDX-License-Identifier: Apache-2.0
//
// Length: one judgement, from the shapes of stages to the first bad one.
#include "reference/verdict/stages.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/widening.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/stage_places.hpp"

namespace goldenrule::verdict {
namespace {

std::string where_of(const std::string& name) { return "/stages/" + name; }

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
      throw Error(ErrorKind::kType, where_of(name), "a floating-point type",
                  std::string(call::info(tensor.dtype()).name));
    }
  }
  for (const auto& [name, form] : kernel.forms) {
    if (kernel.tensors.contains(name)) continue;
    throw Error(ErrorKind::kSchema, where_of(name) + "@form", "the form of a stage that is there",
                form + " of none");
  }
  if (kernel.chunk < 0 || kernel.chunk > kLongestChunk) {
    throw Error(ErrorKind::kValue, "/stages@chunk",
                "from 1 to " + std::to_string(kLongestChunk) + " tokens",
                std::to_string(kernel.chunk));
  }
}

// One stage of a kernel and what is expected of it, in the kernel's form.
struct Judged {
  const StageRow* row = nullptr;
  const call::Tensor* tensor = nullptr;
  ExpectedStage stage;
  StageReport report;
};

// Judges a stage in a form; a wrong shape is an error.
TensorReport judge_in(const std::string& name, const call::Tensor& tensor,
                      const ExpectedStage& stage, const contract::Contract& contract,
                      const StagePlaces& places) {
  const Exact& exact = stage.expected.exact;
  if (tensor.shape() != exact.shape) {
    throw Error(ErrorKind::kShape, where_of(name), call::to_string(exact.shape),
                call::to_string(tensor.shape()));
  }
  TensorReport report = judge(name, tensor, stage.expected, contract);
  report.row_word = std::string(stage.axes.front());
  if (report.worst) {
    report.worst->coordinates = places.named(stage.axes, report.worst->index);
  }
  if (!report.first_unjudged.empty()) {
    report.first_unjudged_at = places.named(stage.axes, report.first_unjudged);
  }
  return report;
}

// What an element is bad by; 0: it is not.
double badness(const Judged& judged, const Budget& budget, std::size_t i) {
  const Expected& e = judged.stage.expected;
  if (!e.exact.is_defined(i)) return 0.0;
  const double golden = e.exact.golden[i];
  const double granted = std::isfinite(golden) ? budget(i) : 0.0;
  const double y = (*judged.tensor)[static_cast<std::int64_t>(i)];
  if (!is_bounded(e, i, granted) || verdict::passes(y, e, i, granted)) return 0.0;
  if (!std::isfinite(y) || !std::isfinite(golden)) return std::numeric_limits<double>::infinity();
  return std::max(ratio_of(std::fabs(y - golden) - static_cast<double>(e.exact.radius[i]), granted),
                  1.0);
}

// The worst element of the first bad chunk of a stage that has one.
BadStage first_bad_chunk(const Judged& judged, const contract::Contract& contract,
                         const StagePlaces& places) {
  const Expected& e = judged.stage.expected;
  const Budget budget(std::string(judged.row->name), judged.tensor->dtype(), e, contract);
  const std::size_t slice = e.exact.golden.size() / static_cast<std::size_t>(e.exact.shape[0]);
  BadStage first{.name = std::string(judged.row->name), .worst = {}};
  first.step = std::numeric_limits<std::int64_t>::max();
  const bool reverse = judged.row->walk == StageWalk::kReverse;
  double worst = 0.0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < e.exact.golden.size(); ++i) {
    const double bad = badness(judged, budget, i);
    if (bad == 0.0) continue;
    const auto place = places.of(judged.stage.axes.front(), static_cast<std::int64_t>(i / slice));
    const std::int64_t step = reverse ? place.behind : place.chunk;
    if (step > first.step || (step == first.step && bad <= worst)) continue;
    first.step = step;
    first.chunk = place.chunk;
    first.sequence = place.sequence;
    worst = bad;
    at = i;
  }
  const double y = (*judged.tensor)[static_cast<std::int64_t>(at)];
  const double golden = e.exact.golden[at];
  const double error = std::fabs(y - golden);
  first.worst = {.index = call::unravel(e.exact.shape, static_cast<std::int64_t>(at)),
                 .value = y,
                 .golden = golden,
                 .error = error,
                 .budget = std::isfinite(golden) ? budget(at) : 0.0,
                 .ulps = error / call::ulp(judged.tensor->dtype(), golden)};
  first.worst.coordinates = places.named(judged.stage.axes, first.worst.index);
  for (std::size_t i = 0; i < e.exact.golden.size(); ++i) {
    const auto place = places.of(judged.stage.axes.front(), static_cast<std::int64_t>(i / slice));
    if (place.chunk != first.chunk || place.sequence != first.sequence) continue;
    first.elements += badness(judged, budget, i) > 0.0 ? 1 : 0;
  }
  return first;
}

std::optional<BadStage> find_first_bad(const std::vector<Judged>& all,
                                       const contract::Contract& contract,
                                       const StagePlaces& places) {
  std::optional<BadStage> first;
  StageWalk walk{};  // of the first
  for (const Judged& judged : all) {
    if (judged.report.tensor.verdict != Verdict::kOutOfBudget) continue;
    BadStage bad = first_bad_chunk(judged, contract, places);
    if (judged.row->walk == StageWalk::kNone) return bad;  // in the order of the table
    if (first && (walk < judged.row->walk || bad.step >= first->step)) continue;
    walk = judged.row->walk;
    first = std::move(bad);
  }
  return first;
}

// A stage that is bad in the first form, which nobody declared: the form in which it is right.
void look_for_form(const StageSlice& slice, const call::Record& record,
                   const contract::Contract& contract, const StagePlaces& places, Judged& judged) {
  const std::string name(judged.row->name);
  for (std::size_t i = 1; i < judged.row->forms.size(); ++i) {
    const StageForm& form = judged.row->forms[i];
    const ExpectedStage other = slice.in_form(record, name, form.name, judged.stage);
    if (other.expected.exact.shape != judged.tensor->shape()) continue;
    if (!is_pass(judge_in(name, *judged.tensor, other, contract, places).verdict)) continue;
    TensorReport& report = judged.report.tensor;
    report.verdict = Verdict::kSkipped;
    report.reason = "every element is right in the form '" + std::string(form.name) + "' (" +
                    std::string(form.meaning) +
                    "), which was not declared: if your kernel means that, declare it";
    report.out_of_budget = 0;
    report.failing_rows.clear();
    return;
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

// Each in the type that its kernel stored it in, as far as that can be told (call/widening.hpp).
KernelStages with_types_undone(KernelStages kernel, const call::Record& record) {
  for (auto& item : kernel.tensors) call::undo_widening(item.second, record.inputs.at("v"));
  return kernel;
}

std::vector<Judged> judge_in_tier(const StageSlice& slice, const call::Record& record,
                                  const contract::Contract& contract, const KernelStages& kernel,
                                  const StagePlaces& places, scalar::Precision tier) {
  std::vector<std::string> names;
  std::map<std::string, call::DType> stored;
  for (const auto& [name, tensor] : kernel.tensors) {
    names.push_back(name);
    stored[name] = tensor.dtype();
  }
  ExpectedStages expected = slice.evaluate(record, *chunk_of(contract), names, tier);
  const auto form_of = [&](const StageRow& row) {
    const auto declared = kernel.forms.find(std::string(row.name));
    if (declared != kernel.forms.end()) return declared->second;
    return row.forms.empty() ? std::string() : std::string(row.forms.front().name);
  };
  for (const auto& [name, tensor] : kernel.tensors) {
    const StageRow& row = *find_row(slice, name);
    ExpectedStage shape{.expected = {}, .axes = expected.at(name).axes};
    shape.expected.exact.shape = expected.at(name).expected.exact.shape;
    if (const std::string form = form_of(row); !form.empty() || kernel.forms.contains(name)) {
      shape = slice.in_form(record, name, form, shape);
    }
    if (tensor.shape() == shape.expected.exact.shape) continue;
    throw Error(ErrorKind::kShape, where_of(name),
                call::to_string(shape.expected.exact.shape) + " = " + std::string(row.shape) +
                    " in chunks of " + std::to_string(*chunk_of(contract)),
                call::to_string(tensor.shape()));
  }
  slice.grant(record, contract, stored, expected);
  std::vector<Judged> all;
  for (const StageRow& row : slice.table()) {
    const std::string name(row.name);
    const auto tensor = kernel.tensors.find(name);
    if (tensor == kernel.tensors.end()) continue;
    Judged judged{.row = &row, .tensor = &tensor->second, .stage = {}, .report = {}};
    judged.report.form = form_of(row);
    judged.report.formula = std::string(row.formula);
    judged.report.saved = row.saved;
    judged.stage = std::move(expected.at(name));
    if (!judged.report.form.empty()) {
      judged.stage = slice.in_form(record, name, judged.report.form, judged.stage);
    }
    judged.report.tensor = judge_in(name, tensor->second, judged.stage, contract, places);
    all.push_back(std::move(judged));
  }
  return all;
}

}  // namespace

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
  using scalar::Precision;
  if (slice.stages == nullptr) {
    throw Error(ErrorKind::kSchema, "/stages", "no stages: none are known of this operation",
                std::to_string(kernel.tensors.size()));
  }
  const StageSlice& stages = *slice.stages;
  require_known(stages, kernel);
  StagesReport report;
  report.contract = contract.name;
  for (const StageRow& row : stages.table()) {
    report.order.emplace_back(row.name);
    if (!kernel.tensors.contains(std::string(row.name))) report.absent.emplace_back(row.name);
  }
  if (!chunk_of(contract)) {
    report.reason = "contract " + contract.name + " has no chunks: name one that has";
    return report;
  }
  report.chunk = kernel.chunk > 0 ? kernel.chunk : *chunk_of(contract);
  report.chunk_origin = kernel.chunk > 0 ? "declared" : "of the contract";
  if (splits_chunks(record, report.chunk)) {
    report.reason = "the call asks for checkpoints inside of chunks of " +
                    std::to_string(report.chunk) +
                    ", where a kernel may end a chunk or not: its stages are not determined";
    return report;
  }
  const contract::Contract declared = in_chunks_of(contract, report.chunk);
  const KernelStages stored = with_types_undone(kernel, record);
  const StagePlaces places(record, report.chunk);
  std::vector<Judged> all;
  for (const Precision tier : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    all = judge_in_tier(stages, record, declared, stored, places, tier);
    const bool decided = std::ranges::all_of(all, [](const Judged& j) {
      return j.report.tensor.undecided == 0 && j.report.tensor.unbounded == 0;
    });
    if (decided) break;
  }
  for (Judged& judged : all) {
    if (judged.report.tensor.verdict == Verdict::kOutOfBudget &&
        !kernel.forms.contains(std::string(judged.row->name))) {
      look_for_form(stages, record, declared, places, judged);
    }
  }
  report.first_bad = find_first_bad(all, declared, places);
  for (Judged& judged : all) report.stages.push_back(std::move(judged.report));
  return report;
}

}  // namespace goldenrule::verdict

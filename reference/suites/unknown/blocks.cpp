// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/unknown/blocks.hpp"

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/explain/failures.hpp"
#include "reference/verdict/kernels.hpp"

namespace goldenrule::suites {
namespace {

constexpr std::uint64_t kSeedOfBlocks = 7;

}  // namespace

BlockPlanter::BlockPlanter(const verdict::Slice& of, const std::string& line)
    : slice(of),
      call(cases::make_record(cases::parse(line))),
      contract(slice.default_contract(call)),
      honest(calls::stored(call, contract, kernel()(call))),
      map(call, honest) {}

calls::Kernel BlockPlanter::kernel() const {
  return verdict::emulated_kernel(slice, contract, kSeedOfBlocks);
}

std::optional<call::TensorMap> BlockPlanter::mistaken(const calls::Mistake& mistake,
                                                      const calls::Kernel& right) const {
  if (!mistake.applies(call)) return std::nullopt;
  try {
    call::TensorMap made = mistake.commit(call, right);
    for (const auto& [name, tensor] : honest) {
      if (!made.contains(name) || made.at(name).shape() != tensor.shape()) return std::nullopt;
    }
    return made;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<call::TensorMap> BlockPlanter::mistaken(const calls::Mistake& mistake) const {
  const auto made = mistaken(mistake, kernel());
  if (!made) return std::nullopt;
  return calls::stored(call, contract, *made);
}

std::pair<int, int> BlockPlanter::inside(const std::string& name, std::int64_t i,
                                         const BlockSet& set) const {
  const explain::OutputBlocks& output = map.output(name);
  int in = 0, all = 0;
  for (const auto unit : output.units[static_cast<std::size_t>(output.grid.row_of(i))]) {
    for (const auto head : output.heads[static_cast<std::size_t>(output.grid.head_of(i))]) {
      in += set(unit, head) ? 1 : 0;
      ++all;
    }
  }
  return {in, all};
}

void BlockPlanter::plant(call::TensorMap& outputs, const call::TensorMap& made,
                         const BlockSet& set) const {
  for (auto& [name, tensor] : outputs) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const auto [in, all] = inside(name, i, set);
      if (in == 0) continue;
      const double share = static_cast<double>(in) / all;
      const double y = made.at(name)[i];
      tensor.set(i, in == all ? y : tensor[i] + share * (y - tensor[i]));
    }
  }
}

call::Record BlockPlanter::capture(const call::TensorMap& outputs) const {
  call::Record record = call;
  record.outputs = outputs;
  record.contract = contract.name;
  return record;
}

FailingBlocks BlockPlanter::failing(const call::TensorMap& outputs) const {
  const call::Record record = capture(outputs);
  const auto judgement = verdict::judgement(
      slice, record, {.contract = contract, .precision = scalar::Precision::kDouble});
  FailingBlocks blocks(map.size(), false);
  for (const explain::Failures& f :
       explain::find_failures(record, judgement.contract, judgement.expected)) {
    const explain::OutputBlocks& output = map.output(f.name);
    for (std::int64_t i = 0; i < std::ssize(f.failing); ++i) {
      if (f.failing[static_cast<std::size_t>(i)] == 0) continue;
      const auto& units = output.units[static_cast<std::size_t>(output.grid.row_of(i))];
      const auto& heads = output.heads[static_cast<std::size_t>(output.grid.head_of(i))];
      if (units.size() * heads.size() > 1) continue;
      blocks[map.block(units.front(), heads.front())] = true;
    }
  }
  return blocks;
}

std::string BlockPlanter::words(const FailingBlocks& shows, const BlockSet& set) const {
  const std::size_t heads = map.block(1, 0);
  std::vector<explain::Place> places(shows.size(), explain::Place::kOpen);
  bool in = false, out = false;
  for (std::size_t b = 0; b < shows.size(); ++b) {
    if (!shows[b]) continue;
    const bool here =
        set(static_cast<std::int64_t>(b / heads), static_cast<std::int64_t>(b % heads));
    places[b] = here ? explain::Place::kHere : explain::Place::kElsewhere;
    (here ? in : out) = true;
  }
  return in && out ? map.words(places) : "";
}

}  // namespace goldenrule::suites

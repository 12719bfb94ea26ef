// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/reach.hpp"

namespace goldenrule::explain {
namespace {

constexpr double kExpectedInBlock = 4.0;

}  // namespace

Reach::Reach(const call::Record& call, const call::TensorMap& outputs)
    : map_(call, outputs), blocks_(map_.size()) {}

void Reach::add(const std::string& output, std::size_t i, double expected, bool fails) {
  const OutputBlocks& of = map_.output(output);
  const auto at = static_cast<std::int64_t>(i);
  const auto& units = of.units[static_cast<std::size_t>(of.grid.row_of(at))];
  const auto& heads = of.heads[static_cast<std::size_t>(of.grid.head_of(at))];
  if (units.size() != 1 || heads.size() != 1) return;
  Block& block = blocks_[map_.block(units.front(), heads.front())];
  block.expected += expected;
  block.failing += fails ? 1 : 0;
}

double Reach::share() const {
  int expected = 0, failing = 0;
  for (const Block& block : blocks_) {
    if (block.expected < kExpectedInBlock) continue;
    ++expected;
    failing += block.failing > 0 ? 1 : 0;
  }
  return expected == 0 ? 1.0 : static_cast<double>(failing) / expected;
}

}  // namespace goldenrule::explain

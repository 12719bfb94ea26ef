// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/axes.hpp"

#include <array>

#include "fixtures/call/operation.hpp"

namespace goldenrule::explain {
namespace {

using AxisCounts = std::vector<std::int64_t>;

std::size_t place_at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t row_axis(const Grid& grid, std::int64_t row) {
  return grid.by_sequence() ? grid.rows[place_at(row)].sequence : row;
}

AxisCounts elements_of(const Grid& grid, const call::Dims& dims, Axis axis) {
  if (axis == kHeadAxis) return AxisCounts(place_at(grid.heads), 1);
  if (axis == kKeyAxis) return AxisCounts(place_at(grid.keys), 1);
  if (axis == kValueAxis) return AxisCounts(place_at(grid.values), 1);
  AxisCounts rows(grid.by_sequence() ? place_at(dims.rows) : grid.rows.size());
  for (std::int64_t r = 0; r < std::ssize(grid.rows); ++r) ++rows[place_at(row_axis(grid, r))];
  return rows;
}

struct AxisPair {
  Axis a, b;
};
constexpr std::array kAxisPairs{AxisPair{kRowAxis, kHeadAxis},   AxisPair{kRowAxis, kKeyAxis},
                                AxisPair{kRowAxis, kValueAxis},  AxisPair{kHeadAxis, kKeyAxis},
                                AxisPair{kHeadAxis, kValueAxis}, AxisPair{kKeyAxis, kValueAxis}};

/// Failing elements in the cells of each pair.
std::array<AxisCounts, kAxisPairs.size()> count_cells(
    const Grid& grid, const Failures& failures, const std::array<AxisCounts, kAxes>& elements) {
  std::array<AxisCounts, kAxisPairs.size()> hits;
  for (std::size_t p = 0; p < kAxisPairs.size(); ++p) {
    const std::size_t a = elements[kAxisPairs[p].a].size(), b = elements[kAxisPairs[p].b].size();
    if (a > 1 && b > 1) hits[p].resize(a * b);
  }
  for (std::int64_t i = 0; i < std::ssize(failures.failing); ++i) {
    if (failures.failing[place_at(i)] == 0) continue;
    std::array<std::int64_t, kAxes> place{};
    place[kRowAxis] = row_axis(grid, grid.row_of(i));
    place[kHeadAxis] = grid.head_of(i);
    place[kKeyAxis] = grid.key_of(i);
    place[kValueAxis] = grid.value_of(i);
    for (std::size_t p = 0; p < kAxisPairs.size(); ++p) {
      if (hits[p].empty()) continue;
      const auto size = std::ssize(elements[kAxisPairs[p].b]);
      ++hits[p][place_at(place[kAxisPairs[p].a] * size + place[kAxisPairs[p].b])];
    }
  }
  return hits;
}

/// Rows and q heads; nothing where the heads of one do not fail alike.
std::optional<Cells> by_group(const call::Record& record, const call::Dims& dims,
                              const CellAxis& rows, const AxisCounts& hits) {
  if (dims.H < 2 || dims.H == dims.HV) return std::nullopt;
  AxisCounts of_groups(rows.elements.size() * place_at(dims.H));
  std::vector<std::int64_t> failing(of_groups.size());
  for (std::int64_t i = 0; i < std::ssize(hits); ++i) {
    const std::int64_t head = dims.qk_head(record.convention.head_map, i % dims.HV);
    const std::size_t place = place_at(i / dims.HV * dims.H + head);
    of_groups[place] += hits[place_at(i)];
    failing[place] += hits[place_at(i)] > 0 ? 1 : 0;
  }
  for (const std::int64_t heads : failing) {
    if (heads != 0 && heads != dims.HV / dims.H) return std::nullopt;
  }
  const std::string heads(call::operation(record.op).heads_of_group);  // "value head of q head"
  const std::string one = heads.substr(heads.rfind(" of ") + 4);
  const AxisName name{one, one + "s", "h"};
  return failing_cells(rows, {name, AxisCounts(place_at(dims.H), 1)}, of_groups);
}

}  // namespace

AxisName name_of(const Grid& grid, Axis axis) {
  if (axis == kHeadAxis) return {"head", "heads", "j"};
  if (axis == kKeyAxis) {
    return grid.rings ? AxisName{"place of the ring", "places of the ring", "w"}
                      : AxisName{"key channel", "key channels", "k"};
  }
  if (axis == kValueAxis) {
    if (grid.rings) return {"element", "elements", "i"};
    return grid.plain ? AxisName{"position", "positions", "i"}
                      : AxisName{"value channel", "value channels", "v"};
  }
  if (grid.slots) return {"slot", "slots", "p"};
  if (grid.checkpoints) return {"checkpoint", "checkpoints", "r"};
  if (grid.buffer) return {"place", "places", "i"};
  if (grid.rings) return {"ring", "rings", "j"};
  return {"sequence", "sequences", "n"};
}

std::optional<DependentAxes> dependent_axes(const call::Record& record, const call::Dims& dims,
                                            const Grid& grid, const Failures& failures) {
  std::array<AxisCounts, kAxes> elements;
  for (const Axis axis : {kRowAxis, kHeadAxis, kKeyAxis, kValueAxis}) {
    elements[axis] = elements_of(grid, dims, axis);
  }
  const auto hits = count_cells(grid, failures, elements);
  std::optional<DependentAxes> best;
  const auto take = [&](Axis a, Axis b, const std::optional<Cells>& cells) {
    if (cells && (!best || cells->log_chance < best->cells.log_chance)) best = {a, b, *cells};
  };
  for (std::size_t p = 0; p < kAxisPairs.size(); ++p) {
    if (hits[p].empty()) continue;
    const auto [a, b] = kAxisPairs[p];
    const CellAxis first{name_of(grid, a), elements[a]};
    if (b == kHeadAxis && grid.heads == dims.HV) {
      take(a, b, by_group(record, dims, first, hits[p]));
    }
    take(a, b, failing_cells(first, {name_of(grid, b), elements[b]}, hits[p]));
  }
  return best;
}

}  // namespace goldenrule::explain

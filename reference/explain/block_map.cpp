// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/block_map.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/text.hpp"

namespace goldenrule::explain {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::size_t kPieces = 4;  // numbers and ranges that are listed
constexpr std::int64_t kFirst = 3;  // blocks that are listed

std::vector<Numbers> each_alone(std::int64_t n) {
  std::vector<Numbers> all;
  for (std::int64_t i = 0; i < n; ++i) all.push_back({i});
  return all;
}

Numbers all_of(std::int64_t n) {
  Numbers all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

// "3", "0 and 3", "2 to 5", "1, 4 and 7 to 9"; of many without order the first of them.
std::string numbers(const Numbers& ascending) {
  std::vector<std::string> pieces;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t end = i + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) ++end;
    const std::string first = std::to_string(ascending[i]);
    pieces.push_back(end - i == 1 ? first : first + " to " + std::to_string(ascending[end - 1]));
    i = end;
  }
  if (pieces.size() <= kPieces) return joined(pieces);
  const std::int64_t step = ascending[1] - ascending[0];
  bool even = true;
  for (std::size_t i = 1; i < ascending.size(); ++i) {
    even = even && ascending[i] - ascending[i - 1] == step;
  }
  std::string text = pieces[0] + ", " + pieces[1] + ", " + pieces[2] + ", ...";
  if (even) return text + ", " + std::to_string(ascending.back());
  return text + " (" + std::to_string(ascending.size()) + " of them)";
}

std::string counted(const std::string& word, const Numbers& ascending) {
  return call::plural(ascending.size(), word) + " " + numbers(ascending);
}

const char* word_of(const Grid& grid) {
  return grid.slots ? "slot" : grid.buffer ? "place" : grid.rings ? "ring" : "checkpoint";
}

std::vector<std::string> names_of(const call::TensorMap& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

}  // namespace

BlockMap::BlockMap(const call::Record& call, const std::vector<std::string>& outputs) {
  const call::Plan plan = call::make_plan(call, true);
  sequences_ = plan.dims.rows;
  for (std::int64_t n = 0; n < sequences_; ++n) {
    names_.push_back("sequence " + std::to_string(n));
  }
  for (const std::string& name : outputs) add(call, plan, name);
}

BlockMap::BlockMap(const call::Record& call, const call::TensorMap& outputs)
    : BlockMap(call, names_of(outputs)) {}

void BlockMap::add(const call::Record& call, const call::Plan& plan, const std::string& name) {
  OutputBlocks blocks{.grid = Grid(call, plan.dims, name), .units = {}, .heads = {}};
  const Grid& grid = blocks.grid;
  if (grid.parameter) {
    blocks.units.push_back(all_of(sequences_));
  } else if (grid.by_sequence()) {
    for (const Row& row : grid.rows) blocks.units.push_back({row.sequence});
  } else {
    add_written(plan, blocks);
  }
  if (grid.plain) {
    blocks.heads = {{0}};
  } else {
    heads_ = static_cast<std::size_t>(plan.dims.HV);
    blocks.heads = each_alone(grid.heads);
    if (grid.heads != plan.dims.HV) {
      blocks.heads.assign(static_cast<std::size_t>(grid.heads), {});
      for (std::int64_t j = 0; j < plan.dims.HV; ++j) {
        const std::int64_t h = plan.dims.qk_head(call.convention.head_map, j);
        blocks.heads[static_cast<std::size_t>(h)].push_back(j);
      }
    }
  }
  outputs_.emplace(name, std::move(blocks));
}

void BlockMap::add_written(const call::Plan& plan, OutputBlocks& blocks) {
  const Grid& grid = blocks.grid;
  const call::Target target = grid.slots    ? call::Target::kFinalState
                              : grid.buffer ? call::Target::kIntermediateStates
                                            : call::Target::kCheckpoints;
  blocks.units.resize(grid.rows.size());
  for (std::int64_t n = 0; n < std::ssize(plan.sequences); ++n) {
    const call::Sequence& sequence = plan.sequences[static_cast<std::size_t>(n)];
    std::set<std::int64_t> written;
    if (grid.rings) {
      if (sequence.replay.ring >= 0) written.insert(sequence.replay.ring);
    } else {
      for (const call::Snapshot& s : sequence.snapshots) {
        if (s.target == target) written.insert(s.block);
      }
    }
    for (const std::int64_t row : written) blocks.units[static_cast<std::size_t>(row)].push_back(n);
  }
  for (std::size_t row = 0; row < blocks.units.size(); ++row) {
    if (!blocks.units[row].empty()) continue;
    const std::string name = std::string(word_of(grid)) + " " + std::to_string(row);
    const auto known = std::ranges::find(names_, name);
    blocks.units[row].push_back(known - names_.begin());
    if (known == names_.end()) names_.push_back(name);
  }
}

std::string BlockMap::unit_words(const Numbers& units) const {
  Numbers sequences;
  std::vector<std::string> parts;
  for (const std::int64_t u : units) {
    if (u < sequences_) {
      sequences.push_back(u);
    } else {
      parts.push_back(names_[static_cast<std::size_t>(u)]);
    }
  }
  if (parts.size() > kPieces) parts = {std::to_string(parts.size()) + " that no sequence writes"};
  if (!sequences.empty()) parts.insert(parts.begin(), counted("sequence", sequences));
  return joined(parts);
}

std::string BlockMap::listed(const std::vector<Place>& places) const {
  std::string text;
  std::int64_t count = 0;
  for (std::size_t b = 0; b < places.size(); ++b) {
    if (places[b] != Place::kHere || ++count > kFirst) continue;
    text += (text.empty() ? "" : ", ") + std::string("head ") + std::to_string(b % heads_) +
            " of " + names_[b / heads_];
  }
  const std::string of = std::to_string(count) + " of " + std::to_string(places.size());
  return of + " blocks: " + text + (count > kFirst ? ", ..." : "");
}

std::string BlockMap::words(const std::vector<Place>& places) const {
  const std::int64_t unit_count = std::ssize(names_);
  const auto head_count = static_cast<std::int64_t>(heads_);
  std::set<std::int64_t> units, heads;
  for (std::size_t b = 0; b < places.size(); ++b) {
    if (places[b] != Place::kHere) continue;
    units.insert(static_cast<std::int64_t>(b / heads_));
    heads.insert(static_cast<std::int64_t>(b % heads_));
  }
  const auto covered = [&](std::int64_t unit, std::int64_t head) {
    return places[block(unit, head)] != Place::kElsewhere;
  };
  const auto every_head_of = [&](std::int64_t unit, const auto& some) {
    return std::ranges::all_of(some, [&](std::int64_t head) { return covered(unit, head); });
  };
  const Numbers all_units = all_of(unit_count);
  const Numbers all_heads = all_of(head_count);
  const auto product = [&](const auto& some_units, const auto& some_heads) {
    return std::ranges::all_of(some_units,
                               [&](std::int64_t u) { return every_head_of(u, some_heads); });
  };
  const Numbers of_units(units.begin(), units.end());
  const Numbers of_heads(heads.begin(), heads.end());
  if (product(of_units, all_heads)) return unit_words(of_units);
  if (product(all_units, of_heads)) return counted("head", of_heads);
  if (product(of_units, of_heads)) return counted("head", of_heads) + " of " + unit_words(of_units);
  return listed(places);
}

}  // namespace goldenrule::explain

// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a call: a value head of a sequence. A kernel computes each on its own, so that a
// mistake in a branch (a flag, a length, a group of heads) is made in some blocks and not in
// others.
//
// Rows of an output belong to a sequence: its tokens, its state, its checkpoints, the slots, places
// and rings that it writes. What no sequence writes is a block of its own (slot 7). A row and head
// of an output that several blocks add to (a gradient by k is a sum over the value heads of its
// group, one by a parameter a sum over all sequences) belongs to all of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/explain/failures.hpp"

namespace goldenrule::explain {

/// Where the blocks of a call lie in one output.
struct OutputBlocks {
  Grid grid;
  std::vector<std::vector<std::int64_t>> units;  ///< sequences, or what else, of each row
  std::vector<std::vector<std::int64_t>> heads;  ///< of the call, for each head of the output
};

/// What is known of a block, for words.
enum class Place : std::uint8_t {
  kElsewhere,
  kOpen,  ///< may be named or not: nothing can be told there
  kHere,
};

class BlockMap {
 public:
  BlockMap(const call::Record& call, const std::vector<std::string>& outputs);
  BlockMap(const call::Record& call, const call::TensorMap& outputs);

  [[nodiscard]] std::size_t size() const { return names_.size() * heads_; }
  [[nodiscard]] std::size_t block(std::int64_t unit, std::int64_t head) const {
    return static_cast<std::size_t>(unit) * heads_ + static_cast<std::size_t>(head);
  }
  [[nodiscard]] const OutputBlocks& output(const std::string& name) const {
    return outputs_.at(name);
  }

  /// "sequences 0 and 3", "heads 2 to 3", "head 1 of sequences 0 to 2"; where the blocks are no
  /// product of the two, how many they are, and the first. `places` of every block.
  [[nodiscard]] std::string words(const std::vector<Place>& places) const;

 private:
  void add(const call::Record& call, const call::Plan& plan, const std::string& name);
  // The units of rows that are slots, places, checkpoints or rings.
  void add_written(const call::Plan& plan, OutputBlocks& blocks);
  [[nodiscard]] std::string unit_words(const std::vector<std::int64_t>& units) const;
  [[nodiscard]] std::string listed(const std::vector<Place>& places) const;

  std::int64_t sequences_ = 0;
  std::size_t heads_ = 1;
  std::vector<std::string> names_;  // of the units, sequences first
  std::map<std::string, OutputBlocks> outputs_;
};

}  // namespace goldenrule::explain

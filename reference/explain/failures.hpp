// SPDX-License-Identifier: Apache-2.0
//
// Which elements of the outputs fail, and where they lie in the terms of the call. Every output is
// viewed as rows x value heads x key channels x value channels: a row is one token of o, one slot
// of final_state, one token of intermediate_states or one checkpoint; o has one key channel, lse
// one of each. Of the gradient by a parameter there is one row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::explain {

struct Row {
  std::int64_t sequence = 0;  ///< sequence, batch row, slot of the pool, or checkpoint
  std::int64_t token = -1;    ///< within the sequence; -1: the tensor has no token axis
};

/// The axes of one output of a call.
struct Grid {
  Grid(const call::Record& record, const call::Dims& dims, const std::string& name);

  std::vector<Row> rows;
  std::int64_t heads = 0, keys = 0, values = 0;
  std::int64_t key_stride = 0, value_stride = 0;
  bool slots = false;        ///< rows are slots of a pool, not sequences
  bool checkpoints = false;  ///< rows are checkpoints, not sequences
  bool buffer = false;       ///< rows are places of a buffer of intermediate states
  bool rings = false;        ///< rows are rings, keys their places and values what stands there
  bool plain = false;        ///< no heads: rows are sequences with a number or some, their values
  bool parameter = false;    ///< one row: a number or some of each head, of all tokens together
  bool heads_first = false;  ///< heads stand before rows, which have one element each

  [[nodiscard]] bool by_sequence() const {
    return !slots && !checkpoints && !buffer && !rings && !parameter;
  }
  [[nodiscard]] std::int64_t head_stride() const {
    return heads_first ? std::ssize(rows) : keys * values;
  }
  [[nodiscard]] std::int64_t row_stride() const { return heads_first ? 1 : heads * keys * values; }
  [[nodiscard]] std::int64_t row_of(std::int64_t i) const {
    return i / row_stride() % std::ssize(rows);
  }
  [[nodiscard]] std::int64_t head_of(std::int64_t i) const { return i / head_stride() % heads; }
  [[nodiscard]] std::int64_t key_of(std::int64_t i) const { return i / key_stride % keys; }
  [[nodiscard]] std::int64_t value_of(std::int64_t i) const { return i / value_stride % values; }
};

/// The failing elements of one output; elements that no kernel writes never fail.
struct Failures {
  std::string name;
  std::vector<std::uint8_t> failing;  ///< per element, in storage order
  std::int64_t count = 0;
  std::int64_t compared = 0;
};

/// Of every output of the record that `contract` gives a budget, in the order of their names, by
/// the test of the verdict. `evaluation` must be of this record and contract.
[[nodiscard]] std::vector<Failures> find_failures(const call::Record& record,
                                                  const contract::Contract& contract,
                                                  const verdict::Expectations& evaluation);

}  // namespace goldenrule::explain

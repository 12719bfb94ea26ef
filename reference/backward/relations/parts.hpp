// SPDX-License-Identifier: Apache-2.0
//
// Parts of a backward call as calls of their own, and where what they return belongs.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "reference/backward/rule/call_lanes.hpp"
#include "reference/delta/calls/rows.hpp"
#include "reference/delta/relations/trial.hpp"

namespace goldenrule::backward {

/// The call whose sequence r is parts[r], with the states of the sequence that it is of.
[[nodiscard]] call::Record call_of_parts(const call::Record& record, const call::Dims& dims,
                                         std::span<const calls::Stretch> parts);

/// What an output has a row for.
enum class RowOf { kToken, kSequence, kParameter };
[[nodiscard]] RowOf row_of(const std::string& output);

/// Element i of what a call of parts returns belongs to element place(i) of the original output;
/// of parameters, to the same.
class PartPlaces {
 public:
  PartPlaces(const call::Record& record, const call::Dims& dims,
             std::span<const calls::Stretch> parts);
  /// f(element of the original, element of the part), of tokens and of sequences.
  void for_each(const std::string& output, const call::Tensor& original,
                const std::function<void(std::size_t, std::size_t)>& f) const;

 private:
  call::Dims dims_;
  std::vector<std::int64_t> tokens_, rows_;  // of the original, for each of the parts'
};

/// A number for each element of each output.
using OutputSums = std::map<std::string, std::vector<double>>;
[[nodiscard]] OutputSums zeros_like(const call::TensorMap& outputs);

}  // namespace goldenrule::backward

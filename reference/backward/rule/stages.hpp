// SPDX-License-Identifier: Apache-2.0
//
// The stages of a backward pass for a whole call: what the forward pass leaves to it (T, P, h and
// o are saved by some kernels, the others recomputed) and what it has on the way. The table says
// what each is, in the letters of lane_stages.hpp; rows, chunks and what is stored are as in
// delta/oracle/stages.hpp, with T, w, u, h and v_new those of its table.
//
// What is not defined, and so not judged: columns behind the token's own; lanes with an input that
// is not finite.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "reference/backward/rule/evaluate.hpp"
#include "reference/verdict/stages.hpp"

namespace goldenrule::backward {

/// In the order of the computation.
[[nodiscard]] std::span<const verdict::StageRow> stage_table();

/// All shapes, for `chunks` chunks of C tokens.
[[nodiscard]] std::map<std::string, call::Shape> stage_shapes(const call::Record& record,
                                                              const call::Dims& dims,
                                                              std::int64_t C, std::int64_t chunks);

/// Throws Error as call::validate does, Error(kArgument) for C < 1.
[[nodiscard]] verdict::ExpectedStages evaluate_stages(const call::Record& record, std::int64_t C,
                                                      const std::vector<std::string>& names,
                                                      scalar::Precision precision);

/// The same for each of `blocks`, value heads that rise: axis 1 of its stages counts these alone.
[[nodiscard]] std::vector<verdict::ExpectedStages> evaluate_stages_of(
    const call::Record& record, std::int64_t C, const std::vector<std::string>& names,
    scalar::Precision precision, std::span<const std::vector<std::int64_t>> blocks);

/// The stage in another form of its row.
[[nodiscard]] verdict::ExpectedStage stage_in_form(const call::Record& record,
                                                   const std::string& name, std::string_view form,
                                                   const verdict::ExpectedStage& stage);

/// Where a lane's numbers of a stage lie in its tensor: row t of a token's, row c K + i of channel
/// i of the state of chunk c.
class LanePlaces {
 public:
  /// `head` is one of dims.HV.
  LanePlaces(const call::Record& record, const call::Dims& dims, const Sequence& tokens,
             std::int64_t first_chunk, std::int64_t head);
  [[nodiscard]] std::size_t of_token(std::int64_t t, std::int64_t i, std::int64_t width) const;
  [[nodiscard]] std::size_t of_state(std::int64_t row, std::int64_t x) const;
  /// Of a stage with `width` columns; it is one of states, or of tokens.
  [[nodiscard]] std::size_t of(const std::string& stage, std::int64_t row, std::int64_t column,
                               std::int64_t width) const {
    return stage == "h" || stage == "dh" ? of_state(row, column) : of_token(row, column, width);
  }

 private:
  std::int64_t HV_, K_, V_, first_token_, first_chunk_, head_;
  bool vk_;
};

/// The first chunk of each sequence, on the axis of all chunks.
[[nodiscard]] std::vector<std::int64_t> first_chunks(const std::vector<Sequence>& sequences,
                                                     std::int64_t C);

}  // namespace goldenrule::backward

// SPDX-License-Identifier: Apache-2.0
//
// One row of a draft acceptance. Which drafts are accepted decides an outcome: how many, a, and the
// token behind them. Everything that a call returns follows from the outcome:
//
//   emitted      d_1..d_a, token; cut behind its first stop token
//   c            emitted tokens, at least 1; tokens 0..c-1 of the block (the anchor, d_1..d_{c-1})
//                are in the target's cache, which then has start + c
//   draft_len    start, or start + c with draft_crop new_start
//   next_anchor  the last emitted token
//   keep         1 for rows i < c of the block
//   release_from ceil((start + c) / page_size): a page of which a part is used stays
//
// A row of padding has a = c = 0 and emits nothing; its lengths are -1 as its start is, its anchor
// is pad_token, keep is 0 and release_from -1: it has no slots, and nothing is released.
//
// Where decisions are open (decide.hpp) a row has several outcomes. An element is judged where they
// all have the same value for it: of a row that hangs on its third draft the first two emitted
// tokens are certain, and of one whose token alone is open, all counts are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/drafts/plan/plan.hpp"
#include "reference/drafts/rule/decide.hpp"

namespace goldenrule::drafts {

struct Outcome {
  std::int64_t accepted = 0;
  std::optional<std::int64_t> token;  ///< nothing: open

  bool operator==(const Outcome&) const = default;
};

/// What a row returns. A value that is not known is nothing.
struct Returned {
  using Value = std::optional<std::int64_t>;

  std::vector<Value> tokens, keep;  ///< S + 1
  Value accepted, committed, target_len, draft_len, next_anchor, release_from;

  /// The numbers of an output, as for_each visits it, of one row.
  static const std::vector<Value>& values(const std::vector<Value>& all) { return all; }
  static std::vector<Value> values(const Value& value) { return {value}; }

  /// Visits the numbers of a row as f(output, vector of them). `R` is Returned or const Returned.
  template <class R, class F>
  static void for_each(R& r, F&& f) {
    f("tokens", r.tokens);
    f("accepted", r.accepted);
    f("committed", r.committed);
    f("target_len", r.target_len);
    f("draft_len", r.draft_len);
    f("next_anchor", r.next_anchor);
    f("keep", r.keep);
    f("release_from", r.release_from);
  }
};

/// A number of a kernel, without its fraction. Beyond the type it is the nearest end, which is no
/// token of any call; of a NaN it is nothing.
[[nodiscard]] std::optional<std::int64_t> integer_of(double x);

/// How many numbers of row n of the outputs are others; those that are not known may be any.
[[nodiscard]] std::int64_t differences(const Returned& row, std::int64_t n,
                                       const call::TensorMap& outputs);
/// Writes those that are known.
void store(const Returned& row, std::int64_t n, call::TensorMap& outputs);

/// The inputs of a call as its rows read them.
class Decisions {
 public:
  /// Refers to both.
  Decisions(const call::Record& record, const Plan& plan);

  /// Draft i of row n, counted from 0.
  [[nodiscard]] std::int64_t draft(std::int64_t n, std::int64_t i) const;
  /// Whether draft i is accepted, whatever becomes of those before it. `row` of the target decides:
  /// i.
  [[nodiscard]] Acceptance acceptance(std::int64_t n, std::int64_t i, std::int64_t row) const;
  [[nodiscard]] Acceptance acceptance(std::int64_t n, std::int64_t i) const {
    return acceptance(n, i, i);
  }
  /// What may stand behind `accepted` drafts, and the one token that it is.
  [[nodiscard]] Choice choice(std::int64_t n, std::int64_t accepted) const;
  [[nodiscard]] std::optional<std::int64_t> token(std::int64_t n, std::int64_t accepted) const {
    return choice(n, accepted).only();
  }

  /// What decisions as they are lead to.
  [[nodiscard]] Outcome outcome(std::int64_t n) const;
  /// That, first, and those that open decisions may lead to.
  [[nodiscard]] std::vector<Outcome> outcomes(std::int64_t n) const;

  /// Of row n with that outcome.
  [[nodiscard]] Returned returned(std::int64_t n, const Outcome& outcome) const;

  /// The target's choice at a position, of a greedy call; p there, and q of a draft.
  [[nodiscard]] std::int64_t target_token(std::int64_t n, std::int64_t position) const;
  [[nodiscard]] std::vector<double> target_row(std::int64_t n, std::int64_t position) const;
  [[nodiscard]] std::vector<double> draft_row(std::int64_t n, std::int64_t i) const;

 private:
  const call::Record& record_;
  const Plan& plan_;
  std::vector<std::int64_t> drafts_, targets_, bonus_;
};

}  // namespace goldenrule::drafts

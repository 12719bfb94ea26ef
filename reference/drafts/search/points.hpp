// SPDX-License-Identifier: Apache-2.0
//
// What a draft acceptance kernel may decide in place of the right thing, from parts: a kernel's
// decision is a point, one choice for each part, and the first choice of each part is the right
// one.
//
//   how many drafts    a test of each draft, the target's row and the uniform that the test reads,
//                      and how the outcomes of the tests become a count
//   which token        weights of the tokens, the rows of p and of q that they are made of, and how
//                      one is chosen by them
//
// The two are independent: the token stands behind as many drafts as the kernel says, whatever made
// it say so. A point's prediction is nothing where fp32 may decide either way (decide.hpp), and
// where it would read what nobody wrote.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "reference/drafts/mistakes/mistake.hpp"

namespace goldenrule::drafts {

/// A position that is read for draft i, or behind i drafts.
enum class From : std::uint8_t {
  kOwn,
  kNext,          ///< in memory: behind the last position the first of the next request
  kBefore,        ///< in memory
  kNextInside,    ///< of the last position its own
  kBeforeInside,  ///< of the first position its own
  kFirst,
  kLast,
  kFirstRow
};
inline constexpr std::size_t kFroms = 8;

enum class Test : std::uint8_t {
  kRight,          ///< u q <= p, or d = y of a greedy call
  kWithoutQ,       ///< u <= p
  kInverted,       ///< u p <= q
  kComplement,     ///< (1 - u) q <= p
  kWithoutU,       ///< q <= p
  kProduct,        ///< u <= the product of p / q to here
  kLikeliest,      ///< d = argmax p
  kAlsoLikeliest,  ///< the right one, or d = argmax p
  kSampled,        ///< d = the token that u draws from p
  kAlways,
  kNever,
};
inline constexpr std::size_t kTests = 11;

enum class Stop : std::uint8_t {
  kFirstFailure,
  kSum,          ///< all that pass
  kLastSuccess,  ///< up to the last that passes
  kAllOrNone,
  kOneMore,
  kOneLess,
  kFirstFree,  ///< the first draft is not tested
};
inline constexpr std::size_t kStops = 7;

struct CountPoint {
  Test test = Test::kRight;
  From target = From::kOwn, uniform = From::kOwn;
  Stop stop = Stop::kFirstFailure;

  /// Parts that are not the right ones.
  [[nodiscard]] int wrong() const;
  /// Whether all rows have one count.
  [[nodiscard]] bool is_constant() const;
  bool operator==(const CountPoint&) const = default;
};

enum class Weights : std::uint8_t {
  kRight,      ///< max(p - q, 0); p behind all drafts, p without d for one-hot drafts
  kTarget,     ///< p
  kDraft,      ///< q
  kDistance,   ///< |p - q|
  kUnclamped,  ///< p - q
};
inline constexpr std::size_t kWeights = 5;

enum class Chosen : std::uint8_t {
  kRight,         ///< by the row's uniform or its noise
  kUnnormalized,  ///< by the uniform, not times the sum of the weights
  kByDecision,    ///< by the uniform of the last decision
  kByRejection,   ///< of a rejected draft by its uniform, else as a right one
  kOfFirstRow,    ///< by the uniform or the noise of the first row
  kTimesNoise,    ///< by weight times noise, not over it
  kLikeliest,     ///< the largest weight
  kDraft,         ///< the draft itself
};
inline constexpr std::size_t kChosen = 8;

struct TokenPoint {
  Weights weights = Weights::kRight;
  From target = From::kOwn, draft = From::kOwn;
  Chosen chosen = Chosen::kRight;

  [[nodiscard]] int wrong() const;
  bool operator==(const TokenPoint&) const = default;
};

/// Wrong parts of a point that is tried.
inline constexpr int kMostWrong = 2;

/// All that a kernel of this call may be, but the right one. Each costs evidence, so none is among
/// them that reads what the call does not have.
[[nodiscard]] std::vector<CountPoint> count_points(const Work& work);
[[nodiscard]] std::vector<TokenPoint> token_points(const Work& work);

/// A call as wrong kernels read it.
struct Reading {
  explicit Reading(const Work& of);

  const Work& work;
  /// Of each row of the target, as they lie; -1: two are equal, or the row has no numbers. Empty
  /// for greedy calls.
  std::vector<std::int64_t> likeliest;
};

/// Drafts that row n accepts; nothing where that is open.
[[nodiscard]] std::optional<std::int64_t> count_of(const Reading& reading, std::int64_t n,
                                                   const CountPoint& point);
/// The token behind `accepted` drafts of row n; nothing where that is open.
[[nodiscard]] std::optional<std::int64_t> token_of(const Reading& reading, std::int64_t n,
                                                   std::int64_t accepted, const TokenPoint& point);

}  // namespace goldenrule::drafts

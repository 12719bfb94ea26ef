// SPDX-License-Identifier: Apache-2.0
//
// The recurrent form, token by token as the definition says it:
//
//   S' = diag(alpha_t) S_{t-1}
//   d  = beta_t (v_t - S'^T k^_t)
//   S_t = S' + k^_t d^T
//   o_t = S_t^T q^_t
//
// Of the first tokens of a lane d may be given instead (Lane::given): those that a ring keeps.
//
// Column c of S meets only component c of v, d and o, so a tile of columns is advanced on its own;
// both sums over K run in ascending order in every column, whatever the tile, the vector width or
// the number of threads. This is the oracle: nothing here is rearranged for speed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/delta/rule/lane.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::delta {

/// How much a tile records beside the values; see ColumnNorms.
enum class Detail { kValues, kNorms, kSums };

/// Column vectors of a tile: four packs, so that four independent sums hide the latency of an
/// addition, and K = 128 states of 32 columns stay in the first-level cache.
inline constexpr int kTileVectors = 4;

template <class S>
inline constexpr int kTileColumns = kTileVectors* scalar::Tier<S>::kLanes;

/// What the error bounds need to know of one step, per column of a tile, to double accuracy.
template <class S>
struct ColumnNorms {
  using Row = std::array<double, static_cast<std::size_t>(kTileColumns<S>)>;
  Row state2{};      ///< ||S_t||^2                              (Detail::kNorms)
  Row delta{};       ///< d                                      (Detail::kNorms)
  Row predicted{};   ///< p = S'^T k^                            (Detail::kSums)
  Row predicted2{};  ///< sum of squares of the K products of p  (Detail::kSums)
  Row output{};      ///< o                                      (Detail::kSums)
  Row output2{};     ///< sum of squares of the K products of o  (Detail::kSums)
};

/// A tile of columns [first_column, first_column + columns) of one lane.
template <class S>
class RecurrentTile {
 public:
  using Vector = typename scalar::Tier<S>::Vector;

  /// `v` is [tokens, *] in double with `v_stride` between tokens, already offset to the head; the
  /// lane and v must outlive the tile. The state is zero until set.
  RecurrentTile(const Lane<S>& lane, const double* v, std::int64_t v_stride,
                std::int64_t first_column, int columns);

  /// Element (i, c) of the state, i < K and c < columns.
  void set_state(std::int64_t i, int c, const S& x);
  [[nodiscard]] S state(std::int64_t i, int c) const;
  /// Row i of the state, columns() numbers at once.
  void set_row(std::int64_t i, const S* from);
  void read_row(std::int64_t i, S* to) const;
  /// All of the state, [K][kTileVectors].
  [[nodiscard]] const std::vector<Vector>& columns_of_state() const { return state_; }
  void set_columns_of_state(const std::vector<Vector>& state) { state_ = state; }

  /// Runs tokens [begin, end) of the lane; o and norms of these tokens replace the earlier ones.
  void advance(std::int64_t begin, std::int64_t end, Detail detail);

  /// o of token begin + t, column c, of the last advance.
  [[nodiscard]] S output(std::int64_t t, int c) const;
  /// d of the same.
  [[nodiscard]] S correction(std::int64_t t, int c) const;
  [[nodiscard]] std::span<const ColumnNorms<S>> norms() const { return norms_; }
  [[nodiscard]] int columns() const { return columns_; }

 private:
  const Lane<S>* lane_;
  const double* v_;
  std::int64_t v_stride_, first_column_;
  int columns_;
  std::vector<Vector> state_;       // [K][kTileVectors]
  std::vector<Vector> output_;      // [tokens][kTileVectors]
  std::vector<Vector> correction_;  // the same
  std::vector<ColumnNorms<S>> norms_;
};

extern template class RecurrentTile<double>;
extern template class RecurrentTile<scalar::Quad>;
extern template class RecurrentTile<scalar::Multi>;

}  // namespace goldenrule::delta

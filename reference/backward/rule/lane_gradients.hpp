// SPDX-License-Identifier: Apache-2.0
//
// The gradients of one lane, a sequence of one value head, token by token in reverse. The states
// are computed forward once, of which every n-th is kept (n about sqrt(tokens)), and again block by
// block on the way back: 2 n states of a tile of columns are alive.
// Bounds on errors are those of adjoint_certificate.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/backward/rule/adjoint_tile.hpp"

namespace goldenrule::backward {

/// What a lane is given beside its prepared quantities. Row-major, exact.
struct LaneInputs {
  std::vector<double> v, output_gradient;     ///< [tokens,V]
  std::vector<double> start, state_gradient;  ///< [K,V]; empty: 0
  std::int64_t V = 0;
  bool by_alpha = false;  ///< dg is the gradient by alpha
};

/// By the quantities of the lane: q^, k^, v, log alpha (alpha), beta and the start state. A size is
/// what an element has where its terms have random signs: the root of the sum of their squares,
/// those of a column of K channels by its norms.
template <class S>
struct LaneGradients {
  std::vector<S> dq, dk;                         ///< [tokens,K]
  std::vector<S> dv;                             ///< [tokens,V]
  std::vector<S> dg;                             ///< [tokens,gates]
  std::vector<S> dbeta;                          ///< [tokens]
  std::vector<S> dstart;                         ///< [K,V]
  std::vector<double> dq_radius, dk_radius;      ///< [tokens]
  std::vector<double> dq_size, dk_size;          ///< [tokens], of all channels together
  std::vector<double> dv_radius, dv_size;        ///< [tokens,V]
  std::vector<double> dg_radius, dg_size;        ///< [tokens], of all channels together
  std::vector<double> dbeta_radius, dbeta_size;  ///< [tokens]
  std::vector<double> dstart_radius;             ///< [V]
};

/// The gradients by the states behind the chunks of a lane, kept on the way.
template <class S>
struct StateGradients {
  std::int64_t chunk = 0;                   ///< tokens of one
  std::vector<std::vector<S>> values;       ///< per chunk [K,V]
  std::vector<std::vector<double>> radius;  ///< per chunk [V], of the norm of a column
};

template <class S>
[[nodiscard]] LaneGradients<S> lane_gradients(const delta::Lane<S>& lane, const LaneInputs& inputs,
                                              StateGradients<S>* states = nullptr);

extern template LaneGradients<double> lane_gradients(const delta::Lane<double>&, const LaneInputs&,
                                                     StateGradients<double>*);
extern template LaneGradients<scalar::Quad> lane_gradients(const delta::Lane<scalar::Quad>&,
                                                           const LaneInputs&,
                                                           StateGradients<scalar::Quad>*);
extern template LaneGradients<scalar::Multi> lane_gradients(const delta::Lane<scalar::Multi>&,
                                                            const LaneInputs&,
                                                            StateGradients<scalar::Multi>*);

}  // namespace goldenrule::backward

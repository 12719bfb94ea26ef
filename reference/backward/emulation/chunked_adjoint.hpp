// SPDX-License-Identifier: Apache-2.0
//
// A kernel of the backward pass as its contract declares it: the adjoint of the chunk form in fp32,
// with a rounding at every point of the contract. Over chunks of C tokens, h the state before one,
// E the decay from its start, L that to its end, D that between tokens, dh' the gradient of the
// state behind it:
//
//   recompute   A_ij = beta_i <k_i D_ij, k_j> (j < i)    T = (I + A)^-1    P_ij = <q_i D_ij, k_j>
//               u = T (beta v)    w = T (beta k E)    v_new = u - w h
//               h' = E_C h + (k L)^T v_new
//   state       du = P^T do + (k L) dh'     dh = E_C dh' + (q E)^T do - w^T du   (chunks in
//   reverse) output      dP = tril(do v_new^T)
//               dq_i = E_i h do_i + sum_j dP_ij D_ij k_j
//               kw_j = L_j dh' v_new_j + sum_i dP_ij D_ij q_i
//   inverse     dw = -du h^T     dT = dw (beta k E)^T + du (beta v)^T
//               kb = T^T dw      vb = T^T du       dv = beta vb
//               dA = -stril(T^T stril(dT) T^T)
//   erase       row_i = sum_j dA_ij D_ij k_j       col_j = sum_i dA_ij D_ij beta_i k_i
//               dk = kw + beta (row + E kb) + col
//               dbeta = vb . v + (E kb + row) . k
//   gate        raw = q dq - k kw + k beta (row + E kb) - k col
//               raw_C += E_C (h dh') 1 + sum_j k_j L_j dh' v_new_j
//               dg_t = sum_{s >= t} raw_s                         (within the chunk)
//
// A contract of the direct form: direct_adjoint.cpp. q is that of the rule, with its scale; dA
// stands for the gradient by A before D is divided out of it, which one gate per head rounds with D
// in it.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/backward/emulation/pairs.hpp"

namespace goldenrule::backward {

/// One lane as a kernel has it. Rows are tokens.
struct KernelCall {
  Floats q, k, v, output_gradient;
  Floats alpha, log_alpha;             ///< [tokens, gates]
  Floats beta;                         ///< [tokens, 1]
  bool beta_has_16_bits = false;       ///< as the kernel reads it, so that beta k^ has them too
  Floats start, state_gradient;        ///< [K,V]
  std::vector<std::uint64_t> content;  ///< of each chunk: what random roundings are a function of
};

/// By q, k, v, log alpha, beta and the start state.
struct KernelGradients {
  Floats dq, dk, dv, dg, dbeta, dstart;
};

/// Its stages (rule/stages.hpp), each before its own rounding; P and dq by q^. Rows are tokens, of
/// states the key channels of chunk after chunk.
struct AdjointStages {
  Floats T, P, dP, dM;     ///< [tokens, chunk]
  Floats w, dw, dq, dk;    ///< [tokens, K]
  Floats u, v_new, o, du;  ///< [tokens, V]
  Floats h, dh;            ///< [chunks K, V]
  Floats raw;              ///< [tokens, gates]
};

/// Calls f(name, stage) for each, in the order of the table.
template <class Stages, class F>
void for_each_stage(Stages& of, F&& f) {
  f("T", of.T), f("P", of.P), f("w", of.w), f("u", of.u), f("h", of.h), f("v_new", of.v_new);
  f("o", of.o), f("dh", of.dh), f("du", of.du), f("dP", of.dP), f("dw", of.dw), f("dM", of.dM);
  f("dq", of.dq), f("dk", of.dk), f("raw", of.raw);
}

/// In the form of the model. `stages` are kept where it is given.
[[nodiscard]] KernelGradients chunked_adjoint(const KernelCall& call,
                                              const contract::ChunkedAdjoint& model,
                                              Rounder& rounder, AdjointStages* stages = nullptr);

}  // namespace goldenrule::backward

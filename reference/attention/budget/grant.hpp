// SPDX-License-Identifier: Apache-2.0
//
// What a contract grants an element (i, x) of o beyond the exact result. All sums run over V(i), w
// are the exact weights, o the exact result, u = 2^-24, h the unit roundoff of P, and rho = 1 where
// l sums the rounded weights.
//
// Rounded weights (random). P_t(1 + d_t) with |d_t| <= h moves o by sum_t d_t x_t to first order,
// x_t = w_t (v_t - rho o): with the unrounded sum the mean of V does not cancel. d_t is uniform,
// hence strictly sub-Gaussian with variance h^2 / 3, and a function of the bits of P_t: weights
// within a quarter of their spacing are rounded the same way, so they count as one error. With bins
// b of that width in log w
//
//   sigma^2 = h^2 / 3 sum_b max( (sum_{t in b} x_t)^2, sum_{t in b} x_t^2 ).
//
// Without bins equal or nearly equal scores with V near 1 are false alarms: their errors add, and
// do not grow with the root of their number. (A single key per bin gives S_vv - 2 rho o S_v +
// rho o^2 S_1.) fp16 has a floor: h is max(h, 2^-25 / P) there, and below P = 2^-24 errors
// have one sign and are part of the bias.
//
// Stored scores (eager, random). <q,k> and its scaled value are rounded, d_t = sqrt(2) h |s_t| each
// with variance / 3, and act through w_t (v_t - o). The same keys share errors: bins of equal
// scores, whose width is a quarter of their spacing.
//
// Scores and functions (systematic, linear). |eta_t| <= E_t:
//
//   E_t = (2 + R_t) E_exp + (2 ceil(K/16) + 2) u scale sum_d |q_d k_td| + 2 u |s_t - m|
//         + 4 u (|m| + log n) + E_tanh |s_t|
//
// R_t: rescales that key t goes through, the records of the running maximum in tiles of 16 keys
// behind it, in the worse direction; two more exponentials are its own and that of a merge. The dot
// product: a step of 16 takes at most 4u of a partial sum, as below, and these grow to the whole at
// most linearly, so 2 ceil(K/16) u of sum |q k|; storing and scaling add 2u. s c - m c is one fused
// operation with a rounded c: 2u of it. m c and the lse that a split stores are rounded by
// themselves.
//
// Large errors. With D_t = E_t plus the largest error of a stored score,
//
//   |o~ - o| = | sum_t w_t (exp(eta_t) - 1)(v_t - o) | / sum_t w_t exp(eta_t),
//   |exp(eta) - 1| <= |eta| exp(D_t),   denominator >= Z = sum_t w_t exp(-D_t)
//
// so both parts are taken with exp(D_t) / Z, the random one also has the mean d_t^2 / 6 of its
// exponential as a bias, and none is larger than max_t |v_t - o|: o~ is a mean of visible values.
// Where both together are as large as that in some column, the contract allows any weights, and a
// pass of the row says nothing, however large its other columns are (verdict::Grant::anything).
//
// Subnormal numbers (systematic). Kernels flush weights below 2^-126 to zero: n 2^-126 max_t |v_t|
// of the column; products and results as well: 2 n 2^-126.
//
// Tensor cores (systematic). A step of 16 keys aligns its products and the partial sum A_k to the
// largest, cuts each below 2^-26 of it, and cuts their sum to fp32, all toward zero. The second cut
// loses up to 2^-23 |A_k|; the first up to 16 2^-26 |A_k| = 2 2^-23 |A_k|, half of it in the mean
// over sixteen independent ones in every step: kappa = 1 + 1 = 2,
//
//   kappa 2^-23 max( sum_k |A_k|, sum_k |o - A_k| ) + 16 u sum_t w_t |v_t| + 4 u |o|
//
// from either end. The second term: products may be larger than the sums that they leave (one key
// in each step at worst). The third: quotient and last products. A sum l that drifts as well moves
// o by |o| times its own drift, and one of |A_k|, |o - A_k| is at least |o| / 2.
//
// lse: E_t acts through w_t, with the same factors, but errors of scores never move it by more
// than from log sum_t w_t exp(-D_t) to log sum_t w_t exp(D_t), to which a key that is far below
// adds nothing, however large its error; the sum l drifts by kappa 2^-23 max(sum L_k, sum (1 -
// L_k)), L_k the weights of the first 16 k keys; with kSum the rounding of P shows, sigma^2 = h^2
// / 3 sum_b (sum_{t in b} w_t)^2, and with stored scores that of the scores; storing it takes
// 2^-23 (|lse| + 4), and to base 2 all is multiplied by log2(e).
//
// Overflow. Scores, with their partial sums before and behind the scale, may reach c sum_d |q_d
// k_td| with c = max(1, scale log2 e); the exponential of s c - fl(m c) is Inf from 4 u |m| = 88
// on; and a kernel sums exp(s - m) v before it divides, l sum_t w_t |v_t|. Where one of these
// exceeds what fp32 holds, or the largest stored score what its type does (65504 in fp16; an
// infinite one below the others is a weight of 0, as the exact one), an honest kernel returns NaN
// or an infinity, in all columns or in that of v (verdict::Grant::overflows). One that is finite
// there is a mean of visible values all the same, and has its budget.
//
//   budget = lambda sigma + bias + half an ulp of storage,   lambda = sqrt(2 ln(2n/p))
//
// for n elements and p = 1e-6 in the whole tensor (verdict/grants.hpp).
#pragma once

#include <cstdint>

#include "reference/attention/rule/evaluate.hpp"
#include "reference/contract/contract.hpp"

namespace goldenrule::attention {

/// Fills in what `contract` grants the outputs in `expected`, the evaluation of this record. An
/// ideal contract grants nothing beside half an ulp of storage.
void grant(const call::Record& record, const contract::Contract& contract,
           verdict::GrantDetail detail, verdict::Expectations& expected);

}  // namespace goldenrule::attention

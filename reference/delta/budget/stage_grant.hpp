// SPDX-License-Identifier: Apache-2.0
//
// What a contract grants the stages of a chunked kernel. In the letters of ring_grant.hpp (E_.. are
// the function errors, u_.. the unit roundoffs of rounding points, u that of the arithmetic), with
// h_x half an ulp of x in the format of a point:
//
//   q, k    (E_norm + u) |x|, a product with the scale of q another u
//   beta    (E_sigmoid + E_logit |d ln beta / d ln b| + u) |beta|, the first two where it is
//   computed G       sum_{l <= i} E_gate_l + c_i, E_gate as of ring_g, and what the running sum
//   loses,
//             c_i = u_G ( max( sum_{l <= i} M_l, ceil(log2 C) M_i ) + M_i ),
//             M_i = sum_{l <= i} |log alpha_l| >= |G_i|:
//           a sum in sequence rounds at each token, a tree ceil(log2 C) times, either once more
//   A       of A_ij = sum_x t_x, t_x = beta_i k_ix D_x k_jx, with r_x the roundings of k_x as an
//           activation and as an operand,
//             beta_i sum_x D_x (r_ix |k_jx| + |k_ix| r_jx) + (2 E_norm + E_beta) |A_ij|
//             + sum_x |t_x| (8 u + e^E_D,x - 1)
//             + lambda u sqrt( (K/3 A_ij^2 + (K/6 + 2) sum t_x^2) / 3 ):
//           operands by their amounts, the sum over K as in running.hpp. A decay is exp of a
//           difference of G, or a product of alphas: E_D = sum_{j < l <= i} E_gate_l + c_i + c_j
//             + (E_exp + u) m, m = 2, or i - j + 2 where the contract does not say that G is
//             summed. Behind a gate of -10^9 G is off by more than 1, so its exponential counts.
//
// T, w, u, h and v_new take the errors of the stages before them through the inverse and through
// the states, which only a run can follow: they are granted what o is, by the same runs
// (spread.hpp), each before its own rounding. T and w are averaged in units of (lane_spread.hpp)
//
//   s_T^2 = (T^2) (a^2) (T^2) + (u T)^2,    a = what A is granted,    squares element by element
//   s_w^2 = s_T^2 x^2 + T^2 (x^2 (u_o^2 + e_G^2)),    x = beta k^ E,
//
// u_o the roundings of the operands, e_G what G is granted.
//
// A stage that is rounded as an operand may be stored before or after that, so half an ulp of that
// format is granted where it is more than half an ulp of the type, which is part of every budget
// (both, where the type does not hold all numbers of the format). A kernel of the direct form has
// no w and no u, which are granted nothing.
#pragma once

#include <map>
#include <string>

#include "reference/contract/contract.hpp"
#include "reference/verdict/stages.hpp"

namespace goldenrule::delta {

/// `contract` must be chunked, by chunks of the size in which `stages` were evaluated.
void grant_stages(const call::Record& record, const contract::Contract& contract,
                  const std::map<std::string, call::DType>& stored,
                  verdict::ExpectedStages& stages);

}  // namespace goldenrule::delta

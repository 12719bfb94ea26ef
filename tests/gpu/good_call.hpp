// SPDX-License-Identifier: Apache-2.0
//
// A call that is right, for tests that spoil one thing of it.
#pragma once

#include "tests/gpu/no_memory.hpp"

namespace goldenrule::test {

/// Well-formed; the pointers are never followed.
inline goldenrule_gpu_recurrent_args good_call() {
  goldenrule_gpu_recurrent_args a;
  goldenrule_gpu_recurrent_defaults(&a, sizeof a);
  a.B = 2;
  a.T = 3;
  a.H = 2;
  a.HV = 4;
  a.K = 128;
  a.V = 64;
  a.slots = 5;
  a.scale = 0.1;
  NoMemory memory;
  for (goldenrule_gpu_tensor* t :
       {&a.q, &a.k, &a.v, &a.gate, &a.A_log, &a.dt_bias, &a.beta, &a.o}) {
    *t = memory.tensor(GOLDENRULE_GPU_BF16);
  }
  a.state = memory.tensor(GOLDENRULE_GPU_F32);
  a.state_indices = memory.tensor(GOLDENRULE_GPU_I32);
  return a;
}

/// Likewise with rings.
inline goldenrule_gpu_recurrent_args good_ring_call() {
  goldenrule_gpu_recurrent_args a = good_call();
  give_rings(a);
  return a;
}

}  // namespace goldenrule::test

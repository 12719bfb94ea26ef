// SPDX-License-Identifier: Apache-2.0
//
// Calls for launch_test.cpp, and what the runtime that stands in there saw of them.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

#include "tests/gpu/fake_runtime.hpp"
#include "tests/gpu/no_memory.hpp"

namespace goldenrule::test {

using Args = goldenrule_gpu_recurrent_args;
using PrefillArgs = goldenrule_gpu_prefill_args;
using AttentionArgs = goldenrule_gpu_attention_args;

/// What both kinds of call have.
template <class A>
void fill(A& a, NoMemory& memory) {
  a.H = 2;
  a.HV = 4;
  a.K = a.V = 128;
  a.slots = 900;
  for (goldenrule_gpu_tensor* t : {&a.q, &a.k, &a.v, &a.gate, &a.beta, &a.o}) {
    *t = memory.tensor(GOLDENRULE_GPU_BF16);
  }
  a.gate_kind = GOLDENRULE_GPU_GATE_LOG;
  a.state = memory.tensor(GOLDENRULE_GPU_F32);
  a.state_indices = memory.tensor(GOLDENRULE_GPU_I64);
}

inline Args call(std::int64_t B, std::int64_t T) {
  Args a;
  goldenrule_gpu_recurrent_defaults(&a, sizeof a);
  NoMemory memory;
  fill(a, memory);
  a.B = B;
  a.T = T;
  return a;
}

/// Every state is written: one block per multiprocessor is asked for by its shared memory.
inline Args call_that_keeps_states() {
  Args a = call(800, 8);
  NoMemory memory;
  a.intermediate_states = memory.tensor(GOLDENRULE_GPU_F32);
  a.intermediate_states.data = moved(a.state.data, std::ptrdiff_t{1} << 43);
  a.intermediate_rows = 8;
  return a;
}

inline PrefillArgs prefill_call() {
  PrefillArgs a;
  goldenrule_gpu_prefill_defaults(&a, sizeof a);
  NoMemory memory;
  fill(a, memory);
  a.total = 300;
  a.N = 3;
  a.cu_seqlens = memory.tensor(GOLDENRULE_GPU_I32);
  a.workspace_size = goldenrule_gpu_prefill_workspace_size(&a);
  a.workspace = memory.address();
  return a;
}

/// One request of one key head: its keys are shared by as many blocks as there can be.
inline AttentionArgs attention_call() {
  AttentionArgs a;
  goldenrule_gpu_attention_defaults(&a, sizeof a);
  NoMemory memory;
  for (goldenrule_gpu_tensor* t : {&a.q, &a.k, &a.v, &a.o}) {
    *t = memory.tensor(GOLDENRULE_GPU_BF16);
  }
  for (goldenrule_gpu_tensor* t : {&a.cu_seqlens_q, &a.cu_seqlens_k}) {
    *t = memory.tensor(GOLDENRULE_GPU_I32);
  }
  a.N = a.H = 1;
  a.total = a.most_q = a.HV = 4;
  a.fresh = 5000;
  a.K = a.V = 128;
  return a;
}

struct Answer {
  goldenrule_gpu_status status;
  std::string text;
};

template <class A>
Answer launch(const A& a) {
  char message[256] = "";
  goldenrule_gpu_status status = GOLDENRULE_GPU_OK;
  if constexpr (std::is_same_v<A, Args>) {
    status = goldenrule_gpu_recurrent(&a, message, sizeof message);
  } else if constexpr (std::is_same_v<A, AttentionArgs>) {
    status = goldenrule_gpu_attention(&a, message, sizeof message);
  } else {
    status = goldenrule_gpu_prefill(&a, message, sizeof message);
  }
  return {status, message};
}

template <class A>
const FakeLaunch& launched(const A& a) {
  const int before = fake_runtime().launches;
  const Answer answer = launch(a);
  CHECK_MESSAGE(answer.status == GOLDENRULE_GPU_OK, answer.text);
  CHECK(fake_runtime().launches > before);
  return fake_runtime().last;
}

}  // namespace goldenrule::test

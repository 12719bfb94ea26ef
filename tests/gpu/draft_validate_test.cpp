// SPDX-License-Identifier: Apache-2.0
//
// Calls of drafts (version 3 of the interface) that the host takes or refuses, each refusal for one
// argument that it names. Needs no GPU.
#include <doctest/doctest.h>

#include <string>

#include "gpu/delta/recurrent/args_fields.hpp"
#include "gpu/delta/recurrent/select.hpp"
#include "gpu/launch/pack_call.hpp"
#include "tests/gpu/good_call.hpp"

namespace goldenrule::test {
namespace {

using Args = goldenrule_gpu_recurrent_args;

/// Packed rows as trees, with a buffer of 4 rows and a second slot.
Args good_draft_call() {
  Args a = good_call();
  NoMemory memory(40);
  a.tokens = 5;
  a.T = 3;
  a.intermediate_slots = 4;
  a.intermediate_rows = 3;
  a.intermediate_states = memory.tensor(GOLDENRULE_GPU_BF16);
  for (goldenrule_gpu_tensor* t : {&a.cu_seqlens, &a.parent_tokens, &a.intermediate_state_indices,
                                   &a.checkpoint_state_indices, &a.checkpoint_tokens}) {
    *t = memory.tensor(GOLDENRULE_GPU_I32);
  }
  return a;
}

bool is_taken(goldenrule_gpu_status status) {
  return status == GOLDENRULE_GPU_OK || status == GOLDENRULE_GPU_NO_DEVICE;
}

TEST_CASE("drafts: what is refused") {
  struct Refusal {
    const char* argument;
    void (*spoil)(Args&);
  };
  const Refusal refusals[] = {
      {"tokens", [](Args& a) { a.tokens = -1; }},
      {"tokens", [](Args& a) { a.cu_seqlens.data = nullptr; }},
      {"intermediate_slots", [](Args& a) { a.intermediate_slots = -1; }},
      {"intermediate_slots",
       [](Args& a) {
         a.intermediate_slots = 1;
         a.intermediate_state_indices.data = nullptr;
       }},
      {"intermediate_rows", [](Args& a) { a.intermediate_rows = 2; }},
      {"intermediate_rows",
       [](Args& a) {
         a.intermediate_slots = 0;
         a.intermediate_state_indices.data = nullptr;
         a.intermediate_rows = 4;
       }},
      {"intermediate_state_indices.data",
       [](Args& a) { a.intermediate_slots = 0, a.intermediate_rows = 5; }},
      {"intermediate_state_indices.data", [](Args& a) { a.intermediate_states.data = nullptr; }},
      {"checkpoint_tokens.data", [](Args& a) { a.checkpoint_tokens.data = nullptr; }},
      {"checkpoint_tokens.data", [](Args& a) { a.checkpoint_state_indices.data = nullptr; }},
      {"checkpoint_state_indices.data",
       [](Args& a) {
         a.state_indices.data = nullptr;
         a.ssm_state_indices = a.num_accepted_tokens = a.parent_tokens;
       }},
      {"intermediate_states.data", [](Args& a) { give_rings(a); }},
      {"parent_tokens.data",
       [](Args& a) {
         give_rings(a);
         a.intermediate_slots = 0;
         a.intermediate_states.data = a.intermediate_state_indices.data = nullptr;
       }},
      {"state.data", [](Args& a) { a.intermediate_states.data = a.state.data; }},
      {"checkpoint_state_indices.stride[0]",
       [](Args& a) { set_strides(a.checkpoint_state_indices, {0}); }},
      {"q.stride[1]",
       [](Args& a) {
         set_strides(a.q, {0, 0, 128});
       }},
  };
  char message[256] = "";
  const auto answer = [&](const Args& a) {
    return goldenrule_gpu_recurrent_validate(&a, message, sizeof message);
  };
  for (const Refusal& refusal : refusals) {
    Args a = good_draft_call();
    CHECK_MESSAGE(is_taken(answer(a)), message);
    refusal.spoil(a);
    CHECK(answer(a) == GOLDENRULE_GPU_INVALID_ARGUMENT);
    CHECK_MESSAGE(std::string(message).rfind(std::string(refusal.argument) + ": expected ", 0) == 0,
                  refusal.argument << ": " << message);
  }
  for (goldenrule_gpu_tensor Args::*member :
       {&Args::cu_seqlens, &Args::parent_tokens, &Args::intermediate_state_indices,
        &Args::checkpoint_state_indices, &Args::checkpoint_tokens}) {
    Args a = good_draft_call();
    (a.*member).dtype = GOLDENRULE_GPU_F32;
    CHECK(answer(a) == GOLDENRULE_GPU_UNSUPPORTED);
  }
}

TEST_CASE("drafts: what is taken, and by which kernel") {
  using gpu::recurrent::Group;
  char message[256] = "";
  const auto key_of = [&](const Args& a) {
    CHECK_MESSAGE(is_taken(goldenrule_gpu_recurrent_validate(&a, message, sizeof message)),
                  message);
    gpu::CheckedCall<Group> call;
    static_cast<void>(check_call(&a, call));
    return gpu::recurrent::select(call.params, {.rows = a.B, .multiprocessors = 132});
  };
  Args a = good_draft_call();
  CHECK(key_of(a).drafts);
  set_strides(a.q, {-7, 256, 128});  // of the row that packed tokens are
  CHECK(key_of(a).drafts);
  CHECK_FALSE(key_of(good_call()).drafts);
  Args packed = good_call();
  packed.cu_seqlens = a.cu_seqlens;
  packed.tokens = 5;
  CHECK(key_of(packed).work == gpu::recurrent::Work::kFewTokens);
  packed.tokens = 0;  // rows without tokens have no pointers
  packed.q.data = packed.k.data = packed.v.data = packed.gate.data = packed.beta.data = nullptr;
  packed.o.data = nullptr;
  CHECK(key_of(packed).work == gpu::recurrent::Work::kFewTokens);
  Args buffer = good_call();
  buffer.intermediate_states = a.intermediate_states;
  buffer.intermediate_rows = 3;
  CHECK(key_of(buffer).drafts);  // another type than that of the pool
  buffer.intermediate_states.dtype = GOLDENRULE_GPU_F32;
  buffer.intermediate_slots = 9;
  CHECK_FALSE(key_of(buffer).drafts);  // row b for row b: what the other kernels do
  Args rings = good_ring_call();
  rings.cu_seqlens = a.cu_seqlens;
  rings.tokens = 5;
  CHECK(key_of(rings).replay);
  CHECK_FALSE(key_of(rings).drafts);
}

}  // namespace
}  // namespace goldenrule::test

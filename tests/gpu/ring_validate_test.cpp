// SPDX-License-Identifier: Apache-2.0
//
// Calls with rings that the host refuses, each for one argument that it names. Needs no GPU.
#include <doctest/doctest.h>

#include <string>

#include "tests/gpu/good_call.hpp"

namespace goldenrule::test {
namespace {

using Args = goldenrule_gpu_recurrent_args;

TEST_CASE("rings: what is refused") {
  struct Refusal {
    const char* argument;
    void (*spoil)(Args&);
  };
  const Refusal refusals[] = {
      {"rings", [](Args& a) { a.rings = -1; }},
      {"ring_places", [](Args& a) { a.ring_places = (1 << 20) + 1; }},
      {"ring_places", [](Args& a) { a.ring_places = 2; }},
      {"ring_places",
       [](Args& a) {
         a.T = 0;
         a.ring_places = 0;
       }},
      {"rings",
       [](Args& a) {
         a.rings = 1;
         a.ring_indices.data = nullptr;
       }},
      {"ring_k.data", [](Args& a) { a.ring_k.data = nullptr; }},
      {"ring_g.data", [](Args& a) { a.ring_g.data = nullptr; }},
      {"ring_start.data", [](Args& a) { a.ring_start.data = nullptr; }},
      {"ring_count.data", [](Args& a) { a.ring_count.data = nullptr; }},
      {"ring_k.data", [](Args& a) { a.ring_d.data = nullptr; }},
      {"ring_start.stride[0]", [](Args& a) { set_strides(a.ring_start, {0}); }},
      {"ring_d.stride[2]",
       [](Args& a) {
         set_strides(a.ring_d, {4096, 1024, 63});
       }},
      {"ring_d.data", [](Args& a) { a.ring_k.data = a.ring_d.data; }},
      {"o.data", [](Args& a) { a.ring_g.data = moved(a.o.data, 4); }},
      {"intermediate_states.data",
       [](Args& a) {
         a.intermediate_states = a.state;
         a.intermediate_rows = 3;
       }},
      {"ssm_state_indices.data", [](Args& a) { a.ssm_state_indices = a.state_indices; }},
      {"accepted_tokens.data", [](Args& a) { a.accepted_tokens = a.state_indices; }},
  };
  char message[256] = "";
  const auto answer = [&](const Args& a) {
    return goldenrule_gpu_recurrent_validate(&a, message, sizeof message);
  };
  for (const Refusal& refusal : refusals) {
    Args a = good_ring_call();
    const goldenrule_gpu_status good = answer(a);
    CHECK_MESSAGE((good == GOLDENRULE_GPU_OK || good == GOLDENRULE_GPU_NO_DEVICE), message);
    refusal.spoil(a);
    CHECK(answer(a) == GOLDENRULE_GPU_INVALID_ARGUMENT);
    CHECK_MESSAGE(std::string(message).rfind(std::string(refusal.argument) + ": expected ", 0) == 0,
                  refusal.argument << ": " << message);
  }
  Args a = good_ring_call();
  a.T = 0;  // a commit alone
  const goldenrule_gpu_status alone = answer(a);
  CHECK_MESSAGE((alone == GOLDENRULE_GPU_OK || alone == GOLDENRULE_GPU_NO_DEVICE), message);
  a = good_ring_call();
  a.ring_k.dtype = GOLDENRULE_GPU_I32;
  CHECK(answer(a) == GOLDENRULE_GPU_UNSUPPORTED);
  a = good_ring_call();
  a.flags = GOLDENRULE_GPU_FLAG_NO_OUTPUT;
  a.o.data = a.ring_flush.data = a.ring_indices.data = nullptr;
  const goldenrule_gpu_status status = answer(a);
  CHECK_MESSAGE((status == GOLDENRULE_GPU_OK || status == GOLDENRULE_GPU_NO_DEVICE), message);
}

}  // namespace
}  // namespace goldenrule::test

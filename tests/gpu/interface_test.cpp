// SPDX-License-Identifier: Apache-2.0
//
// What two sides that were compiled apart rely on: aggregates of other versions, defaults that stay
// within the caller's struct, and which tensors may share memory. Needs no GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "tests/gpu/good_call.hpp"

namespace goldenrule::test {
namespace {

using Args = goldenrule_gpu_recurrent_args;

/// The answer to an aggregate of `size` bytes: those of `a`, then zeros, then `last`.
goldenrule_gpu_status answer_to_size(Args a, std::uint64_t size, unsigned char last,
                                     std::string& text) {
  std::vector<unsigned char> bytes(std::max<std::size_t>(sizeof a, size) + 8, 0);
  a.struct_size = size;
  std::memcpy(bytes.data(), &a, sizeof a);
  if (size > sizeof a) bytes[size - 1] = last;
  char message[256] = "";
  const goldenrule_gpu_status status = goldenrule_gpu_recurrent_validate(
      reinterpret_cast<const Args*>(bytes.data()), message, sizeof message);
  text = message;
  return status;
}

TEST_CASE("callers of other versions: what is not there is 0, what is not known must be") {
  const auto taken = [](goldenrule_gpu_status status) {
    return status == GOLDENRULE_GPU_OK || status == GOLDENRULE_GPU_NO_DEVICE;
  };
  std::string text;
  CHECK(taken(answer_to_size(good_call(), sizeof(Args), 0, text)));
  // Version 1 ended here: a call of it has no rings.
  constexpr std::size_t kFirst = offsetof(Args, rings);
  CHECK(taken(answer_to_size(good_call(), kFirst, 0, text)));
  CHECK(taken(answer_to_size(good_ring_call(), kFirst, 0, text)));
  Args without = good_ring_call();
  without.ring_k.data = nullptr;
  CHECK(taken(answer_to_size(without, kFirst, 0, text)));
  CHECK_FALSE(taken(answer_to_size(without, sizeof(Args), 0, text)));
  CHECK_FALSE(taken(answer_to_size(good_call(), kFirst - 8, 0, text)));
  for (const std::uint64_t more : {8U, 40U, 4096U}) {
    CHECK(taken(answer_to_size(good_call(), sizeof(Args) + more, 0, text)));
    CHECK(answer_to_size(good_call(), sizeof(Args) + more, 1, text) == GOLDENRULE_GPU_UNSUPPORTED);
    CHECK(text.rfind("struct_size: expected " + std::to_string(sizeof(Args)) + ", or 0", 0) == 0);
  }
  for (const std::uint64_t size :
       {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{sizeof(Args) + 4}, std::uint64_t{1} << 20,
        ~std::uint64_t{0}}) {
    Args a = good_call();  // refused before anything behind the size is read
    a.struct_size = size;
    char message[256] = "";
    CHECK(goldenrule_gpu_recurrent_validate(&a, message, sizeof message) ==
          GOLDENRULE_GPU_INVALID_ARGUMENT);
    CHECK(std::string(message).rfind("struct_size: expected ", 0) == 0);
  }
  CHECK(goldenrule_gpu_version() == GOLDENRULE_GPU_VERSION);
}

TEST_CASE("defaults fill as much as the caller has room for") {
  for (const std::size_t size : {sizeof(Args) - 40, sizeof(Args), sizeof(Args) + 40}) {
    std::vector<unsigned char> bytes(sizeof(Args) + 64, 0xa5);
    auto* args = reinterpret_cast<Args*>(bytes.data());
    goldenrule_gpu_recurrent_defaults(args, size);
    CHECK(args->struct_size == size);
    CHECK(args->pad_slot == -1);
    CHECK(bytes[size] == 0xa5);
    CHECK(bytes[size - 1] == 0);
  }
}

/// Calls that share memory: who is put where, and who is then complained of.
TEST_CASE("what is written shares memory with nothing, but final_state with state") {
  struct Sharing {
    const char* complaint;  ///< nullptr: passes
    void (*arrange)(Args&);
  };
  constexpr std::ptrdiff_t kState = 5 * 4 * 64 * 128 * 4;  // bytes of the pool
  const std::vector<Sharing> all{
      {"o.data: expected memory that nothing else of the call is in, actual shared with v",
       [](Args& a) { a.o.data = a.v.data; }},
      {"o.data", [](Args& a) { a.o.data = moved(a.q.data, 2 * 3 * 2 * 128 * 2 - 2); }},
      {nullptr, [](Args& a) { a.o.data = moved(a.q.data, 2 * 3 * 2 * 128 * 2); }},
      {"o.data", [](Args& a) { a.beta.data = moved(a.o.data, 2); }},
      {nullptr, [](Args& a) { a.k.data = a.q.data; }},  // both are only read
      {"state.data", [](Args& a) { a.state_indices.data = moved(a.state.data, kState - 4); }},
      {nullptr, [](Args& a) { a.final_state = a.state; }},
      {"final_state.data",
       [](Args& a) {
         a.final_state = a.state;
         a.final_state.data = moved(a.state.data, kState / 5);
       }},
      {nullptr,
       [](Args& a) {
         a.final_state = a.state;
         a.final_state.data = moved(a.state.data, kState);
       }},
      {"state.data",
       [](Args& a) {
         a.intermediate_states = a.state;
         a.intermediate_rows = 3;
       }},
      {nullptr,
       [](Args& a) {  // neither is written
         a.final_state = a.state;
         a.final_state.data = moved(a.state.data, kState / 5);
         a.disable_state_update = 1;
       }},
      {nullptr,
       [](Args& a) {  // rows of q, k, v and o
         constexpr std::int64_t kPitch = 2 * 128 + 2 * 128 + 4 * 64 + 4 * 64;
         a.k.data = moved(a.q.data, 2 * 128 * 2);
         a.v.data = moved(a.q.data, 4 * 128 * 2);
         a.o.data = moved(a.q.data, (4 * 128 + 4 * 64) * 2);
         set_strides(a.q, {3 * kPitch, kPitch, 128});
         set_strides(a.k, {3 * kPitch, kPitch, 128});
         set_strides(a.v, {3 * kPitch, kPitch, 64});
         set_strides(a.o, {3 * kPitch, kPitch, 64});
       }},
      {"o.data",
       [](Args& a) {
         constexpr std::int64_t kPitch = 4 * 64 + 4 * 64 - 1;
         a.o.data = moved(a.v.data, 4 * 64 * 2);
         set_strides(a.v, {3 * kPitch, kPitch, 64});
         set_strides(a.o, {3 * kPitch, kPitch, 64});
       }},
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    Args a = good_call();
    all[i].arrange(a);
    char message[256] = "";
    const goldenrule_gpu_status status =
        goldenrule_gpu_recurrent_validate(&a, message, sizeof message);
    if (all[i].complaint == nullptr) {
      CHECK_MESSAGE((status == GOLDENRULE_GPU_OK || status == GOLDENRULE_GPU_NO_DEVICE), message);
    } else {
      CHECK(status == GOLDENRULE_GPU_INVALID_ARGUMENT);
      CHECK_MESSAGE(std::string(message).rfind(all[i].complaint, 0) == 0, message);
    }
  }
}

TEST_CASE("calls as engines have them") {
  void (*const calls[])(Args&) = {
      [](Args& a) { set_strides(a.state_indices, {9}); },  // block_table[:, 0]
      [](Args& a) {  // start slots beside a slot for each token
        a.ssm_state_indices = a.state_indices;
      },
      [](Args& a) {  // columns of one table
        a.ssm_state_indices = a.num_accepted_tokens = a.state_indices;
        a.state_indices.data = nullptr;
        set_strides(a.ssm_state_indices, {9, 2});
        set_strides(a.num_accepted_tokens, {9});
      },
      [](Args& a) {  // commit only
        a.flags = GOLDENRULE_GPU_FLAG_NO_OUTPUT;
        a.o.data = nullptr;
        a.accepted_tokens = a.state_indices;
      },
      [](Args& a) { a.pad_slot = 0; },
  };
  for (std::size_t i = 0; i < std::size(calls); ++i) {
    CAPTURE(i);
    Args a = good_call();
    calls[i](a);
    char message[256] = "";
    const goldenrule_gpu_status status =
        goldenrule_gpu_recurrent_validate(&a, message, sizeof message);
    CHECK_MESSAGE((status == GOLDENRULE_GPU_OK || status == GOLDENRULE_GPU_NO_DEVICE), message);
  }
}

}  // namespace
}  // namespace goldenrule::test

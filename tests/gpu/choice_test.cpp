// SPDX-License-Identifier: Apache-2.0
//
// Which kernel of decode and MTP the host chooses. Needs no GPU.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/delta/recurrent/select.hpp"

namespace goldenrule::test {
namespace {

/// A call of production shape as the choice sees it.
gpu::recurrent::Params production(int T) {
  gpu::recurrent::Params p{};
  p.T = T;
  p.K = p.V = 128;
  p.HV = 32;
  p.qk_type = p.v_type = gpu::Element::kBF16;
  p.q_unit = p.k_unit = 16;
  p.vector_state = p.dense_heads = 1;
  return p;
}

std::string chosen(const gpu::recurrent::Params& p, std::int64_t B) {
  return gpu::recurrent::table_entry(
             gpu::recurrent::table_index(select(p, {.rows = B, .multiprocessors = 132})))
      .name.text;
}

TEST_CASE("the choice of a kernel: each condition by itself") {
  // "few" begins at two tokens and ends at eight; low tiles for small grids.
  CHECK(chosen(production(1), 1) == "vk_f32_head_one_r16x2");
  CHECK(chosen(production(1), 64) == "vk_f32_head_one_r64x4");
  CHECK(chosen(production(2), 64) == "vk_f32_head_few_r64x2");
  CHECK(chosen(production(8), 1) == "vk_f32_head_few_r32x2");
  CHECK(chosen(production(9), 64).find("head_any") != std::string::npos);
  CHECK(chosen(production(0), 64).find("head_any") != std::string::npos);
  struct Change {
    const char* expected;
    int T;
    void (*make)(gpu::recurrent::Params&);
  };
  for (const Change& change : {
           Change{"kv_f32_head_one", 1, [](auto& p) { p.kv_layout = 1; }},
           Change{"vk_bf16_head_one", 1, [](auto& p) { p.bf16_state = 1; }},
           Change{"vk_f32_channel_one", 1, [](auto& p) { p.channel_gate = 1; }},
           Change{"vk_f32_head_one", 1, [](auto& p) { p.qk_type = gpu::Element::kF16; }},
           Change{"vk_f32_head_any", 1, [](auto& p) { p.qk_type = gpu::Element::kF32; }},
           Change{"vk_f32_head_any", 4, [](auto& p) { p.qk_type = gpu::Element::kF16; }},
           Change{"vk_f32_channel_few", 4, [](auto& p) { p.channel_gate = 1; }},
           Change{"vk_f32_channel_any", 9, [](auto& p) { p.channel_gate = 1; }},
           // Blocks of 128 rows or 64 do not divide 32.
           Change{"vk_f32_channel_any", 4, [](auto& p) { p.channel_gate = 1, p.V = 32; }},
           Change{"vk_f32_head_any", 1, [](auto& p) { p.q_unit = 4; }},
           Change{"vk_f32_head_any", 4, [](auto& p) { p.k_unit = 2; }},
           Change{"vk_f32_head_one", 1, [](auto& p) { p.q_unit = 8; }},
           Change{"vk_f32_general_k128", 1, [](auto& p) { p.vector_state = 0; }},
           Change{"vk_f32_general_k128", 4, [](auto& p) { p.dense_heads = 0; }},
           Change{"vk_f32_general_k128", 4, [](auto& p) { p.V = 100; }},
           Change{"vk_f32_general_k64", 1, [](auto& p) { p.K = 64; }},
           Change{"vk_f32_general_k128", 1, [](auto& p) { p.K = 65; }},
           Change{"vk_f32_general_k256", 1, [](auto& p) { p.K = 129; }},
       }) {
    gpu::recurrent::Params p = production(change.T);
    change.make(p);
    const std::string name = chosen(p, 64);
    CHECK_MESSAGE(name.rfind(change.expected, 0) == 0, name);
  }
}

TEST_CASE("the choice of a kernel: rings") {
  struct Change {
    const char* expected;
    void (*make)(gpu::recurrent::Params&);
  };
  for (const Change& change : {
           Change{"vk_f32_replay_few", [](auto&) {}},
           Change{"vk_f32_replay_few", [](auto& p) { p.T = 1; }},
           Change{"vk_f32_replay_few",
                  [](auto& p) { p.T = p.k_unit = 0, p.qk_type = gpu::Element::kF32; }},
           Change{"vk_f32_replay_channel_few", [](auto& p) { p.T = 0, p.channel_gate = 1; }},
           Change{"vk_f32_replay_k128", [](auto& p) { p.T = 0, p.ring.places = 17; }},
           Change{"vk_f32_replay_k128", [](auto& p) { p.T = 9; }},
           Change{"vk_f32_replay_few", [](auto& p) { p.ring.places = 20; }},
           Change{"vk_f32_replay_k128", [](auto& p) { p.ring.places = 21; }},
           Change{"vk_f32_replay_k128", [](auto& p) { p.ring.k_type = gpu::Element::kF32; }},
           Change{"vk_f32_replay_k128", [](auto& p) { p.ring.k_unit = 4; }},
           Change{"vk_f32_replay_few", [](auto& p) { p.ring.d_type = gpu::Element::kF32; }},
           Change{"vk_f32_replay_channel_few_r128x8", [](auto& p) { p.channel_gate = 1; }},
           Change{"vk_f32_replay_channel_few_r64x4",
                  [](auto& p) { p.channel_gate = 1, p.V = 192; }},
           Change{"vk_f32_replay_channel_few_r64x4", [](auto& p) { p.channel_gate = 1, p.HV = 2; }},
           Change{"kv_bf16_replay_channel_few_r128x8",
                  [](auto& p) { p.channel_gate = p.bf16_state = p.kv_layout = 1; }},
           Change{"vk_f32_replay_channel_few",
                  [](auto& p) { p.channel_gate = 1, p.T = 1, p.ring.places = 17; }},
           Change{"vk_f32_replay_k128",
                  [](auto& p) { p.channel_gate = 1, p.T = 1, p.ring.places = 18; }},
           Change{"vk_f32_replay_k128", [](auto& p) { p.channel_gate = 1, p.V = 96; }},
           Change{"vk_f32_replay_k128", [](auto& p) { p.channel_gate = 1, p.ring.k_unit = 4; }},
           // One gate a head after all: the ring has no channels.
           Change{"vk_f32_replay_k128",
                  [](auto& p) {
                    p.channel_gate = 1;
                    p.gate_kind = GOLDENRULE_GPU_GATE_NONE;
                  }},
           Change{"vk_f32_replay_few", [](auto& p) { p.gate_kind = GOLDENRULE_GPU_GATE_NONE; }},
           Change{"vk_f32_replay_k128", [](auto& p) { p.qk_type = gpu::Element::kF16; }},
           Change{"vk_f32_replay_k128", [](auto& p) { p.V = 96; }},
           Change{"vk_f32_replay_k128", [](auto& p) { p.dense_heads = 0; }},
           Change{"vk_f32_replay_k64", [](auto& p) { p.K = 64; }},
           Change{"vk_f32_replay_k256", [](auto& p) { p.K = 129; }},
           Change{"kv_bf16_replay_few", [](auto& p) { p.bf16_state = p.kv_layout = 1; }},
       }) {
    std::byte memory{};
    gpu::recurrent::Params p = production(4);
    p.ring.d.data = reinterpret_cast<char*>(&memory);
    p.ring.places = 16;
    p.ring.k_type = p.ring.d_type = gpu::Element::kBF16;
    p.ring.k_unit = 16;
    change.make(p);
    const std::string name = chosen(p, 64);
    CHECK_MESSAGE(name.rfind(change.expected, 0) == 0, name);
  }
}

TEST_CASE("the choice of a kernel: all states kept, and how many heads") {
  std::byte memory{};
  const auto keeps = [&](gpu::recurrent::Params p) {
    p.intermediate.data = &memory;
    return p;
  };
  const auto write_bound = [](const std::string& name) {
    return name.find("few_write_bound") != std::string::npos;
  };
  // Eight heads for each of 132 multiprocessors: 33 rows of 32 heads.
  CHECK(write_bound(chosen(keeps(production(4)), 33)));
  CHECK_FALSE(write_bound(chosen(keeps(production(4)), 32)));
  CHECK_FALSE(write_bound(chosen(keeps(production(3)), 64)));
  CHECK_FALSE(write_bound(chosen(production(4), 64)));
  gpu::recurrent::Params p = production(8);
  p.ssm_state_indices = &memory;
  CHECK(write_bound(chosen(p, 64)));
  p.disable_state_update = 1;
  CHECK_FALSE(write_bound(chosen(p, 64)));
  // 4.125 rows are two tall tiles for each multiprocessor; of 8 rows they leave waves emptier.
  for (const int B : {4, 8}) CHECK(chosen(production(1), B) == "vk_f32_head_one_r16x2");
  for (const int B : {5, 9, 16}) CHECK(chosen(production(1), B) == "vk_f32_head_one_r64x4");
  // The rows by which serving_test.cpp reaches the tall tiles of every format.
  for (const bool bf16 : {false, true}) {
    p = production(1);
    p.HV = 4;
    p.bf16_state = bf16 ? 1 : 0;
    CHECK(chosen(p, 600) == (bf16 ? "vk_bf16_head_one_r64x2" : "vk_f32_head_one_r64x4"));
  }
}

}  // namespace
}  // namespace goldenrule::test

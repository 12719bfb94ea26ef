// SPDX-License-Identifier: Apache-2.0
//
// One row of the table: a decode or MTP call of production shape, with as many disjoint sets of
// inputs as make 512 MiB of distinct state, so that nothing rests in the 60 MB of L2 between two
// launches. As in a model of many layers, each set has its own pool of states and its own tokens,
// and all share the slots; or, as in a pool that serves many requests, the states of all sets are
// one pool and each has random slots of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/goldenrule_gpu.h"
#include "gpu/host/cuda_handles.hpp"

namespace goldenrule::bench {

struct Row {
  bool kda = false;
  bool kv = false;
  bool bf16 = false;  ///< of the state; q, k, v, o are bf16
  std::int64_t B = 1, T = 1, H = 16, HV = 32;
  bool intermediates = false;
  bool update = true;
  std::int64_t pending = -1;     ///< tokens that wait in a ring, -1: no rings
  std::int64_t flush_every = 0;  ///< with rings: every n-th row flushes; 0: none
  bool random_slots = false;     ///< of one pool for all sets
  double peer_us = 0;            ///< best peer in the table of measured peers; 0: none
  double goal_us = 0;            ///< of plain launches; 0: none
  double goal_dep_us = 0;        ///< of dependent ones

  [[nodiscard]] std::string name() const;
  [[nodiscard]] bool has_rings() const { return pending >= 0; }
  /// Rows whose state is written.
  [[nodiscard]] std::int64_t written_rows() const;
  /// Bytes of one state of all heads and rows.
  [[nodiscard]] std::int64_t state_bytes() const;
  /// Bytes of a token of all heads of a row in a ring: d and k in bf16, log alpha in f32.
  [[nodiscard]] std::int64_t ring_token_bytes() const;
  /// The fewest bytes that must move: state in, state out, intermediates, tokens, rings.
  [[nodiscard]] std::int64_t bytes_read() const;
  [[nodiscard]] std::int64_t bytes_written() const;
  /// The floating-point operations of the closed form; a fused multiply-add counts two.
  [[nodiscard]] std::int64_t operations() const;
};

class Workload {
 public:
  Workload(const Row& row, cudaStream_t stream);

  [[nodiscard]] int sets() const { return static_cast<int>(calls_.size()); }
  /// Launches set i; throws Error on a refusal.
  void launch(int i, cudaStream_t stream, std::uint32_t flags) const;
  /// Launches what commits after an MTP call of set i: the same tokens again, of which the first
  /// half is accepted, into the states and without o.
  void launch_commit(int i, cudaStream_t stream, std::uint32_t flags) const;

 private:
  void* buffer(std::size_t bytes);
  /// f(b) for every row b, as i32.
  template <class F>
  goldenrule_gpu_tensor row_list(std::int64_t rows, F&& f);
  /// Slots of `row.B` rows for each set, of one pool, in random order.
  std::vector<goldenrule_gpu_tensor> random_slots(const Row& row, std::int64_t sets);
  void give_cursors(const Row& row, goldenrule_gpu_recurrent_args& call);
  void give_rings(const Row& row, goldenrule_gpu_recurrent_args& call, cudaStream_t stream);
  void* random(std::size_t count, bool f32, float amplitude, cudaStream_t stream);

  std::vector<gpu::DeviceMemory> memory_;
  std::vector<goldenrule_gpu_recurrent_args> calls_;
  goldenrule_gpu_tensor accepted_{};
  unsigned seed_ = 1;
};

}  // namespace goldenrule::bench

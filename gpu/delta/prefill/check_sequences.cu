// SPDX-License-Identifier: Apache-2.0
#include "gpu/common/complaints.cuh"
#include "gpu/delta/prefill/check_sequences.hpp"
#include "gpu/delta/prefill/checkpoints.cuh"
#include "gpu/groups.hpp"
#include "gpu/launch/guard.hpp"

namespace goldenrule::gpu::prefill {
namespace {

constexpr int kThreads = 256;

enum Complaint : int { kStart, kOutput, kTwice, kReadAfterWrite, kBound, kOrder, kComplaints };

__device__ bool strange(const Params& p, const void* slots, bool wide, int64_t n) {
  if (slots == nullptr) return false;
  const int64_t slot = load_index(slots, wide, n);
  return slot != p.pad_slot && (slot < 0 || slot >= p.slots);
}

/// Whether span_between takes the bounds of sequence n as they are.
__device__ bool in_order(const void* bounds, bool wide, int n, int size) {
  const int64_t begin = load_index(bounds, wide, n);
  const int64_t end = load_index(bounds, wide, n + 1);
  return 0 <= begin && begin <= end && end <= size && (n > 0 || begin == 0);
}

__device__ int64_t written_slot(const Params& p, int n) {
  return final_slot(p, n, start_slot(p, n));
}

__device__ void check_checkpoints(const Params& p, int n, Tally& tally) {
  if (!in_order(p.cu_checkpoints, p.wide_cu_checkpoints, n, p.checkpoint_rows)) complain(tally, 0);
  if (start_slot(p, n) == kNoSlot) return;  // none of its rows is written
  const Span rows =
      span_between(load_index(p.cu_checkpoints, p.wide_cu_checkpoints, n),
                   load_index(p.cu_checkpoints, p.wide_cu_checkpoints, n + 1), p.checkpoint_rows);
  CheckpointWalk walk(p, n, tokens_of(p, n).count);
  for (int row = rows.first; row < rows.first + rows.count; ++row) {
    if (walk.after() != CheckpointWalk::kNone && walk.row() == row) {
      walk.advance();
    } else {
      complain(tally, row);
    }
  }
}

__device__ void check_sequence(const Params& p, int n, Tally* tallies) {
  if (strange(p, p.state_indices, p.wide_start, int64_t{n} * p.start_step))
    complain(tallies[kStart], n);
  if (strange(p, p.output_state_indices, p.wide_output, int64_t{n} * p.output_step))
    complain(tallies[kOutput], n);
  if (!in_order(p.cu_seqlens, p.wide_seqlens, n, p.total)) complain(tallies[kBound], n);
  if (p.checkpoints.data != nullptr) check_checkpoints(p, n, tallies[kOrder]);
  const int64_t start = start_slot(p, n);
  const bool in_place = p.state.data != nullptr && p.state.data == p.final_state.data;
  for (int other = 0; in_place && start != kNoSlot && other < p.N; ++other) {
    if (other != n && written_slot(p, other) == start) {
      complain(tallies[kReadAfterWrite], n);
      break;
    }
  }
  const int64_t written = written_slot(p, n);
  for (int other = 0; written != kNoSlot && other < n; ++other) {
    if (written_slot(p, other) == written) {
      complain(tallies[kTwice], n);
      break;
    }
  }
}

__global__ void check_kernel(const __grid_constant__ Params p,
                             goldenrule_gpu_prefill_report* report) {
  __shared__ Tally tallies[kComplaints];
  begin_complaints(tallies);
  for (int n = static_cast<int>(threadIdx.x); n < p.N; n += kThreads) {
    check_sequence(p, n, tallies);
  }
  end_complaints(tallies, report);
}

}  // namespace

const void* check_function() { return reinterpret_cast<const void*>(&check_kernel); }

Problem launch_check(const Params& params, goldenrule_gpu_prefill_report* report, void* stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  // The error of this launch: cudaGetLastError would return, and clear, what another has left.
  return cuda_problem(cudaLaunchKernelEx(&config, check_kernel, params, report), "launch");
}

}  // namespace goldenrule::gpu::prefill

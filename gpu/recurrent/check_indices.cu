// SPDX-License-Identifier: Apache-2.0
#include "gpu/common/complaints.cuh"
#include "gpu/groups.hpp"
#include "gpu/launch/guard.hpp"
#include "gpu/recurrent/check_indices.hpp"
#include "gpu/recurrent/row_slots.cuh"

namespace goldenrule::gpu::recurrent {
namespace {

constexpr int kThreads = 256;

enum Complaint : int { kStart, kOutput, kTwice, kReadAfterWrite, kCount, kComplaints };

__device__ bool strange(const Params& p, int64_t slot) {
  return slot != p.pad_slot && (slot < 0 || slot >= p.slots);
}

/// Writers are numbered 0..writers-1: one per row, or T per row in the scatter form.
__device__ int64_t written_slot(const Params& p, int64_t writer) {
  if (p.ssm_state_indices == nullptr) {
    const int row = static_cast<int>(writer);
    return final_write(p, row, start_slot(p, row, request_start_slot(p, row))).slot;
  }
  const int b = static_cast<int>(writer / p.T);
  if (p.disable_state_update != 0 || start_slot(p, b, request_start_slot(p, b)) == kNoSlot)
    return kNoSlot;
  return ssm_slot(p, b, writer % p.T);
}

/// One number of each row; absent: none.
struct RowList {
  const void* data;
  uint8_t wide;
  int32_t step;
};
__device__ int64_t row_value(const RowList& list, int b) {
  return load_index(list.data, list.wide, int64_t{b} * list.step);
}
__device__ bool is_strange(const Params& p, const RowList& slots, int b) {
  return slots.data != nullptr && strange(p, row_value(slots, b));
}
__device__ bool is_beyond(const RowList& counts, int b, int64_t low, int64_t high) {
  if (counts.data == nullptr) return false;
  const int64_t n = row_value(counts, b);
  return n < low || n > high;
}

__device__ void check_row(const Params& p, int b, Tally* tallies) {
  const RowList start{p.state_indices, p.wide_start, p.start_step};
  const RowList output{p.output_state_indices, p.wide_output, p.output_step};
  const RowList first{p.num_accepted_tokens, p.wide_num_accepted, p.num_accepted_step};
  const RowList accepted{p.accepted_tokens, p.wide_accepted, p.accepted_step};
  if (is_strange(p, start, b)) complain(tallies[kStart], b);
  if (is_strange(p, output, b)) complain(tallies[kOutput], b);
  if (is_beyond(first, b, 1, p.T) || is_beyond(accepted, b, 0, p.T)) complain(tallies[kCount], b);
  for (int t = 0; p.ssm_state_indices != nullptr && t < p.T; ++t) {
    const int64_t at = int64_t{b} * p.ssm_row + int64_t{t} * p.ssm_token;
    if (strange(p, load_index(p.ssm_state_indices, p.wide_ssm, at))) {
      complain(tallies[kOutput], int64_t{b} * p.T + t);
    }
  }
}

__global__ void check_kernel(const __grid_constant__ Params p, int B, bool in_place,
                             goldenrule_gpu_index_report* report) {
  __shared__ Tally tallies[kComplaints];
  begin_complaints(tallies);
  const int64_t per_row = p.ssm_state_indices != nullptr ? p.T : 1;
  const int64_t writers = B * per_row;
  for (int b = static_cast<int>(threadIdx.x); b < B; b += kThreads) {
    check_row(p, b, tallies);
    const int64_t start = start_slot(p, b, request_start_slot(p, b));
    for (int64_t w = 0; in_place && start != kNoSlot && w < writers; ++w) {
      if (w / per_row != b && written_slot(p, w) == start) {
        complain(tallies[kReadAfterWrite], b);
        break;
      }
    }
  }
  for (int64_t w = threadIdx.x; w < writers; w += kThreads) {
    const int64_t slot = written_slot(p, w);
    for (int64_t other = 0; slot != kNoSlot && other < w; ++other) {
      if (written_slot(p, other) == slot) {
        complain(tallies[kTwice], w);
        break;
      }
    }
  }
  end_complaints(tallies, report);
}

}  // namespace

const void* check_function() { return reinterpret_cast<const void*>(&check_kernel); }

Problem launch_check(const Params& params, int B, bool in_place,
                     goldenrule_gpu_index_report* report, void* stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  // The error of this launch: cudaGetLastError would return, and clear, what another has left.
  return cuda_problem(cudaLaunchKernelEx(&config, check_kernel, params, B, in_place, report),
                      "launch");
}

}  // namespace goldenrule::gpu::recurrent

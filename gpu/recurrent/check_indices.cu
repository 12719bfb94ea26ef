// SPDX-License-Identifier: Apache-2.0
#include "gpu/common/complaints.cuh"
#include "gpu/groups.hpp"
#include "gpu/launch/launch_kernel.hpp"
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

__device__ void check_row(const Params& p, int b, Tally* tallies) {
  if (p.ssm_state_indices != nullptr) {
    const int64_t n = load_index(p.num_accepted_tokens, p.wide_num_accepted, b);
    if (n < 1 || n > p.T) complain(tallies[kCount], b);
    for (int t = 0; t < p.T; ++t) {
      const int64_t at =
          static_cast<int64_t>(b) * p.ssm_row + static_cast<int64_t>(t) * p.ssm_token;
      if (strange(p, load_index(p.ssm_state_indices, p.wide_ssm, at))) {
        complain(tallies[kOutput], static_cast<int64_t>(b) * p.T + t);
      }
    }
    return;
  }
  if (p.state_indices != nullptr && strange(p, load_index(p.state_indices, p.wide_start, b))) {
    complain(tallies[kStart], b);
  }
  if (p.output_state_indices != nullptr &&
      strange(p, load_index(p.output_state_indices, p.wide_output, b))) {
    complain(tallies[kOutput], b);
  }
  if (p.accepted_tokens != nullptr) {
    const int64_t n = load_index(p.accepted_tokens, p.wide_accepted, b);
    if (n < 0 || n > p.T) complain(tallies[kCount], b);
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
  Params copy = params;
  void* arguments[] = {&copy, &B, &in_place, &report};
  return launch_kernel(check_function(), {.blocks = 1, .threads = kThreads}, arguments, stream);
}

}  // namespace goldenrule::gpu::recurrent

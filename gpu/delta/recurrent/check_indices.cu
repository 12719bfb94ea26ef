// SPDX-License-Identifier: Apache-2.0
#include "gpu/common/complaints.cuh"
#include "gpu/delta/recurrent/check_indices.hpp"
#include "gpu/delta/recurrent/draft_rows.cuh"
#include "gpu/groups.hpp"
#include "gpu/launch/guard.hpp"

namespace goldenrule::gpu::recurrent {
namespace {

constexpr int kThreads = 256;

enum Complaint : int {
  kStart,
  kOutput,
  kTwice,
  kReadAfterWrite,
  kCount,
  kFirstComplaints,  ///< those of version 1
  kRing = kFirstComplaints,
  kRingTwice,
  kCursor,
  kSecondComplaints,  ///< those of version 2
  kBounds = kSecondComplaints,
  kParent,
  kKeptRow,
  kKeptTwice,
  kComplaints
};
constexpr int kOfVersion[] = {kFirstComplaints, kSecondComplaints, kComplaints};

__device__ bool strange(const Params& p, int64_t slot) {
  return slot != p.pad_slot && (slot < 0 || slot >= p.slots);
}

/// kNoSlot for a row of rings that is padded for them.
__device__ int64_t read_slot(const Params& p, int b) {
  if (p.ring.d.data != nullptr && ring_cursors(p, b, tokens_of_row(p, b).count).ring == kNoRing)
    return kNoSlot;
  return start_slot(p, b, request_start_slot(p, b));
}

/// Writers of a row: its tokens in the scatter form, else one, and one more for a second slot.
__device__ int writers_of_row(const Params& p) {
  if (p.ssm_state_indices != nullptr) return p.T;
  return p.draft.second_slot.data != nullptr ? 2 : 1;
}

/// Writers are numbered 0..writers-1, those of a row one after the other.
__device__ int64_t written_slot(const Params& p, int64_t writer) {
  const int per_row = writers_of_row(p);
  const int b = static_cast<int>(writer / per_row);
  const int i = static_cast<int>(writer % per_row);
  const int64_t start = read_slot(p, b);
  const int count = tokens_of_row(p, b).count;
  if (p.ssm_state_indices == nullptr) {
    if (p.ring.d.data != nullptr) return flush_slot(p, b, start, ring_cursors(p, b, count));
    return (i == 0 ? final_write(p, b, start, count) : second_write(p, b, start, count)).slot;
  }
  if (p.disable_state_update != 0 || start == kNoSlot || i >= count) return kNoSlot;
  return ssm_slot(p, b, i);
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
  const RowList start{p.state_indices, p.start_step, p.wide_start};
  const RowList output{p.output_state_indices, p.output_step, p.wide_output};
  const RowList first{p.num_accepted_tokens, p.num_accepted_step, p.wide_num_accepted};
  const RowList accepted{p.accepted_tokens, p.accepted_step, p.wide_accepted};
  if (is_strange(p, start, b)) complain(tallies[kStart], b);
  const int count = tokens_of_row(p, b).count;
  if (is_strange(p, output, b) || is_strange(p, p.draft.second_slot, b)) {
    complain(tallies[kOutput], b);
  }
  if (is_beyond(first, b, 1, p.T) || is_beyond(accepted, b, 0, count) ||
      is_beyond(p.draft.second_after, b, 0, count)) {
    complain(tallies[kCount], b);
  }
  for (int t = 0; p.ssm_state_indices != nullptr && t < count; ++t) {
    const int64_t at = int64_t{b} * p.ssm_row + int64_t{t} * p.ssm_token;
    if (strange(p, load_index(p.ssm_state_indices, p.wide_ssm, at))) {
      complain(tallies[kOutput], int64_t{b} * p.T + t);
    }
  }
}

/// Of a row that a slot makes padding no ring is looked at.
__device__ void check_ring(const Params& p, int b, Tally* tallies) {
  const Rings& r = p.ring;
  if (r.d.data == nullptr || start_slot(p, b, request_start_slot(p, b)) == kNoSlot) return;
  if (r.indices.data != nullptr && !is_within(row_value(r.indices, b), 0, r.rings - 1)) {
    complain(tallies[kRing], b);
  }
  const int64_t flush = r.flush.data != nullptr ? row_value(r.flush, b) : 0;
  if (!has_cursors_in_range(p, row_value(r.start, b), row_value(r.count, b), flush,
                            tokens_of_row(p, b).count)) {
    complain(tallies[kCursor], b);
  }
  const int ring = ring_cursors(p, b, tokens_of_row(p, b).count).ring;
  for (int other = 0; ring != kNoRing && other < b; ++other) {
    if (read_slot(p, other) != kNoSlot &&
        ring_cursors(p, other, tokens_of_row(p, other).count).ring == ring) {
      complain(tallies[kRingTwice], b);
      break;
    }
  }
}

/// Bounds, parents and rows of the buffer of states; those of padded rows are not looked at but for
/// the bounds.
__device__ void check_draft(const Params& p, int b, Tally* tallies) {
  const Drafts& d = p.draft;
  if (d.bounds != nullptr && !has_bounds_in_range(p, b)) complain(tallies[kBounds], b);
  if (read_slot(p, b) == kNoSlot) return;
  const Span span = tokens_of_row(p, b);
  const BlockPlace at{.b = b, .hv = 0, .h = 0, .row0 = 0, .token0 = span.first};
  for (int t = 0; t < span.count; ++t) {
    if (!is_parent(given_parent(p, at, t), t)) complain(tallies[kParent], int64_t{b} * p.T + t);
  }
  if (d.kept.data == nullptr) return;
  const int64_t kept = row_value(d.kept, b);
  if (!is_within(kept, -1, d.kept_rows - 1)) complain(tallies[kKeptRow], b);
  for (int other = 0; kept_row(p, b) >= 0 && span.count > 0 && other < b; ++other) {
    const bool writes = read_slot(p, other) != kNoSlot && tokens_of_row(p, other).count > 0;
    if (writes && row_value(d.kept, other) == kept) {
      complain(tallies[kKeptTwice], b);
      break;
    }
  }
}

__global__ void check_kernel(const __grid_constant__ Params p, int B, bool in_place, int complaints,
                             goldenrule_gpu_index_report* report) {
  __shared__ Tally tallies[kComplaints];
  begin_complaints(tallies);
  const int64_t per_row = writers_of_row(p);
  const int64_t writers = B * per_row;
  for (int b = static_cast<int>(threadIdx.x); b < B; b += kThreads) {
    check_row(p, b, tallies);
    check_ring(p, b, tallies);
    check_draft(p, b, tallies);
    const int64_t start = read_slot(p, b);
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
  end_complaints(tallies, report, complaints);
}

}  // namespace

const void* check_function() { return reinterpret_cast<const void*>(&check_kernel); }

Problem launch_check(const Params& params, int B, bool in_place, int version,
                     goldenrule_gpu_index_report* report, void* stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  // The error of this launch: cudaGetLastError would return, and clear, what another has left.
  return cuda_problem(cudaLaunchKernelEx(&config, check_kernel, params, B, in_place,
                                         kOfVersion[version - 1], report),
                      "launch");
}

}  // namespace goldenrule::gpu::recurrent

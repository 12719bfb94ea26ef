// SPDX-License-Identifier: Apache-2.0
#include "gpu/attention/check_requests.hpp"
#include "gpu/attention/requests.cuh"
#include "gpu/common/complaints.cuh"
#include "gpu/groups.hpp"
#include "gpu/launch/guard.hpp"

namespace goldenrule::gpu::attention {
namespace {

constexpr int kThreads = 256;

enum Complaint : int {
  kQueryBound,
  kFreshBound,
  kTableBound,
  kLength,
  kValid,
  kPageOutside,
  kPageMissing,
  kComplaints
};

/// Whether span_between takes the bounds of request n as they are.
__device__ bool in_order(const IndexView& bounds, int n, int64_t size) {
  const int64_t begin = index_at(bounds, n), end = index_at(bounds, int64_t{n} + 1);
  return 0 <= begin && begin <= end && end <= size && (n > 0 || begin == 0);
}

__device__ void check_pages(const Params& p, const Request& r, Tally* tallies) {
  const bool listed = p.list.data != nullptr;
  const IndexView& list = listed ? p.list : p.table;
  const int64_t needed = (int64_t{r.cached} + p.page_size - 1) / p.page_size;
  for (int64_t i = 0; i < needed; ++i) {
    const int64_t page = load_index(list.data, list.wide != 0, r.pages + i);
    if (0 <= page && page < p.pages) continue;
    const int64_t at = listed ? r.pages + i : int64_t{r.n} * p.table_width + i;
    complain(tallies[page == -1 ? kPageMissing : kPageOutside], at);
  }
}

__device__ void check_request(const Params& p, int n, Tally* tallies) {
  const Request r = request_at(p, n);
  if (!in_order(p.query_bounds, n, p.total)) complain(tallies[kQueryBound], n);
  if (p.fresh_bounds.data != nullptr && !in_order(p.fresh_bounds, n, p.fresh)) {
    complain(tallies[kFreshBound], n);
  }
  if (p.valid.data != nullptr && index_at(p.valid, n) != r.valid) complain(tallies[kValid], n);
  if (p.paged == 0) return;
  if (p.list.data != nullptr && !in_order(p.list_bounds, n, p.table_size)) {
    complain(tallies[kTableBound], n);
  }
  if (index_at(p.lengths, n) != r.cached) complain(tallies[kLength], n);
  check_pages(p, r, tallies);
}

__global__ void check_kernel(const __grid_constant__ Params p,
                             goldenrule_gpu_attention_report* report) {
  __shared__ Tally tallies[kComplaints];
  begin_complaints(tallies);
  for (int n = static_cast<int>(threadIdx.x); n < p.N; n += kThreads) {
    check_request(p, n, tallies);
  }
  end_complaints(tallies, report);
}

}  // namespace

const void* check_function() { return reinterpret_cast<const void*>(&check_kernel); }

Problem launch_check(const Params& params, goldenrule_gpu_attention_report* report, void* stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  // The error of this launch: cudaGetLastError would return, and clear, what another has left.
  return cuda_problem(cudaLaunchKernelEx(&config, check_kernel, params, report), "launch");
}

}  // namespace goldenrule::gpu::attention

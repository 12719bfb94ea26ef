// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_gpu/growth.hpp"

#include <chrono>
#include <memory>

namespace goldenrule::bench {
namespace {

using Half = std::uint16_t;
constexpr Half kOne = 0x3f80, kNaN = 0x7fc0;  // bf16
constexpr int kPage = Growth::kPage, kHeads = Growth::kHeads, kDim = Growth::kDim;

/// Device memory with the contents of a vector.
template <class T>
gpu::DeviceMemory upload(const std::vector<T>& values) {
  gpu::DeviceMemory memory = gpu::allocate_device(values.size() * sizeof(T));
  gpu::check_cuda(
      cudaMemcpy(memory.get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
      "upload");
  return memory;
}

goldenrule_gpu_tensor tensor(const gpu::DeviceMemory& memory, std::int32_t dtype) {
  return {.data = memory.get(), .stride = {}, .dtype = dtype, .dense = 1};
}

/// One sequence in pages, which all requests share: each has a prefix of it. Every second page of
/// the pool is nobody's.
class Pool {
 public:
  Pool(std::int64_t tokens, std::int64_t first_page)
      : pages_(2 * (tokens / kPage + 1)), first_(first_page) {
    const auto size = static_cast<std::size_t>(pages_ * kPage * kHeads * kDim);
    std::vector<Half> k(size, kNaN), v(size, kNaN);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto at =
          static_cast<std::size_t>((page(t / kPage) * kPage + t % kPage) * kHeads * kDim);
      for (std::size_t h = 0; h < kHeads; ++h) {
        const std::size_t row = at + h * kDim;
        std::fill_n(&k[row], kDim, kOne);
        std::fill_n(&v[row], kDim, Half{0});
        v[row + static_cast<std::size_t>(t % kDim)] = kOne;
      }
    }
    k_ = upload(k);
    v_ = upload(v);
  }
  /// The i-th page of the sequence: from the back of the pool to its front, every second one.
  [[nodiscard]] std::int64_t page(std::int64_t i) const { return pages_ - 1 - first_ - 2 * i; }
  void give(goldenrule_gpu_attention_args& a) const {
    a.k_cache = tensor(k_, GOLDENRULE_GPU_BF16);
    a.v_cache = tensor(v_, GOLDENRULE_GPU_BF16);
    a.pages = pages_;
  }

 private:
  std::int64_t pages_, first_;
  gpu::DeviceMemory k_, v_;
};

/// The lists of one step, in memory of exactly their sizes.
struct Lists {
  gpu::DeviceMemory lengths, table, bounds;

  Lists(const Pool& pool, const GrowthStep& step) {
    const std::int64_t requests = std::ssize(step.lengths);
    std::vector<std::int32_t> begins{0};
    for (std::int64_t n = 0; n < requests; ++n) {
      begins.push_back(static_cast<std::int32_t>(Growth::kBlock * (n + 1)));
    }
    std::vector<std::int32_t> pages(static_cast<std::size_t>(requests * step.width), -1);
    for (std::int64_t n = 0; n < requests; ++n) {
      for (std::int64_t i = 0; i * kPage < step.lengths[static_cast<std::size_t>(n)]; ++i) {
        pages[static_cast<std::size_t>(n * step.width + i)] =
            static_cast<std::int32_t>(pool.page(i));
      }
    }
    lengths = upload(step.lengths);
    table = upload(pages);
    bounds = upload(begins);
  }
  void give(goldenrule_gpu_attention_args& a) const {
    a.kv_lens = tensor(lengths, GOLDENRULE_GPU_I32);
    a.page_table = tensor(table, GOLDENRULE_GPU_I32);
    a.cu_seqlens_q = tensor(bounds, GOLDENRULE_GPU_I32);
  }
};

std::uint64_t all_hits() {
  std::uint64_t hits = 0;
  for (std::int32_t i = 0; i < goldenrule_gpu_dispatch_size(); ++i) {
    hits += goldenrule_gpu_dispatch_entry_hits(i);
  }
  return hits;
}

}  // namespace

std::vector<std::int32_t> Growth::lengths(int step) {
  std::vector<std::int32_t> lengths;
  for (std::int64_t n = 0; n < requests(step); ++n) {
    lengths.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(0, context(step) - 3 * n)));
  }
  return lengths;
}

GrowthLoop::GrowthLoop(int steps) : steps_(steps) {
  constexpr std::size_t kAll = Growth::kMostRequests * Growth::kRows;
  q_ = upload(std::vector<Half>(kAll * kDim));
  o_ = upload(std::vector<Half>(kAll * kDim, kNaN));
  lse_ = upload(std::vector<float>(kAll));
}

void GrowthLoop::run(const std::function<void(const GrowthStep&)>& visit) {
  const std::int64_t tokens = std::int64_t{Growth::kBlock} * steps_;
  GrowthStep step;
  goldenrule_gpu_attention_args& a = step.args;
  goldenrule_gpu_attention_defaults(&a, sizeof a);
  a.H = kHeads;
  a.HV = std::int64_t{kHeads} * Growth::kGroup;
  a.K = a.V = kDim;
  a.page_size = kPage;
  a.most_q = Growth::kBlock + Growth::kBlock;  // with the two heads of a group 64 rows
  a.q = tensor(q_, GOLDENRULE_GPU_BF16);
  a.o = tensor(o_, GOLDENRULE_GPU_BF16);
  a.lse = tensor(lse_, GOLDENRULE_GPU_F32);
  std::unique_ptr<Pool> pool;
  for (int i = 0; i < steps_; ++i) {
    if (i % Growth::kStepsOfPool == 0) {
      pool = std::make_unique<Pool>(tokens, i / Growth::kStepsOfPool % 2);
    }
    step.number = i;
    step.lengths = Growth::lengths(i);
    step.width = Growth::width(Growth::context(i));
    a.N = std::ssize(step.lengths);
    a.total = a.N * Growth::kBlock;
    a.table_width = step.width;
    const Lists lists(*pool, step);
    pool->give(a);
    lists.give(a);
    visit(step);
  }
}

double timed_call(const goldenrule_gpu_attention_args& args) {
  char message[256] = "";
  const auto begin = std::chrono::steady_clock::now();
  const goldenrule_gpu_status status = goldenrule_gpu_attention(&args, message, sizeof message);
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  if (status != GOLDENRULE_GPU_OK) {
    throw Error(ErrorKind::kArgument, "goldenrule_gpu_attention", "ok", message);
  }
  return taken.count();
}

GrowthReport measure_growth(int steps) {
  const std::uint64_t misses = goldenrule_gpu_dispatch_misses();
  const std::uint64_t hits = all_hits();
  std::vector<double> us;
  GrowthLoop(steps).run([&](const GrowthStep& step) {
    us.push_back(timed_call(step.args));
    gpu::check_cuda(cudaDeviceSynchronize(), "a step of the growing cache");
  });
  return {.times = summary_of(std::move(us)),
          .misses = goldenrule_gpu_dispatch_misses() - misses,
          .launches = all_hits() - hits};
}

}  // namespace goldenrule::bench

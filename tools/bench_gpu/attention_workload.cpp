// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_gpu/attention_workload.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

namespace goldenrule::bench {
namespace {

constexpr std::int64_t kNoise = 1 << 20;  // elements that are copied everywhere
constexpr std::int64_t kDistinctBytes = std::int64_t{512} << 20;

std::vector<std::uint16_t> noise() {
  std::mt19937 bits(7);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> values(kNoise);
  for (std::uint16_t& x : values) {
    x = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(bits)) >> 16);
  }
  return values;
}

}  // namespace

std::string AttentionRow::name() const {
  std::string text = "attention B" + std::to_string(block) + " " + std::to_string(requests) + "x";
  text += context % 1024 == 0 ? std::to_string(context / 1024) + "k" : std::to_string(context);
  if (page != 64) text += " P" + std::to_string(page);
  if (splits > 0) text += " c" + std::to_string(splits);
  return text;
}

std::int64_t AttentionRow::cache_bytes() const { return requests * context * kHeads * kDim * 2; }

std::int64_t AttentionRow::bytes_read() const {
  return 2 * cache_bytes() + requests * block * (kQueryHeads + 2 * kHeads) * kDim * 2;
}

std::int64_t AttentionRow::bytes_written() const {
  return requests * block * kQueryHeads * kDim * 2;
}

goldenrule_gpu_tensor AttentionWorkload::random(Set& set, std::int64_t elements, int number) const {
  set.memory.push_back(gpu::allocate_device(static_cast<std::size_t>(elements) * 2));
  auto* to = static_cast<std::uint16_t*>(set.memory.back().get());
  // Sets, and blocks of a tensor, begin at other places of the noise.
  std::int64_t from = (number * 7919) % (kNoise / 2);
  for (std::int64_t at = 0; at < elements;) {
    const std::int64_t count = std::min(elements - at, kNoise - from);
    gpu::check_cuda(
        cudaMemcpyAsync(to + at, static_cast<const std::uint16_t*>(noise_.get()) + from,
                        static_cast<std::size_t>(count) * 2, cudaMemcpyDeviceToDevice, nullptr),
        "noise");
    at += count;
    from = 0;
  }
  return {.data = to, .stride = {}, .dtype = GOLDENRULE_GPU_BF16, .dense = 1};
}

template <class T>
goldenrule_gpu_tensor AttentionWorkload::list(Set& set, const std::vector<T>& values) const {
  set.memory.push_back(gpu::allocate_device(values.size() * sizeof(T)));
  gpu::check_cuda(cudaMemcpy(set.memory.back().get(), values.data(), values.size() * sizeof(T),
                             cudaMemcpyHostToDevice),
                  "list");
  return {.data = set.memory.back().get(), .stride = {}, .dtype = GOLDENRULE_GPU_I32, .dense = 1};
}

AttentionWorkload::Set AttentionWorkload::make_set(int number) const {
  Set set;
  const std::int64_t N = row_.requests, width = (row_.context + row_.page - 1) / row_.page;
  const std::int64_t tokens = N * row_.block;
  goldenrule_gpu_attention_args& a = set.args;
  goldenrule_gpu_attention_defaults(&a, sizeof a);
  a.N = N;
  a.total = a.fresh = tokens;
  a.most_q = row_.block;
  a.H = AttentionRow::kHeads;
  a.HV = AttentionRow::kQueryHeads;
  a.K = a.V = AttentionRow::kDim;
  a.pages = N * width;
  a.page_size = row_.page;
  a.table_width = width;
  a.splits = row_.splits;
  a.scale = 1.0 / std::sqrt(static_cast<double>(a.K));
  const std::int64_t pool = a.pages * a.page_size * a.H * a.K;
  a.q = random(set, tokens * a.HV * a.K, 5 * number);
  a.k = random(set, tokens * a.H * a.K, 5 * number + 1);
  a.v = random(set, tokens * a.H * a.V, 5 * number + 2);
  a.k_cache = random(set, pool, 5 * number + 3);
  a.v_cache = random(set, pool, 5 * number + 4);
  a.o = random(set, tokens * a.HV * a.V, 0);
  std::vector<std::int32_t> pages(static_cast<std::size_t>(a.pages)), bounds;
  std::iota(pages.begin(), pages.end(), 0);
  std::ranges::shuffle(pages, std::mt19937(static_cast<unsigned>(number)));
  for (std::int64_t n = 0; n <= N; ++n) {
    bounds.push_back(static_cast<std::int32_t>(n * row_.block));
  }
  a.page_table = list(set, pages);
  a.cu_seqlens_q = a.cu_seqlens_k = list(set, bounds);
  a.kv_lens = list(set, std::vector<std::int32_t>(static_cast<std::size_t>(N),
                                                  static_cast<std::int32_t>(row_.context)));
  return set;
}

AttentionWorkload::AttentionWorkload(const AttentionRow& row) : row_(row) {
  const std::vector<std::uint16_t> values = noise();
  noise_ = gpu::allocate_device(values.size() * 2);
  gpu::check_cuda(
      cudaMemcpy(noise_.get(), values.data(), values.size() * 2, cudaMemcpyHostToDevice), "noise");
  const std::int64_t count = std::max<std::int64_t>(1, kDistinctBytes / (2 * row.cache_bytes()));
  for (int i = 0; i < std::min<std::int64_t>(count, 64); ++i) sets_.push_back(make_set(i));
  gpu::check_cuda(cudaDeviceSynchronize(), "noise");
}

void AttentionWorkload::launch(int set, cudaStream_t stream) const {
  goldenrule_gpu_attention_args args = sets_[static_cast<std::size_t>(set)].args;
  args.stream = stream;
  char message[256];
  if (goldenrule_gpu_attention(&args, message, sizeof message) != GOLDENRULE_GPU_OK) {
    throw Error(ErrorKind::kArgument, row_.name(), "ok", message);
  }
}

void AttentionWorkload::check_finite() const {
  gpu::check_cuda(cudaDeviceSynchronize(), "launch");
  std::vector<std::uint16_t> o(static_cast<std::size_t>(row_.bytes_written()) / 2);
  gpu::check_cuda(cudaMemcpy(o.data(), sets_[0].args.o.data, o.size() * 2, cudaMemcpyDeviceToHost),
                  "o");
  const auto finite = [](std::uint16_t x) { return (x & 0x7f80U) != 0x7f80U; };
  if (!std::ranges::all_of(o, finite)) {
    throw Error(ErrorKind::kArgument, row_.name(), "finite outputs", "NaN or infinity");
  }
}

}  // namespace goldenrule::bench

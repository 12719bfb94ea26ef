// SPDX-License-Identifier: Apache-2.0
//
// A server that decodes block by block: the context grows through every edge of a page, the batch
// grows and shrinks, the table is allocated anew with exactly the width that it needs and the pool
// moves. A kernel that was compiled for the width of its table (the fault that this test is for)
// would be compiled again at every page; here nothing is, and one entry of the table per size of
// the batch serves all.
//
// Every step is judged in closed form. Queries are 0, so all keys weigh the same, and the value of
// key t has 1 at column t mod V and 0 elsewhere: with n keys, column c of every o is the number of
// t < n with t mod V = c, over n, and lse is log n. The weights are 1 exactly and their sums are
// whole numbers below 2^24, so o is off by the two roundings of n's reciprocal and its own: less
// than 2^-8 + 2^-22 of it. Whatever nobody may see is NaN.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>

#include "gpu/attention/table.hpp"
#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

constexpr int kBlock = 16, kHeads = 2, kGroup = 2, kDim = 64, kPage = 32;
constexpr int kMostRequests = 33;
using Half = std::uint16_t;
constexpr Half kOne = 0x3f80, kNaN = 0x7fc0;  // bf16
float from_bf16(Half x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

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
  [[nodiscard]] std::int64_t pages() const { return pages_; }
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
struct Step {
  std::vector<std::int32_t> lengths;
  std::int64_t width = 0;
  gpu::DeviceMemory device_lengths, table, bounds;

  Step(const Pool& pool, std::int64_t requests, std::int64_t context) {
    std::vector<std::int32_t> begins{0};
    for (std::int64_t n = 0; n < requests; ++n) {
      lengths.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(0, context - 3 * n)));
      begins.push_back(static_cast<std::int32_t>(kBlock * (n + 1)));
    }
    width = std::max<std::int64_t>(1, (context + kPage - 1) / kPage);
    std::vector<std::int32_t> pages(static_cast<std::size_t>(requests * width), -1);
    for (std::int64_t n = 0; n < requests; ++n) {
      for (std::int64_t i = 0; i * kPage < lengths[static_cast<std::size_t>(n)]; ++i) {
        pages[static_cast<std::size_t>(n * width + i)] = static_cast<std::int32_t>(pool.page(i));
      }
    }
    device_lengths = upload(lengths);
    table = upload(pages);
    bounds = upload(begins);
  }
  void give(goldenrule_gpu_attention_args& a) const {
    a.N = std::ssize(lengths);
    a.total = a.N * kBlock;
    a.table_width = width;
    a.kv_lens = tensor(device_lengths, GOLDENRULE_GPU_I32);
    a.page_table = tensor(table, GOLDENRULE_GPU_I32);
    a.cu_seqlens_q = tensor(bounds, GOLDENRULE_GPU_I32);
  }
};

/// "" or the first element that is not what the lengths say.
std::string wrong_element(const Step& step, const std::vector<Half>& o,
                          const std::vector<float>& lse) {
  constexpr std::size_t kRows = kBlock * kHeads * kGroup;  // of a request
  for (std::size_t n = 0; n < step.lengths.size(); ++n) {
    const int keys = step.lengths[n];
    for (std::size_t row = n * kRows; row < (n + 1) * kRows; ++row) {
      const double log_keys = std::log(static_cast<double>(keys));  // -inf for none
      const auto found = static_cast<double>(lse[row]);
      if (!(found == log_keys || std::abs(found - log_keys) <= 0x1p-22 * (log_keys + 1))) {
        return "lse of row " + std::to_string(row) + ": " + std::to_string(lse[row]);
      }
      for (int c = 0; c < kDim; ++c) {
        const int count = keys / kDim + (c < keys % kDim ? 1 : 0);
        const double expected = keys == 0 ? 0.0 : static_cast<double>(count) / keys;
        const double actual =
            static_cast<double>(from_bf16(o[row * kDim + static_cast<std::size_t>(c)]));
        if (!(std::abs(actual - expected) <= expected * (0x1p-8 + 0x1p-22))) {
          return "o of row " + std::to_string(row) + ", column " + std::to_string(c) +
                 ": expected " + std::to_string(expected) + ", actual " + std::to_string(actual);
        }
      }
    }
  }
  return "";
}

/// A table of kernels that were compiled for what a call holds: how often it has none.
class CompiledFor {
 public:
  void launch(std::int64_t value) { misses_ += known_.insert(value).second ? 1 : 0; }
  [[nodiscard]] int misses() const { return misses_; }

 private:
  std::set<std::int64_t> known_;
  int misses_ = 0;
};

/// What the steps asked for, and how long the host took for each.
struct Growth {
  std::vector<double> us;
  std::set<std::string> entries;  ///< predicted from the number of requests alone
  CompiledFor by_width, by_requests;
};

std::string predicted_entry(std::int64_t requests) {
  return "attention_bf16_d64_r64_c" +
         std::to_string(gpu::attention::default_splits(requests, kHeads));
}

Growth grow(int steps) {
  const std::int64_t tokens = std::int64_t{kBlock} * steps;
  const gpu::DeviceMemory q =
      upload(std::vector<Half>(std::size_t{kMostRequests} * kBlock * kHeads * kGroup * kDim));
  const std::size_t rows = std::size_t{kMostRequests} * kBlock * kHeads * kGroup;
  std::vector<Half> o(rows * kDim, kNaN);
  std::vector<float> lse(rows);
  const gpu::DeviceMemory device_o = upload(o), device_lse = upload(lse);
  goldenrule_gpu_attention_args a;
  goldenrule_gpu_attention_defaults(&a, sizeof a);
  a.H = kHeads;
  a.HV = kHeads * kGroup;
  a.K = a.V = kDim;
  a.page_size = kPage;
  a.most_q = kBlock + kBlock;  // with the two heads of a group 64 rows
  a.q = tensor(q, GOLDENRULE_GPU_BF16);
  a.o = tensor(device_o, GOLDENRULE_GPU_BF16);
  a.lse = tensor(device_lse, GOLDENRULE_GPU_F32);
  Growth growth;
  std::unique_ptr<Pool> pool;
  for (int i = 0; i < steps; ++i) {
    if (i % 64 == 0) pool = std::make_unique<Pool>(tokens, i / 64 % 2);
    const std::int64_t phase = i % (2 * kMostRequests - 2);
    const std::int64_t requests = 1 + std::min<std::int64_t>(phase, 2 * kMostRequests - 2 - phase);
    const Step step(*pool, requests, std::int64_t{kBlock} * i + 1);
    pool->give(a);
    step.give(a);
    char message[256] = "";
    const auto begin = std::chrono::steady_clock::now();
    const goldenrule_gpu_status status = goldenrule_gpu_attention(&a, message, sizeof message);
    growth.us.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
    REQUIRE_MESSAGE(status == GOLDENRULE_GPU_OK, message);
    const auto taken = static_cast<std::size_t>(a.total) * kHeads * kGroup;
    o.assign(taken * kDim, kNaN);
    lse.assign(taken, 0.F);
    gpu::check_cuda(
        cudaMemcpy(o.data(), device_o.get(), o.size() * sizeof o[0], cudaMemcpyDeviceToHost), "o");
    gpu::check_cuda(cudaMemcpy(lse.data(), device_lse.get(), lse.size() * sizeof lse[0],
                               cudaMemcpyDeviceToHost),
                    "lse");
    REQUIRE_MESSAGE(wrong_element(step, o, lse) == "", "step " << i);
    growth.entries.insert(predicted_entry(requests));
    growth.by_width.launch(step.width);
    growth.by_requests.launch(a.total);
  }
  return growth;
}

void check_growth(int steps) {
  REQUIRE_GPU();
  REQUIRE(goldenrule_gpu_initialize(nullptr, 0) == GOLDENRULE_GPU_OK);
  const std::uint64_t misses = goldenrule_gpu_dispatch_misses();
  const std::map<std::string, std::uint64_t> before = hits_by_name();
  Growth growth = grow(steps);
  CHECK(goldenrule_gpu_dispatch_misses() == misses);
  std::uint64_t launches = 0;
  for (const auto& [name, hits] : hits_by_name()) {
    launches += hits - before.at(name);
    CHECK_MESSAGE((hits != before.at(name)) == growth.entries.contains(name), name);
  }
  CHECK(launches == static_cast<std::uint64_t>(steps));
  // The negative control: tables keyed by what the loop changes miss again and again.
  CHECK(growth.by_width.misses() >= steps / 4);
  CHECK(growth.by_requests.misses() == std::min(steps, kMostRequests));
  std::ranges::sort(growth.us);
  const auto count = growth.us.size();
  std::printf(
      "%d steps, %d widths of the table: host time of a call: median %.2f us, 99%% %.2f us, "
      "max %.2f us\n",
      steps, growth.by_width.misses(), growth.us[count / 2], growth.us[count * 99 / 100],
      growth.us.back());
}

#ifdef GOLDENRULE_GPU_LEAST_SPLIT
TEST_CASE("attention: a growing cache is never compiled for") { check_growth(40); }
#else
TEST_CASE("attention: 4,096 steps of a growing cache are never compiled for") {
  check_growth(4096);
}
#endif

}  // namespace
}  // namespace goldenrule::test

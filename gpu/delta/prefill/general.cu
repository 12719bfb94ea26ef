// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/prefill/general.cuh"

#include "gpu/delta/prefill/variants.hpp"
#include "gpu/launch/entry_name.hpp"

namespace goldenrule::gpu::prefill {
namespace {

constexpr int kPaddedK[] = {64, 128, 256};
constexpr int kKernels = 3;

/// Whatever the states are: the tile is fp32 and as for layout vk.
constexpr recurrent::Specialization specialization(int padded_k) {
  return {.format = {},
          .channel_gate = true,
          .exact = false,
          .padded_k = padded_k,
          .tokens_per_round = 8,
          .shape = {.rows = padded_k > 128 ? 2 : 4, .warps = 4, .min_blocks = 2}};
}
template <int I>
using ConfigOf = recurrent::Config<specialization(kPaddedK[I])>;

struct Entry {
  void (*kernel)(Params) = nullptr;
  int rows = 0, threads = 0, shared_bytes = 0;  // value rows of a block
  EntryName name;
};

template <int I>
constexpr Entry entry() {
  using C = ConfigOf<I>;
  EntryName name;
  name << "prefill_general_k" << kPaddedK[I] << "_r" << C::kBlockRows << "x" << C::kWarps;
  return {.kernel = &general_kernel<C>,
          .rows = C::kBlockRows,
          .threads = C::kThreads,
          .shared_bytes = static_cast<int>(sizeof(TokenStorage<C>)),
          .name = name};
}
constexpr Entry kEntries[kKernels] = {entry<0>(), entry<1>(), entry<2>()};

bool serves(const Params& /*p*/, const Device& /*device*/) { return true; }

Kernel kernel(int i) {
  const Entry& entry = kEntries[i];
  return {.function = reinterpret_cast<const void*>(entry.kernel),
          .threads = entry.threads,
          .shared_bytes = entry.shared_bytes,
          .name = entry.name.text};
}

Problem launch(Launch& call) {
  Params& p = call.params;
  int i = 0;
  while (kPaddedK[i] < p.K) ++i;
  p.tiles = (p.V + kEntries[i].rows - 1) / kEntries[i].rows;
  p.by_tiles = Divisor::of(p.tiles);
  return call.kernel(i, std::int64_t{p.N} * p.HV * p.tiles, &p, call.dependent);
}

}  // namespace

const Variant kGeneral = {.name = "general",
                          .contracts = {},
                          .contracts_of_segments = {},
                          .serves = serves,
                          .may_cut = nullptr,
                          .workspace = nullptr,
                          .kernels = kKernels,
                          .kernel = kernel,
                          .launch = launch};

}  // namespace goldenrule::gpu::prefill

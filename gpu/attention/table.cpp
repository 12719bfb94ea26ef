// SPDX-License-Identifier: Apache-2.0
#include "gpu/attention/table.hpp"

#include <algorithm>
#include <array>

#include "gpu/launch/tuning.hpp"

namespace goldenrule::gpu::attention {
namespace {

constexpr int kPlain = kTableSize - 1;

bool has_clusters(const Device& device) { return device.capability == 90; }

/// Kernels and the size of their clusters; the plain one has none.
struct Entry {
  int shape = -1, splits = 0;
  EntryName name;
};

EntryName name_of(const Shape& shape, int splits) {
  EntryName name;
  name << (shape.type == Element::kBF16 ? "attention_bf16_d" : "attention_f16_d");
  if (shape.dim >= 100) name << shape.dim / 100;
  return name << shape.dim % 100 << "_r" << shape.rows << "_c" << splits;
}

const Code& code_of(const Entry& entry) {
  if (entry.shape < 0) return kPlainCode;
  const Shape& shape = kTunedShapes[entry.shape];
  return entry.splits == kSplitsAlone ? shape.alone : shape.shared;
}

const Entry& entry_at(int i) {
  static const std::array<Entry, kTableSize> entries = [] {
    std::array<Entry, kTableSize> all;
    std::size_t count = 0;
    for (int shape = 0; shape < kShapes; ++shape) {
      for (const int splits : kSplits) {
        const Entry entry{shape, splits, name_of(kTunedShapes[shape], splits)};
        if (code_of(entry).kernel != nullptr) all.at(count++) = entry;
      }
    }
    all.at(kPlain).name << "attention_plain";
    return all;
  }();
  return entries[static_cast<std::size_t>(i)];
}

Kernel kernel_at(int i) {
  const Entry& entry = entry_at(i);
  const Code& code = code_of(entry);
  return {.function = reinterpret_cast<const void*>(code.kernel),
          .threads = code.threads,
          .shared_bytes = code.shared_bytes,
          .name = entry.name.text,
          .cluster = static_cast<unsigned>(entry.splits),
          .runs_on = i == kPlain ? nullptr : has_clusters};
}

/// Whether whole units of 16 bytes are rows of this view; `bytes`: of its strides.
bool by_units(const void* data, std::initializer_list<std::int64_t> bytes) {
  return data == nullptr || (reinterpret_cast<std::uintptr_t>(data) % 16 == 0 &&
                             std::ranges::all_of(bytes, [](auto x) { return x % 16 == 0; }));
}
bool by_units(const TokenView& x) { return by_units(x.data, {x.token, x.head}); }
bool by_units(const PageView& x) { return by_units(x.data, {x.page, x.slot, x.head}); }

bool suits_tensor_cores(const Params& p) {
  return p.K % 8 == 0 && p.V % 8 == 0 && by_units(p.q) && by_units(p.k) && by_units(p.v) &&
         by_units(p.k_cache) && by_units(p.v_cache);
}

/// The first shape of this type that is wide enough and has enough rows, or the largest.
int shape_for(const Params& p, std::int64_t rows) {
  int found = -1;
  for (int i = 0; i < kShapes; ++i) {
    const Shape& shape = kTunedShapes[i];
    if (shape.type != p.type || shape.dim < std::max(p.K, p.V)) continue;
    if (found >= 0 && (kTunedShapes[found].rows >= rows || shape.dim > kTunedShapes[found].dim)) {
      continue;
    }
    found = i;
  }
  return found;
}

std::int64_t tiles_of(const Shape& shape, std::int64_t rows) {
  return (rows + shape.rows - 1) / shape.rows;
}

/// With as many blocks as wanted, or the most below that the shape has on this device.
int loaded_entry(int shape, int wanted, int device) {
  int found = kPlain;
  for (int i = 0; i < kPlain; ++i) {
    const Entry& entry = entry_at(i);
    if (entry.shape == shape && entry.splits <= wanted && kernels().is_loaded(i, device)) found = i;
  }
  return found;
}

}  // namespace

int default_splits(std::int64_t N, std::int64_t H) {
  constexpr Tuning::Attention kClusters = kH200.attention;
  if (N * H <= kClusters.alone) return kSplitsAlone;
  int splits = 1;
  while (splits < kClusters.most_splits && N * H * 2 * splits <= kClusters.blocks) splits *= 2;
  return splits;
}

Choice choose(Params& p, std::int64_t most_q, std::int64_t splits, const Device& device) {
  const std::int64_t rows = most_q * p.group;
  const int wanted = splits > 0 ? static_cast<int>(splits) : default_splits(p.N, p.H);
  const int shape = suits_tensor_cores(p) ? shape_for(p, rows) : -1;
  const int entry = shape < 0 ? kPlain : loaded_entry(shape, wanted, device.id);
  const bool plain = entry == kPlain;
  p.splits = plain ? 1 : entry_at(entry).splits;
  p.by_splits = Divisor::of(p.splits);
  p.grid_heads = plain ? p.HV : p.H;
  const std::int64_t per_tile = std::int64_t{p.N} * p.grid_heads * p.splits;
  const std::int64_t tiles = plain ? most_q : tiles_of(kTunedShapes[shape], rows);
  // Work beyond the largest grid is taken in turns.
  constexpr std::int64_t kMostBlocks = 0x7fffffff;
  p.tiles = static_cast<std::int32_t>(std::clamp<std::int64_t>(tiles, 1, kMostBlocks / per_tile));
  p.by_tiles = Divisor::of(p.tiles);
  p.by_heads = Divisor::of(p.grid_heads);
  return {.entry = entry, .blocks = per_tile * p.tiles};
}

KernelTable& kernels() {
  static KernelTable table(kTableSize, kernel_at);
  return table;
}

KernelFunction entry_function(int i) { return code_of(entry_at(i)).kernel; }

}  // namespace goldenrule::gpu::attention

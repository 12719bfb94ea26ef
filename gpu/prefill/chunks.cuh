// SPDX-License-Identifier: Apache-2.0
//
// Which chunks a block works through, in the order in which all of its roles pass them. An item is
// one value head of one sequence, C::kScans tiles of its values. Items are in the order of their
// sequences, the longest first, and blocks take them in turn, forwards and backwards: who has taken
// one of the longest takes one of the shortest next. Chunks end at multiples of kTokens tokens of
// their sequence and at its checkpoints, so they may be short anywhere; what a sequence's chunks
// are depends on its own length and checkpoints.
#pragma once

#include "gpu/prefill/checkpoints.cuh"
#include "gpu/prefill/sequences.cuh"
#include "gpu/prefill/tile.cuh"

namespace goldenrule::gpu::prefill {

/// The place of the first record of sequence n in the workspace. Its chunks, ceil(count /
/// kTokens) and one more for each checkpoint, end before the first record of the next sequence.
template <int kTokens = kChunk>
__device__ __forceinline__ int first_record(const Params& p, int n) {
  const int tokens = tokens_of(p, n).first;
  const int rows =
      p.checkpoints.data == nullptr
          ? 0
          : static_cast<int>(clamped(load_index(p.cu_checkpoints, p.wide_cu_checkpoints, n), 0,
                                     p.checkpoint_rows));
  return tokens / kTokens + n + rows;
}
/// How many records there are room for.
template <int kTokens = kChunk>
GOLDENRULE_GPU_BOTH int64_t record_count(int64_t total, int64_t sequences,
                                         int64_t checkpoint_rows) {
  return total / kTokens + sequences + checkpoint_rows;
}

/// One value head of one sequence, values from first_value on.
struct Item {
  int n, hv, h;
  int first_value;
  Span tokens;    ///< packed; none if the sequence is padded
  int64_t start;  ///< slot of the start state; kNoSlot: padded
};

/// The item that this block takes in round `round`.
__device__ __forceinline__ int item_of_round(int round) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

template <class C>
__device__ __forceinline__ Item item_of(const Params& p, int item) {
  const int head = p.by_tiles.quotient(item);
  const int place = p.by_heads.quotient(head);
  const int hv = head - place * p.HV;
  const int n = p.order != nullptr ? p.order[place] : place;
  return {.n = n,
          .hv = hv,
          .h = qk_head(p, hv),
          .first_value = (item - head * p.tiles) * C::kBlockValues,
          .tokens = tokens_of(p, n),
          .start = start_slot(p, n)};
}

/// Walks the chunks of one sequence: start(), then the chunk is begin() to end() - 1, then pass().
template <int kTokens>
class Chunks {
 public:
  __device__ __forceinline__ Chunks(const Params& p, const Item& item)
      : walk_(p, item.n, item.tokens.count),
        count_(item.start == kNoSlot ? 0 : item.tokens.count) {}
  [[nodiscard]] __device__ __forceinline__ bool done() const { return begin_ >= count_; }
  /// Tokens of this chunk, counted from the sequence's first.
  [[nodiscard]] __device__ __forceinline__ int begin() const { return begin_; }
  [[nodiscard]] __device__ __forceinline__ int end() const { return end_; }
  __device__ __forceinline__ void start() {
    while (walk_.after() <= begin_) walk_.advance();
    const int aligned = (begin_ / kTokens + 1) * kTokens;
    end_ = min(min(aligned, walk_.after()), count_);
  }
  __device__ __forceinline__ void pass() { begin_ = end_; }
  [[nodiscard]] __device__ __forceinline__ bool has_checkpoint() const {
    return walk_.after() == begin_;
  }
  /// Before start(): the next checkpoint row for the state after begin() tokens; -1: no more.
  __device__ __forceinline__ int take_checkpoint() {
    if (walk_.after() != begin_) return -1;
    const int row = walk_.row();
    walk_.advance();
    return row;
  }
  /// Passes `n` chunks, as far as there are so many.
  __device__ __forceinline__ void skip(int n) {
    for (; n > 0 && !done(); --n) {
      start();
      pass();
    }
  }

 private:
  CheckpointWalk walk_;
  int count_;
  int begin_ = 0, end_ = 0;
};

/// The same where there are no checkpoints: next to nothing to compute between two chunks.
template <int kTokens>
class PlainChunks {
 public:
  __device__ __forceinline__ PlainChunks(const Params& /*p*/, const Item& item)
      : count_(item.start == kNoSlot ? 0 : item.tokens.count) {}
  [[nodiscard]] __device__ __forceinline__ bool done() const { return begin_ >= count_; }
  [[nodiscard]] __device__ __forceinline__ int begin() const { return begin_; }
  [[nodiscard]] __device__ __forceinline__ int end() const { return min(begin_ + kTokens, count_); }
  __device__ __forceinline__ void start() {}
  __device__ __forceinline__ void pass() { begin_ += kTokens; }
  __device__ __forceinline__ void skip(int n) { begin_ += n * kTokens; }
  [[nodiscard]] __device__ __forceinline__ bool has_checkpoint() const { return false; }
  __device__ __forceinline__ int take_checkpoint() { return -1; }

 private:
  int count_;
  int begin_ = 0;
};
template <class C>
using ChunksOf = std::conditional_t<C::kCheckpoints, Chunks<C::kTokens>, PlainChunks<C::kTokens>>;

/// A chunk of some item, for those who need to know no more of it.
struct ChunkPlace {
  int first, count;  ///< packed token, tokens
  int hv, h, first_value;
  int record;
};

/// Walks the chunks of all items of this block.
template <class C>
class ChunkCursor {
 public:
  __device__ __forceinline__ explicit ChunkCursor(const Params& p)
      : p_(p),
        item_(item_of<C>(p, min(item_of_round(0), p.items - 1))),
        chunks_(p, item_),
        record_(first_record<C::kTokens>(p, item_.n)) {
    find();
  }
  [[nodiscard]] __device__ __forceinline__ bool valid() const {
    return item_of_round(round_) < p_.items;
  }
  [[nodiscard]] __device__ __forceinline__ ChunkPlace place() const {
    return {.first = item_.tokens.first + chunks_.begin(),
            .count = chunks_.end() - chunks_.begin(),
            .hv = item_.hv,
            .h = item_.h,
            .first_value = item_.first_value,
            .record = record_};
  }
  __device__ __forceinline__ void advance() {
    chunks_.pass();
    ++record_;
    find();
  }

 private:
  __device__ __forceinline__ void find() {
    while (chunks_.done()) {
      ++round_;
      if (!valid()) return;
      item_ = item_of<C>(p_, item_of_round(round_));
      chunks_ = ChunksOf<C>(p_, item_);
      record_ = first_record<C::kTokens>(p_, item_.n);
    }
    chunks_.start();
  }

  const Params& p_;
  int round_ = 0;
  Item item_;
  ChunksOf<C> chunks_;
  int record_;
};

/// The chunk of record `record`, counted over the records of all sequences; none: count = 0.
template <bool kCheckpoints, int kTokens = kChunk>
__device__ __forceinline__ ChunkPlace place_of_record(const Params& p, int record, int hv) {
  // The last sequence whose records begin at or before this one.
  int low = 0, high = p.N;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_record<kTokens>(p, middle) <= record ? low : high) = middle;
  }
  ChunkPlace place{
      .first = 0, .count = 0, .hv = hv, .h = qk_head(p, hv), .first_value = 0, .record = record};
  const Item item{low, hv, place.h, 0, tokens_of(p, low), start_slot(p, low)};
  const int skip = record - first_record<kTokens>(p, low);
  if (skip < 0) return place;  // before the first sequence
  std::conditional_t<kCheckpoints, Chunks<kTokens>, PlainChunks<kTokens>> chunks(p, item);
  chunks.skip(skip);
  if (!chunks.done()) {
    chunks.start();
    place.first = item.tokens.first + chunks.begin();
    place.count = chunks.end() - chunks.begin();
  }
  return place;
}

}  // namespace goldenrule::gpu::prefill

// SPDX-License-Identifier: Apache-2.0
//
// Which chunks a block works through, in the order in which all of its roles pass them. An item is
// one value head of one sequence or segment, C::kScans tiles of its values; of a segment it begins
// with the maps that are folded onto the start state, in pieces. Items are in the order of their
// sequences, segments first, then the longest first, and blocks take them in turn, forwards and
// backwards: who has taken one of the longest takes one of the shortest next. Chunks end at
// multiples of kTokens tokens of their sequence and at its checkpoints, so they may be short
// anywhere; what a sequence's chunks are depends on its own length and checkpoints.
#pragma once

#include "gpu/delta/prefill/checkpoints.cuh"
#include "gpu/delta/prefill/sm90/segments.cuh"
#include "gpu/delta/prefill/tile.cuh"

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

/// One value head of one sequence or segment, values from first_value on.
struct Item {
  int n, hv, h;
  int first_value;
  Span tokens;          ///< packed
  int64_t start;        ///< slot of the start state; kNoSlot: padded
  int place = -1;       ///< of the segment in the list; none: a whole sequence
  int segment = 0;      ///< of the sequence
  bool is_last = true;  ///< its end is that of the sequence
  bool is_map = false;  ///< the values are rows of M
};

/// The item that this block takes in round `round`.
__device__ __forceinline__ int item_of_round(int round) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

/// Segments that a walk passes.
template <class C>
__device__ __forceinline__ int segment_count(const Params& p) {
  return C::kFolds || C::kMaps ? p.segments->count : 0;
}
/// Items that there are: of segments, and but for maps of sequences.
template <class C>
__device__ __forceinline__ int item_count(const Params& p) {
  if constexpr (!C::kFolds && !C::kMaps) return p.items;
  return min((segment_count<C>(p) + (C::kMaps ? 0 : p.N)) * p.HV * p.tiles, p.items);
}

/// Limits an item to segment `place` of the list.
template <class C>
__device__ __forceinline__ void limit_to_segment(const Params& p, int place, Item& item) {
  const SegmentPlace at = segment_list(p)[place];
  const int tokens = segment_tokens(p.split, item.tokens.count);
  const int begin = at.segment * tokens;
  item.place = place;
  item.segment = at.segment;
  item.is_last = at.segment == at.segments - 1;
  item.tokens.first += begin;
  item.tokens.count = min(tokens, item.tokens.count - begin);
  if constexpr (C::kMaps) {
    item.is_map = item.first_value == p.V;
    if (item.is_map) item.first_value = 0;
    if (item.is_last || (item.is_map && at.segment == 0)) item.tokens.count = 0;
  }
}

template <class C>
__device__ __forceinline__ Item item_of(const Params& p, int item) {
  const int head = p.by_tiles.quotient(item);
  const int at = p.by_heads.quotient(head);
  const int hv = head - at * p.HV;
  const int place = at - segment_count<C>(p);
  const int n = place < 0 ? segment_list(p)[at].n : p.order != nullptr ? p.order[place] : place;
  Item x{.n = n,
         .hv = hv,
         .h = qk_head(p, hv),
         .first_value = (item - head * p.tiles) * C::kBlockValues,
         .tokens = tokens_of(p, n),
         .start = start_slot(p, n)};
  if (place < 0) {
    limit_to_segment<C>(p, at, x);
  } else if (C::kFolds && segments_of(p.split, x.tokens.count) > 1) {
    x.tokens.count = 0;  // its segments are items
    x.start = kNoSlot;
  }
  return x;
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

/// A chunk of some item, for those who need to know no more of it, or a piece of a map.
struct ChunkPlace {
  int first, count;  ///< packed token, tokens
  int hv, h, first_value;
  int record;
  const char* piece = nullptr;  ///< of kTokens rows of M; none: a chunk
};

/// Walks the chunks of all items of this block.
template <class C>
class ChunkCursor {
 public:
  __device__ __forceinline__ explicit ChunkCursor(const Params& p)
      : p_(p),
        item_(item_of<C>(p, max(min(item_of_round(0), item_count<C>(p) - 1), 0))),
        chunks_(p, item_) {
    begin_item();
    find();
  }
  [[nodiscard]] __device__ __forceinline__ bool valid() const {
    return item_of_round(round_) < item_count<C>(p_);
  }
  [[nodiscard]] __device__ __forceinline__ ChunkPlace place() const {
    return {.first = item_.tokens.first + chunks_.begin(),
            .count = chunks_.end() - chunks_.begin(),
            .hv = item_.hv,
            .h = item_.h,
            .first_value = item_.first_value,
            .record = record_,
            .piece = piece()};
  }
  __device__ __forceinline__ void advance() {
    if (pieces_ > 0) {
      --pieces_;
    } else {
      chunks_.pass();
      ++record_;
    }
    find();
  }

 private:
  __device__ __forceinline__ void find() {
    if (pieces_ > 0) return;
    while (chunks_.done()) {
      ++round_;
      if (!valid()) return;
      item_ = item_of<C>(p_, item_of_round(round_));
      chunks_ = ChunksOf<C>(p_, item_);
      begin_item();
    }
    chunks_.start();
  }
  __device__ __forceinline__ void begin_item() {
    record_ = first_record<C::kTokens>(p_, item_.n);
    if constexpr (C::kFolds || C::kMaps) {
      const int tokens = segment_tokens(p_.split, tokens_of(p_, item_.n).count);
      record_ += item_.segment * (tokens / C::kTokens);
    }
    if constexpr (C::kFolds) {
      pieces_ = item_.start == kNoSlot ? 0 : max(item_.segment - 1, 0) * kPieces<C::kTokens>;
    }
  }
  /// The maps of segments 1, 2, .. in front of this one, one behind the other.
  [[nodiscard]] __device__ __forceinline__ const char* piece() const {
    if (pieces_ == 0) return nullptr;
    const int index = (item_.segment - 1) * kPieces<C::kTokens> - pieces_;
    const int map = item_.place - item_.segment + 1 + index / kPieces<C::kTokens>;
    return map_of(p_, map, item_.hv) +
           index % kPieces<C::kTokens> * (2 * kPieceTermBytes<C::kTokens>);
  }

  const Params& p_;
  int round_ = 0;
  Item item_;
  ChunksOf<C> chunks_;
  int record_ = 0;
  int pieces_ = 0;  ///< that are to come before the next chunk
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

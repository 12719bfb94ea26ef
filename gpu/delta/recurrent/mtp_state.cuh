// SPDX-License-Identifier: Apache-2.0
//
// The state S_0 of a warp in shared memory, as it lies in global memory but for the order of its
// 16-byte chunks: within each 128 bytes chunk c lies at c ^ swizzle, chosen so that the lanes which
// shared memory serves together, two or four g by all t, read different banks:
//
//   layout vk: lanes t read along a row; rows of two g lie a multiple of 128 bytes apart
//   layout kv: lanes g read along a channel; channels of two t lie a multiple of 128 bytes apart
//
// Copies are whole lines of a warp; they stay until the warp ends, since every kept state is made
// of S_0.
#pragma once

#include "gpu/common/vectors.cuh"
#include "gpu/delta/recurrent/row_slots.cuh"
#include "gpu/delta/shared/mtp_operands.cuh"
#include "gpu/ptx/async_copy.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu::recurrent {

template <class C>
class alignas(128) WarpState {
 public:
  using State = typename C::State;
  /// Requests the rows from `row0` on of the head at `head`.
  __device__ __forceinline__ void request(const State* head, int outer, int row0, int lane) {
    each_chunk(first_of(head, row0), outer, lane,
               [](char* here, const State* there) { ptx::copy_async_16(here, there); });
    ptx::commit_copies();
  }

  /// Copies S_0 as it is.
  __device__ __forceinline__ void copy_to(State* head, int outer, int row0, int lane) {
    each_chunk(first_of(head, row0), outer, lane, [](const char* here, State* there) {
      ptx::store_streaming_16(there, *reinterpret_cast<const uint4*>(here));
    });
  }

  /// Those of kStepsTogether steps from `step` on, a multiple of it.
  __device__ __forceinline__ void read(LaneSteps<C>& s, int step, Fragment lane) const {
    const int channel = first_channel<C>(0, lane.t);
    const int line = (C::kVK ? C::kLaneRows * lane.g : channel) * kRowBytes;
    const int within = (C::kVK ? channel : C::kLaneRows * lane.g) * kSize ^
                       swizzle(C::kVK ? C::kLaneRows * lane.g : channel);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      // Known to the compiler, and so are the bits that it adds to `within`.
      const int more = C::kVK ? i * kRowBytes + first_channel<C>(step, 0) * kSize
                              : (first_channel<C>(step, 0) + i) * kRowBytes;
      const char* from = bytes_ + line + more / kLine * kLine + (within ^ more % kLine);
      const auto x = *reinterpret_cast<const Vector<State, kVector>*>(from);
#pragma unroll
      for (int j = 0; j < kVector; ++j) element(s, i, j) = x.x[j];
    }
  }

  /// Stores such a part where the state goes; `row0`: the first row of the warp.
  __device__ static __forceinline__ void store(const LaneSteps<C>& s, const Targets<State>& to,
                                               int row0, int step, Fragment lane) {
    const int row = row0 + C::kLaneRows * lane.g;
    const int channel = first_channel<C>(0, lane.t);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (to.head[i] == nullptr) continue;
      const int outer = ptx::hidden(to.outer[i]);
      State* head = to.head[i] + (C::kVK ? row * C::kPaddedK + channel
                                         : static_cast<int64_t>(channel) * outer + row);
      store(s, head, outer, step);
    }
  }

  /// Stores such a part; `head` is that of the lane's first row and channel.
  __device__ static __forceinline__ void store(const LaneSteps<C>& s, State* head, int outer,
                                               int step) {
    const int more = first_channel<C>(step, 0);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      Vector<State, kVector> x;
#pragma unroll
      for (int j = 0; j < kVector; ++j) x.x[j] = element(s, i, j);
      if constexpr (C::kVK) {
        x.store_streaming(head + i * C::kPaddedK + more);
      } else {
        x.store_streaming(head + static_cast<int64_t>(more + i) * outer);
      }
    }
  }

 private:
  static constexpr int kSize = static_cast<int>(sizeof(State));
  static constexpr int kChunk = 16;
  static constexpr int kLine = 128;  // bytes over which the swizzle permutes
  static constexpr int kRowBytes = (C::kVK ? C::kPaddedK : C::kWarpRows) * kSize;
  static constexpr int kBytes = C::kWarpRows * C::kPaddedK * kSize;
  /// Neighbours in memory, the channels or the rows of a lane, and how many such there are.
  static constexpr int kVector = C::kVK ? 4 * C::kStepsTogether : C::kLaneRows;
  static constexpr int kVectors = C::kVK ? C::kLaneRows : 4;

  /// Neighbour j of vector i.
  template <class Steps>
  __device__ static __forceinline__ auto& element(Steps& s, int i, int j) {
    return s[C::kVK ? j / 4 : 0][C::kVK ? i : j][C::kVK ? j % 4 : i];
  }

  /// What is added, bit by bit, to the place of row `outer` (a value row or a key channel).
  __device__ static constexpr int swizzle(int outer) {
    const int chunk = C::kVK ? outer / C::kLaneRows * (kVector * kSize / 4) : 2 * (outer / 4);
    return chunk * kChunk % kLine;
  }

  template <class Element>
  __device__ static __forceinline__ Element* first_of(Element* head, int row0) {
    return head + static_cast<int64_t>(row0) * (C::kVK ? C::kPaddedK : 1);
  }

  /// Calls f(place here, place there) for the chunks of a lane; a warp takes 512 bytes at a time.
  /// Neither the rows of a lane nor those of a round carry into the other's bits of the swizzle.
  template <class Element, class F>
  __device__ __forceinline__ void each_chunk(Element* first, int outer, int lane, F&& f) {
    constexpr int kPerRow = kRowBytes / kChunk;
    constexpr int kRowsAtOnce = kWarp / kPerRow;
    const int64_t stride = C::kVK ? C::kPaddedK : outer;
    const int row = lane / kPerRow;
    Element* there = first + row * stride + lane % kPerRow * (kChunk / kSize);
    const int here = lane * kChunk ^ swizzle(row);
#pragma unroll
    for (int i = 0; i < kBytes / (kWarp * kChunk); ++i) {
      const int first_row = i * kRowsAtOnce;
      f(bytes_ + i * kWarp * kChunk + (here ^ swizzle(first_row)), there + first_row * stride);
    }
  }

  char bytes_[kBytes];
};

}  // namespace goldenrule::gpu::recurrent

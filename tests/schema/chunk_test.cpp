// SPDX-License-Identifier: Apache-2.0
//
// The parts below the file: chunk extents, the copy between chunks and arrays, the filters.
#include <algorithm>
#include <array>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/hdf5/chunk_grid.hpp"
#include "fixtures/hdf5/dataset.hpp"
#include "tests/schema/support.hpp"

namespace goldenrule::hdf5 {
namespace {

using call::Shape;

TEST_CASE("chunks have at most 512 KiB and split one axis in equal parts") {
  CHECK(choose_chunk({}, 8).empty());
  CHECK(choose_chunk({8191}, 8).empty());         // 65528 bytes
  CHECK(choose_chunk({8192}, 8) == Shape{8192});  // 64 KiB
  CHECK(choose_chunk({65537}, 8) == Shape{32769});
  CHECK(choose_chunk({4096, 32, 128}, 8) == Shape{16, 32, 128});
  CHECK(choose_chunk({3, 5, 1000000}, 4) == Shape{1, 1, 125000});
  CHECK(choose_chunk({100, 1, 70000}, 4) == Shape{1, 1, 70000});
  CHECK(choose_chunk({0, 1 << 20}, 8).empty());
}

// Every element of the array is in one chunk, at the place that row-major order gives it.
TEST_CASE("chunks cover the array once, also where they stick out of it") {
  const std::vector<std::pair<Shape, Shape>> cases{{{7}, {3}},
                                                   {{7}, {9}},
                                                   {{4, 6}, {4, 6}},
                                                   {{4, 6}, {2, 6}},
                                                   {{5, 6}, {2, 4}},
                                                   {{3, 4, 5}, {2, 3, 2}},
                                                   {{3, 4, 5}, {2, 4, 5}},
                                                   {{2, 3, 4, 5}, {1, 2, 4, 3}},
                                                   {{3, 1, 5}, {2, 2, 5}}};
  for (const auto& [shape, chunk] : cases) {
    CAPTURE(call::to_string(shape));
    CAPTURE(call::to_string(chunk));
    call::Tensor array(call::DType::kI32, shape);
    for (std::int64_t i = 0; i < array.size(); ++i) array.set(i, static_cast<double>(i + 1));
    const ChunkGrid grid(shape, chunk, 4);
    call::Tensor copy(call::DType::kI32, shape);
    std::int64_t nonzero = 0;
    for (std::int64_t index = 0; index < grid.count(); ++index) {
      call::Tensor box(call::DType::kI32, chunk);
      grid.copy_from_array(array.bytes(), index, box.bytes());
      for (std::int64_t i = 0; i < box.size(); ++i) {
        Shape at = call::unravel(chunk, i);
        std::int64_t flat = 0;
        bool inside = true;
        for (std::size_t axis = 0; axis < at.size(); ++axis) {
          at[axis] += grid.origin(index)[axis];
          inside &= at[axis] < shape[axis];
          flat = flat * shape[axis] + at[axis];
        }
        CHECK(box[i] == (inside ? static_cast<double>(flat + 1) : 0.0));
        nonzero += inside ? 1 : 0;
      }
      grid.copy_to_array(box.bytes(), index, copy.bytes());
    }
    CHECK(nonzero == array.size());
    CHECK(std::ranges::equal(array.bytes(), copy.bytes()));
  }
}

TEST_CASE("filters are undone in any order, and skipped where the chunk says so") {
  std::vector<std::byte> raw(2403);  // no multiple of 2, 4 or 720
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::byte>(i * i / 7);
  std::array<Filter, 3> order{Filter::kShuffle, Filter::kDeflate, Filter::kFletcher32};
  do {
    for (std::size_t count = 0; count <= order.size(); ++count) {
      for (const std::size_t element_bytes : {1U, 2U, 4U, 8U}) {
        const Pipeline pipeline{{order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count)},
                                element_bytes};
        CAPTURE(pipeline.to_string());
        CHECK(decode_chunk(pipeline, 0, encode_chunk(pipeline, raw), raw.size(), "x") == raw);
        CHECK(decode_chunk(pipeline, 7, raw, raw.size(), "x") == raw);
      }
    }
  } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("an all-zero chunk stays within the ratio that the reader allows") {
  const std::vector<std::byte> zeros(512 * 1024);
  const Pipeline pipeline = writer_pipeline(8);
  const std::vector<std::byte> stored = encode_chunk(pipeline, zeros);
  CHECK(zeros.size() <= pipeline.max_decoded(stored.size()));
  CHECK(zeros.size() > 100 * stored.size());  // near enough to the bound for it to matter
  CHECK(decode_chunk(pipeline, 0, stored, zeros.size(), "x") == zeros);
  CHECK_THROWS_WITH_AS((void)decode_chunk(pipeline, 0, stored, 1032 * stored.size() + 1, "x"),
                       doctest::Contains("at most"), Error);
}

}  // namespace
}  // namespace goldenrule::hdf5

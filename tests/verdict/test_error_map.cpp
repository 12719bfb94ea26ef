// SPDX-License-Identifier: Apache-2.0
//
// One wrong element is one cell, wherever it lies and however the state is laid out; a map has no
// more than kMapCells cells an axis, whatever the call; ratios are counted by octaves.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fixtures/random/philox.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/error_map.hpp"
#include "tests/verdict/support.hpp"

using namespace goldenrule;
using namespace goldenrule::verdict;

namespace {

Judgement judged_with(const std::string& line, const std::string& output, const call::Shape& index,
                      double value) {
  test::Judged right(line, "recurrent_f32", call::DType::kF32);
  call::Tensor& tensor = right.record.outputs.at(output);
  std::int64_t at = 0;
  for (std::size_t i = 0; i < index.size(); ++i) at = at * tensor.shape()[i] + index[i];
  tensor.set(at, value);
  return judgement(delta::slice(), right.record, {.contract = *right.contract});
}

const TensorReport& report_of(const Judgement& judgement, const std::string& name) {
  return *std::ranges::find(judgement.report.tensors, name, &TensorReport::name);
}

// The cells out of budget, as (line, column).
std::vector<std::pair<std::size_t, std::size_t>> bad_cells(const ErrorMap& map) {
  std::vector<std::pair<std::size_t, std::size_t>> cells;
  for (std::size_t y = 0; y < map.levels.size(); ++y) {
    for (std::size_t x = 0; x < map.levels[y].size(); ++x) {
      if (map.levels[y][x] > '4') cells.emplace_back(y, x);
    }
  }
  return cells;
}

using Cells = std::vector<std::pair<std::size_t, std::size_t>>;

}  // namespace

TEST_CASE("error maps: one wrong element of a state, in both layouts") {
  for (const char* layout : {"vk", "kv"}) {
    CAPTURE(layout);
    const bool vk = std::string(layout) == "vk";
    const Judgement j =
        judged_with(std::string("op=gdn mode=decode B=3 H=1 HV=2 K=8 V=6 state_layout=") + layout,
                    "final_state", vk ? call::Shape{2, 1, 5, 7} : call::Shape{2, 1, 7, 5}, 1e9);
    const std::vector<ErrorMap> maps = error_maps(j, report_of(j, "final_state"));
    REQUIRE(maps.size() == 2);
    CHECK(bad_cells(maps[0]) == Cells{{2, 1}});
    CHECK(maps[0].down.word == "slot");
    CHECK(bad_cells(maps[1]) == Cells{{7, 5}});
    CHECK(maps[1].levels[7][5] == 'a');
    CHECK(maps[1].where == "slot 2, head 1");
    CHECK((maps[1].down.worst == 7 && maps[1].across.worst == 5));
    CHECK(error_maps(j, report_of(j, "o")).empty());  // which passes
  }
}

TEST_CASE("error maps: tokens of packed sequences, an empty one among them") {
  const Judgement j = judged_with("op=gdn mode=prefill lens=150,0,200 H=1 HV=2 K=4 V=3", "o",
                                  {150 + 140, 1, 2}, test::kNaN);
  const std::vector<ErrorMap> maps = error_maps(j, report_of(j, "o"));
  REQUIRE(maps.size() == 2);
  CHECK(maps[0].down.cells == kMapCells);
  CHECK(maps[0].down.sequences == std::vector<std::int64_t>{150});
  CHECK(bad_cells(maps[0]) == Cells{{290 * 128 / 350, 1}});
  CHECK(maps[0].levels[290 * 128 / 350][1] == 'b');
  // The window of the second sequence that holds its token 140.
  CHECK(maps[1].where == "sequence 2, head 1");
  CHECK((maps[1].down.first == 128 && maps[1].down.extent == 72));
  CHECK(bad_cells(maps[1]) == Cells{{140 - 128, 2}});
}

TEST_CASE("error maps: tokens of an MTP call are grouped by sequence") {
  const Judgement j =
      judged_with("op=gdn mode=mtp B=3 T=4 H=1 HV=2 K=4 V=3", "o", {1, 2, 0, 1}, 1e9);
  const std::vector<ErrorMap> maps = error_maps(j, report_of(j, "o"));
  REQUIRE(maps.size() == 2);
  CHECK(maps[0].down.sequences == std::vector<std::int64_t>{4, 8});
  CHECK(bad_cells(maps[0]) == Cells{{6, 0}});
  CHECK(bad_cells(maps[1]) == Cells{{6, 1}});
}

TEST_CASE("error over budget is counted by octaves, and exactly at the budget") {
  const Judgement j =
      judged_with("op=gdn mode=decode B=2 H=1 HV=2 K=8 V=6", "o", {1, 0, 1, 3}, 1e9);
  for (const TensorReport& t : j.report.tensors) {
    CAPTURE(t.name);
    const auto middle = t.ratio_histogram.begin() + kRatioOne + 1;
    CHECK(std::accumulate(t.ratio_histogram.begin(), t.ratio_histogram.end(), std::int64_t{0}) ==
          t.compared);
    CHECK(std::accumulate(middle, t.ratio_histogram.end(), std::int64_t{0}) == t.out_of_budget);
  }
  CHECK(report_of(j, "o").out_of_budget == 1);
}

// Most elements are compared with the least that their budget can be and never divided.
TEST_CASE("error maps: a cell holds the largest of all its elements") {
  constexpr std::int64_t kHead = 32 * 24;  // elements of one state and head
  for (const call::DType type : {call::DType::kF32, call::DType::kBF16}) {
    test::Judged right("op=gdn mode=decode B=4 H=1 HV=2 K=32 V=24 slots=padded", "recurrent_f32",
                       type);
    call::Tensor& state = right.record.outputs.at("final_state");
    const Expected& expected = right.expected.outputs.at("final_state");
    const Budget budget("final_state", type, expected, *right.contract);
    const random::Stream stream(7, "errors");
    // Errors of all sizes, most of them within budget; two heads without any.
    for (std::int64_t i = 2 * kHead; i < state.size(); ++i) {
      const double size = std::exp2(stream.uniform(i, -12, i % 97 == 0 ? 6 : -1));
      state.set(i, state[i] + (i % 2 == 0 ? 1 : -1) * size * budget(static_cast<std::size_t>(i)));
    }
    const Judgement j = judgement(delta::slice(), right.record, {.contract = *right.contract});
    const ErrorMap map = error_maps(j, report_of(j, "final_state")).front();
    const Expected& judged = j.expected.outputs.at("final_state");
    const Budget granted("final_state", type, judged, j.contract);
    for (std::int64_t cell = 0; cell < map.down.cells * map.across.cells; ++cell) {
      double largest = 0.0;
      for (std::int64_t i = cell * kHead; i < (cell + 1) * kHead; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double error = std::fabs(state[i] - judged.exact.golden[at]);
        const double beyond = error - static_cast<double>(judged.exact.radius[at]);
        largest = std::max(largest, ratio_of(std::max(beyond, 0.0), granted(at)));
      }
      char level = '0';
      for (double bound = 0x1p-8; largest > bound && level != 'a'; bound *= 4) {
        level = level == '9' ? 'a' : static_cast<char>(level + 1);
      }
      CAPTURE(cell);
      CAPTURE(largest);
      CHECK(map.levels[static_cast<std::size_t>(cell / 2)][static_cast<std::size_t>(cell % 2)] ==
            level);
    }
  }
}

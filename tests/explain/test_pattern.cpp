// SPDX-License-Identifier: Apache-2.0
//
// Regions that are planted in a right capture are named as their author would name them.
#include <doctest/doctest.h>

#include <functional>
#include <tuple>

#include "reference/delta/budget/default_contract.hpp"
#include "reference/delta/slice.hpp"
#include "reference/explain/cells.hpp"
#include "reference/explain/failures.hpp"
#include "reference/explain/index_set.hpp"
#include "reference/explain/pattern.hpp"
#include "reference/explain/token_words.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

struct Place {
  std::int64_t row, sequence, token, head, key, value;
};

// A right capture with every element of `name` in the region replaced.
std::string pattern_of(
    const std::string& line, const std::string& name,
    const std::function<bool(const Place&)>& region,
    const std::function<double(const Place&, double)>& content = [](const Place& p, double x) {
      // Nothing plain: content words would be added to the place.
      return x + 1.0 + static_cast<double>((p.row * 7 + p.head * 3 + p.value * 5 + p.key) % 11);
    }) {
  static std::map<std::string, std::pair<Record, verdict::Expectations>> captures;
  if (!captures.contains(line)) {
    const Record right = capture_of(line, {});
    const contract::Contract& contract = delta::default_contract(right);
    captures[line] = {
        right, verdict::judgement(delta::slice(), right,
                                  {.contract = contract, .precision = scalar::Precision::kDouble})
                   .expected};
  }
  const verdict::Expectations& evaluation = captures.at(line).second;
  Record record = captures.at(line).first;
  const call::Dims dims = call::validate(record);
  const Grid grid(record, dims, name);
  call::Tensor& t = record.outputs.at(name);
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const Row& row = grid.rows[static_cast<std::size_t>(grid.row_of(i))];
    const Place p{grid.row_of(i),  row.sequence,   row.token,
                  grid.head_of(i), grid.key_of(i), grid.value_of(i)};
    if (region(p)) t.set(i, content(p, t[i]));
  }
  const contract::Contract& contract = delta::default_contract(record);
  return describe_pattern(record, contract, evaluation,
                          find_failures(record, contract, evaluation));
}

const std::string kWide = "op=gdn mode=prefill lens=70,130,1,129 H=2 HV=4 K=32 V=136 gate=log h0=1";

TEST_CASE("regions of o in prefill") {
  const auto o = [](const std::function<bool(const Place&)>& region) {
    return pattern_of(kWide, "o", region);
  };
  CHECK(o([](const Place& p) { return p.head == 3; }) == "o: only head 3");
  CHECK(o([](const Place& p) { return p.head >= 2; }) == "o: every value head of q head 1");
  CHECK(o([](const Place& p) { return p.sequence == 1; }) == "o: only sequence 1");
  CHECK(o([](const Place& p) { return p.sequence > 0; }) == "o: every sequence but the first");
  CHECK(o([](const Place& p) { return p.value >= 128; }) == "o: value channels v >= 128");
  CHECK(o([](const Place& p) { return p.value >= 8 && p.value < 24; }) ==
        "o: value channels 8 <= v <= 23");
  CHECK(o([](const Place& p) { return p.value % 16 == 5; }) ==
        "o: every 16th value channel (v % 16 = 5)");
  CHECK(o([](const Place& p) { return p.token >= 64; }) ==
        "o: from token 64 on (a multiple of 64)");
  CHECK(o([](const Place& p) { return p.token >= 5; }) == "o: from token 5 on");
  CHECK(o([](const Place& p) { return p.token == 17; }) == "o: only token 17");
  CHECK(o([](const Place& p) { return p.token % 32 == 0; }) == "o: only tokens at multiples of 32");
  CHECK(o([](const Place& p) { return p.token % 16 == 15; }) ==
        "o: only the last token of each 16");
  CHECK(o([](const Place& p) { return p.sequence == 3 && p.head == 0 && p.token >= 128; }) ==
        "o: only sequence 3, only head 0, only token 128, the last");
  const std::int64_t lengths[] = {70, 130, 1, 129};
  CHECK(o([&](const Place& p) { return p.token == lengths[p.sequence] - 1; }) ==
        "o: only the last token");
  CHECK(o([&](const Place& p) {
          return lengths[p.sequence] > 64 && p.token >= lengths[p.sequence] / 64 * 64;
        }) == "o: only the tail chunk (the last T % 64 tokens)");
  CHECK(o([](const Place&) { return true; }) == "o: all elements");
  CHECK(o([](const Place& p) {
          return (p.row * 131 + p.head * 37 + p.value * 17) % 101 == 0;
        }).starts_with("o: scattered, "));
  CHECK(o([](const Place& p) { return p.row == 75 && p.head == 1 && p.value == 9; }) ==
        "o: only (sequence 1, token 5, head 1, value 9)");
  CHECK(o([](const Place&) { return false; }).empty());
}

TEST_CASE("what of one axis depends on another") {
  const auto o = [](const std::function<bool(const Place&)>& region) {
    return pattern_of(kWide, "o", region);
  };
  CHECK(o([](const Place& p) { return p.head == p.sequence; }) ==
        "o: heads j = n of each sequence n");
  CHECK(o([](const Place& p) { return p.head > p.sequence; }) ==
        "o: heads j > n of each sequence n");
  CHECK(o([](const Place& p) {
          return (p.sequence == 0 && p.head < 2) || (p.sequence == 3 && p.head == 3);
        }) == "o: heads j < 2 of sequence 0 and head 3 of sequence 3");
  CHECK(o([](const Place& p) { return p.head == 0 || (p.head == 1 && p.value >= 128); }) ==
        "o: all value channels of head 0 and value channels v >= 128 of head 1");
  CHECK(o([](const Place& p) { return p.sequence == 0 ? p.head < 2 : p.head >= 2; }) ==
        "o: q head 0 of sequence 0 and q head 1 of sequences n >= 1");
  CHECK(o([](const Place& p) {
          return p.token >= 64 && (p.sequence == 1 ? p.head == 0 : p.head == 2);
        }) ==
        "o: head 2 of sequences n in {0, 3} and head 0 of sequence 1, "
        "from token 64 on (a multiple of 64)");
  CHECK(pattern_of(kWide, "final_state", [](const Place& p) { return p.key > p.value; }) ==
        "final_state: value channels v < k of each key channel k");
  // Every row has heads of its own: no words.
  const std::string line = "op=gdn mode=decode B=16 H=8 HV=8 K=16 V=16";
  CHECK(pattern_of(line, "final_state", [](const Place& p) {
          return (p.sequence * 5 + p.head * 3) % 7 < 2;
        }).starts_with("final_state: everywhere, "));
}

TEST_CASE("cells that a few elements leave empty are chance") {
  const CellAxis four{{"sequence", "sequences", "n"}, {1, 1, 1, 1}};
  const CellAxis two{{"head", "heads", "j"}, {1, 1}};
  const auto words = [&](const std::vector<std::int64_t>& hits) {
    const std::optional<Cells> cells = failing_cells(four, two, hits);
    return cells ? cells->words : "";
  };
  // Seven cells of eight.
  CHECK(words({9, 9, 9, 9, 9, 9, 9, 0}) == "");
  CHECK(words({90, 90, 90, 90, 90, 90, 90, 0}) ==
        "all heads of sequences n < 3 and head 0 of sequence 3");
  // A box.
  CHECK(words({90, 0, 90, 0, 0, 0, 90, 0}) == "");
}

TEST_CASE("regions of states") {
  CHECK(pattern_of(kWide, "final_state", [](const Place& p) { return p.key >= 16; }) ==
        "final_state: key channels k >= 16");
  CHECK(pattern_of(kWide, "final_state", [](const Place& p) { return p.sequence == 2; }) ==
        "final_state: only sequence 2");
  for (const char* layout : {"vk", "kv"}) {
    const std::string line = kMtp + " state_layout=" + layout;
    CHECK(pattern_of(line, "final_state", [](const Place& p) {
            return p.sequence == 3 && p.value >= 32;
          }) == "final_state: only slot 3, value channels v >= 32");
    CHECK(pattern_of(line, "intermediate_states", [](const Place& p) {
            return p.token == 3 && p.key == 7;
          }) == "intermediate_states: only the last token, only key channel 7");
  }
}

TEST_CASE("what stands in the region") {
  const auto rows = [](const Place& p) { return p.sequence == 1; };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(pattern_of(kWide, "o", rows, [&](const Place&, double) { return nan; }) ==
        "o: only sequence 1, all NaN: never written");
  // A row of which some heads are written.
  CHECK(pattern_of(
            kWide, "o", [](const Place& p) { return p.sequence == 1 && p.head == 2; },
            [&](const Place&, double) { return nan; }) ==
        "o: only sequence 1, only head 2, all NaN");
  // What x86 makes of 0 * Inf, and a payload that changes.
  CHECK(pattern_of(kWide, "final_state", rows, [&](const Place&, double) { return -nan; }) ==
        "final_state: only sequence 1, all NaN (computed or never written)");
  CHECK(pattern_of(kWide, "final_state", rows, [&](const Place& p, double) {
          return p.value == 3 ? -nan : nan;
        }) == "final_state: only sequence 1, all NaN (computed or never written)");
  CHECK(pattern_of(kWide, "o", rows, [](const Place&, double) { return 0.0; }) ==
        "o: only sequence 1, all zero");
  CHECK(pattern_of(kWide, "o", rows, [](const Place&, double x) {
          return 4.0 * x;
        }).ends_with("about 4 times the exact result"));
  const Record record = make_call(kWide);
  const call::Tensor& initial = record.inputs.at("initial_state");
  const Grid grid(record, call::validate(record), "final_state");
  CHECK(pattern_of(kWide, "final_state", rows, [&](const Place& p, double) {
          return initial[p.row * grid.row_stride() + p.head * grid.head_stride() +
                         p.key * grid.key_stride + p.value * grid.value_stride];
        }) == "final_state: only sequence 1, equal to the initial state");
  const Record right = capture_of(kWide, {});
  const call::Tensor& o = right.outputs.at("o");
  CHECK(pattern_of(
            kWide, "o", [](const Place& p) { return p.row > 0 && p.value % 32 == 0; },
            [&](const Place& p, double) { return o[((p.row - 1) * 4 + p.head) * 136 + p.value]; })
            .ends_with("every 32nd value channel (v % 32 = 0), equal to the previous row"));
}

TEST_CASE("two indices have no period") {
  // 15 and 61 of 64 key channels, 4 and 21 of 32.
  for (const auto& [size, a, b, words] :
       {std::tuple(64, 15, 61, "k in {15, 61}"), {32, 4, 21, "k in {4, 21}"}}) {
    std::vector<std::int64_t> hits(static_cast<std::size_t>(size));
    hits[static_cast<std::size_t>(a)] = hits[static_cast<std::size_t>(b)] = 40;
    CHECK(condition(index_set(hits), hits, "k") == words);
  }
  std::vector<std::int64_t> hits(64);
  hits[5] = hits[25] = hits[45] = 40;
  CHECK(index_set(hits).shape == Shape::kResidue);
}

TEST_CASE("slots have a letter of their own") {
  const std::string line = "op=gdn mode=decode B=6 H=1 HV=2 K=16 V=8 slots=permuted P=9";
  const auto slots = make_call(line).inputs.at("state_indices").to_integers();
  const std::string words = pattern_of(line, "final_state", [&](const Place& p) {
    return p.row == slots[0] || p.row == slots[1] || p.row == slots[3];
  });
  CHECK(words.starts_with("final_state: slots "));
  CHECK(words.find("slot ") == std::string::npos);
  CHECK(words.find(" p") != std::string::npos);
}

TEST_CASE("chance is no pattern") {
  // Eight of sixteen heads, one element in each: nothing.
  std::vector<std::int64_t> hits{1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0, 1};
  CHECK(index_set(hits).shape == Shape::kAll);
  // A hundred elements that all miss half of the axis.
  hits.assign(16, 0);
  for (std::size_t i = 8; i < 16; ++i) hits[i] = 12;
  CHECK(index_set(hits).shape == Shape::kFrom);
  CHECK(condition(index_set(hits), hits, "v") == "v >= 8");
  // Three elements in the upper half are chance, three hundred are not.
  hits.assign(16, 0);
  hits[9] = hits[12] = hits[15] = 1;
  CHECK(index_set(hits).shape == Shape::kAll);
  hits[9] = hits[12] = hits[15] = 100;
  CHECK(condition(index_set(hits), hits, "v") == "v in {9, 12, 15}");
}

TEST_CASE("token words need the whole shape") {
  const auto mask = [](std::size_t length, auto&& fails) {
    TokenMask m(length);
    for (std::size_t t = 0; t < length; ++t) m[t] = fails(t) ? 1 : 0;
    return m;
  };
  // A region that ends before the sequence does is not "from token t on".
  CHECK(token_words({mask(100, [](std::size_t t) { return t >= 10 && t < 20; })}) ==
        "tokens 10 to 19");
  CHECK(token_words({mask(100, [](std::size_t t) { return t < 20; })}) == "up to token 19");
  CHECK(token_words({mask(100, [](std::size_t) { return true; })}).empty());
  CHECK(token_words({mask(100, [](std::size_t t) { return t % 7 == 3 || t == 50; })}).empty());
  // Tokens 17 and 80 of 100: two tokens, no period.
  CHECK(token_words({mask(100, [](std::size_t t) { return t == 17 || t == 80; })}).empty());
  CHECK(token_words({mask(96, [](std::size_t t) { return t >= 48; }), mask(64, [](std::size_t t) {
                       return t >= 32;
                     })}) == "from a multiple of 16 on (not the same in each sequence)");
}

}  // namespace
}  // namespace goldenrule::explain::test

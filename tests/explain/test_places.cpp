// SPDX-License-Identifier: Apache-2.0
//
// Right numbers in wrong places, planted in the outputs of honest kernels by the index
// arithmetic of the drawn places; and that nothing else gets a place.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/attention/slice.hpp"
#include "reference/explain/places.hpp"
#include "reference/suites/unknown/places.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

using suites::drawn_map;
using suites::DrawnMap;
using suites::LineMap;

constexpr const char* kStream = "places";

struct PlacedCall {
  PlacedCall(const verdict::Slice& of, const std::string& line)
      : slice(of), record(make_call(line)), contract(of.default_contract(record)) {
    outputs = calls::stored(record, contract, verdict::emulated_kernel(slice, contract, 7)(record));
    record.outputs = outputs;
    record.contract = contract.name;
  }

  void plant(const std::string& output, std::int64_t length, const call::Tensor& from,
             const LineMap& map) {
    suites::place_lines(record.outputs.at(output), length, from, map);
  }

  [[nodiscard]] std::vector<std::string> found() const {
    const auto judgement = verdict::judgement(
        slice, record, {.contract = contract, .precision = scalar::Precision::kDouble});
    return find_places(judgement,
                       find_failures(judgement.record, judgement.contract, judgement.expected));
  }

  // All in one.
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const std::string& f : found()) all += f + "\n";
    return all;
  }

  const verdict::Slice& slice;
  Record record;
  const contract::Contract& contract;
  TensorMap outputs;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::string kTokens = "op=gdn mode=prefill lens=40 H=2 HV=4 K=16 V=16 gate=log h0=1";
const std::string kStates = "op=gdn mode=prefill lens=8x9 H=1 HV=2 K=16 V=16 gate=log h0=1";

const std::string kPaged =
    "op=attention mode=decode lens=3,2,4 ctx=67,31,87 H=2 HV=4 K=32 V=32 page=16";

}  // namespace

TEST_CASE("places: an honest kernel has none") {
  for (const std::string& line : {kTokens, kStates}) {
    CHECK(PlacedCall(delta::slice(), line).found().empty());
  }
}

TEST_CASE("places: rows of tokens by maps drawn, the rest not written") {
  PlacedCall call(delta::slice(), kTokens);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    suites::Draws draws(seed, kStream);
    const DrawnMap map = drawn_map(draws, 40);
    call.plant("o", 4 * 16, call.outputs.at("o"), map);
    const std::string text = call.text();
    INFO(seed << ": " << map.step << " t + " << map.offset << "\n" << text);
    CHECK(has(text, "o"));
    CHECK(has(text, "holds what is right of token " + map.words("t") + "; this reproduces " +
                        std::to_string(4 * map.moved()) + " of "));
  }
}

TEST_CASE("places: states of sequences by maps drawn, as they are and with their axes exchanged") {
  PlacedCall call(delta::slice(), kStates);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    suites::Draws draws(seed, kStream);
    const DrawnMap map = drawn_map(draws, 8);
    const bool exchanged = seed % 2 == 1;
    call.plant("final_state", 2 * 256, call.outputs.at("final_state"), map);
    if (exchanged)
      suites::exchange_axes(call.record.outputs.at("final_state"), 16, 16,
                            [](std::int64_t) { return true; });
    const std::string text = call.text();
    INFO(seed << ": " << map.step << " n + " << map.offset << "\n" << text);
    CHECK(has(text, "holds what is right" +
                        std::string(exchanged ? ", with the two axes of a state exchanged," : "") +
                        " of sequence " + map.words("n")));
  }
}

TEST_CASE("places: states of an input") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PlacedCall call(delta::slice(), kStates);
    suites::Draws draws(seed, kStream);
    const DrawnMap map = drawn_map(draws, 8);
    call.plant("final_state", 2 * 256, call.record.inputs.at("initial_state"), map);
    const std::string text = call.text();
    INFO(seed << ": " << map.step << " n + " << map.offset << "\n" << text);
    CHECK(has(text, "holds initial_state of sequence " + map.words("n")));
  }
}

TEST_CASE("places: exchanged axes, other strides, a state that is not square") {
  PlacedCall call(delta::slice(), kTokens);
  call.plant("o", 16, call.outputs.at("o"), [](std::int64_t i) { return i % 4 * 40 + i / 4; });
  CHECK(has(call.text(), "holds what is right at flat place t + 40 j of (packed token, head)"));
  call.plant("o", 16, call.outputs.at("o"), [](std::int64_t i) { return i / 4 * 3 + i % 4; });
  CHECK(has(call.text(), "holds what is right at flat place 3 t + j of (packed token, head)"));
  PlacedCall wide(delta::slice(), "op=gdn mode=prefill lens=4x9 H=1 HV=2 K=32 V=16 gate=log");
  suites::exchange_axes(wide.record.outputs.at("final_state"), 16, 32,
                        [](std::int64_t line) { return line / 2 == 2; });
  CHECK(has(wide.text(),
            "final_state in sequence 2 holds what is right, with the two axes of a "
            "state exchanged, in its own place; this reproduces 2 of 2"));
}

TEST_CASE("places: attention, rows of the last request in those of the first") {
  PlacedCall call(attention::slice(), kPaged);
  call.plant("o", 4 * 32, call.outputs.at("o"),
             [](std::int64_t t) { return t < 4 ? t + 5 : std::int64_t{-1}; });
  const std::string text = call.text();
  INFO(text);
  CHECK(has(text,
            "o in packed tokens t < 4 holds what is right of packed token t + 5; this "
            "reproduces 16 of 36 failing rows"));
  CHECK(has(text, "o holds 0 in packed tokens t >= 4"));
}

TEST_CASE("places: what is equal in what is right has no place") {
  // Sequence 1 is a copy of sequence 0, and each starts from its own state.
  PlacedCall call(delta::slice(), kStates);
  for (auto& [name, tensor] : call.record.inputs) {
    if (tensor.shape()[0] != 72 && tensor.shape()[0] != 8) continue;
    const std::int64_t part = tensor.size() / 8;
    for (std::int64_t i = 0; i < part; ++i) tensor.set(part + i, tensor[i]);
  }
  const TensorMap out =
      calls::stored(call.record, call.contract,
                    verdict::emulated_kernel(delta::slice(), call.contract, 7)(call.record));
  call.record.outputs = out;
  REQUIRE(call.found().empty());
  // The state of sequence 5 is that of 0 and of 1.
  call.plant("final_state", 2 * 256, out.at("final_state"),
             [](std::int64_t n) { return n == 5 ? std::int64_t{0} : n; });
  CHECK(call.found().empty());
}

// Of the project's own mistakes those that leave right numbers in wrong places, and what is said of
// them; all others leave none.
struct PlacedMistake {
  const char* name;
  const char* said;
};
constexpr std::array kPlacedMistakes{
    PlacedMistake{"state_transposed_out",
                  "holds what is right, with the two axes of a state exchanged, in its own place"},
    // The tokens behind a sequence, up to the end of the last, wash its own state out.
    PlacedMistake{"tail_chunk_unmasked", "final_state holds what is right of sequence 2"},
    PlacedMistake{"lse_transposed", "lse holds what is right at flat place 74 n + 16 t + 4 j"},
    PlacedMistake{"token_shifted", "o holds what is right of token t - 1"},
    PlacedMistake{"tail_rows_permuted",
                  "o in tokens t in {4, 8} holds what is right of token 12 - t"},
    PlacedMistake{"lane_zero_stale", "j - 1 of ("},  // channel 0 of the head before
    PlacedMistake{"last_token_dropped",
                  "final_state holds what is right of intermediate_states of "
                  "sequence p, token 4"},
    PlacedMistake{"intermediate_shifted",
                  "intermediate_states in tokens t >= 1 holds what is right "
                  "of token t - 1"},
    PlacedMistake{"intermediate_stride_T",
                  "intermediate_states holds what is right at flat place 21 "
                  "n + 3 t + j of (sequence, token, head)"}};

TEST_CASE("places: other mistakes than those of places have none") {
  const std::vector<std::pair<const verdict::Slice*, std::string>> lines{
      {&delta::slice(), "op=gdn mode=prefill lens=5,20,33 H=2 HV=4 K=16 V=16 gate=softplus"},
      {&delta::slice(), kStates},
      {&delta::slice(), "op=kda mode=mtp B=3 T=6 H=1 HV=3 K=16 V=16"},
      {&delta::slice(), "op=gdn mode=decode B=4 T=1 H=2 HV=4 K=16 V=16"},
      {&attention::slice(), kPaged},
      {&attention::slice(),
       "op=attention mode=decode lens=30,21 ctx=7,31 H=2 HV=4 K=32 V=32 page=16 "
       "window_left=16 lse_base=2"},
      {&attention::slice(), "op=attention mode=prefill lens=30,21 H=2 HV=4 K=32 V=32"}};
  std::set<std::string> met;
  std::int64_t made = 0;
  for (const auto& [slice, line] : lines) {
    PlacedCall call(*slice, line);
    Record bare = call.record;
    bare.outputs.clear();
    for (const Mistake& m : slice->mistakes()) {
      if (!m.applies(bare)) continue;
      call.record.outputs = calls::stored(
          bare, call.contract, m.commit(bare, verdict::emulated_kernel(*slice, call.contract, 7)));
      ++made;
      const std::string text = call.text();
      INFO(m.name << " of " << line << "\n" << text);
      const auto placed = std::ranges::find(kPlacedMistakes, m.name, &PlacedMistake::name);
      if (placed == kPlacedMistakes.end()) {
        CHECK_FALSE(has(text, "this reproduces"));
      } else if (has(text, "this reproduces")) {
        CHECK(has(text, placed->said));
        met.insert(placed->name);
      }
    }
  }
  CHECK(met.size() == kPlacedMistakes.size());
  CHECK(made >= 400);
}

}  // namespace goldenrule::explain::test

// SPDX-License-Identifier: Apache-2.0
//
// Right numbers in wrong places, planted in the outputs of honest kernels by index arithmetic of
// this file with maps drawn from counters; and that nothing else gets a place.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "reference/attention/slice.hpp"
#include "reference/explain/places.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

// Lines that follow each other in a tensor: of each line the one that stands there, or -1: 0 does.
using LineMap = std::function<std::int64_t(std::int64_t)>;

struct PlacedCall {
  PlacedCall(const verdict::Slice& of, const std::string& line)
      : slice(of), record(make_call(line)), contract(of.default_contract(record)) {
    outputs = calls::stored(record, contract, verdict::emulated_kernel(slice, contract, 7)(record));
    record.outputs = outputs;
    record.contract = contract.name;
  }

  void plant(const std::string& output, std::int64_t length, const call::Tensor& from,
             const LineMap& map) {
    call::Tensor& tensor = record.outputs.at(output);
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const std::int64_t line = map(i / length);
      tensor.set(i, line < 0 ? 0.0 : from[line * length + i % length]);
    }
  }

  // A state [R,C] of each line becomes one of [C,R] in the same memory.
  void exchange(const std::string& output, std::int64_t rows, std::int64_t columns,
                const std::function<bool(std::int64_t)>& chosen) {
    call::Tensor& tensor = record.outputs.at(output);
    const std::int64_t size = rows * columns;
    const call::Tensor before = tensor;
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const std::int64_t m = i % size;
      if (chosen(i / size)) tensor.set(i, before[i - m + m % rows * columns + m / rows]);
    }
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

// step x + offset as it is written.
std::string sum(std::int64_t step, const char* letter, std::int64_t offset) {
  if (step == 0) return std::to_string(offset);
  if (step == -1) return std::to_string(offset) + " - " + letter;
  std::string text = step == 1 ? letter : std::to_string(step) + " " + letter;
  if (offset != 0) {
    text += (offset < 0 ? " - " : " + ") + std::to_string(std::abs(offset));
  }
  return text;
}

struct DrawnMap {
  std::int64_t step = 0, offset = 0, extent = 0;

  // Nothing stands where the map leaves the tensor; -1.
  [[nodiscard]] std::int64_t operator()(std::int64_t i) const {
    const std::int64_t from = step * i + offset;
    return from < 0 || from >= extent ? -1 : from;
  }
  [[nodiscard]] std::int64_t moved() const {
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < extent; ++i) n += (*this)(i) >= 0 && (*this)(i) != i ? 1 : 0;
    return n;
  }
};

// A map of at least three places that is not the identity.
DrawnMap drawn(std::uint64_t seed, std::int64_t extent) {
  const random::Stream stream(seed, "places");
  for (std::int64_t i = 0;; i += 2) {
    const auto step = static_cast<std::int64_t>(stream.bits(i) % 7) - 3;
    const auto reach = static_cast<std::uint64_t>(3 * extent);
    const auto offset = static_cast<std::int64_t>(stream.bits(i + 1) % reach) - extent;
    const DrawnMap map{step, offset, extent};
    if (map.moved() >= 3 && !(step == 1 && offset == 0)) return map;
  }
}

}  // namespace

TEST_CASE("places: an honest kernel has none") {
  for (const std::string& line : {kTokens, kStates}) {
    CHECK(PlacedCall(delta::slice(), line).found().empty());
  }
}

TEST_CASE("places: rows of tokens by maps drawn, the rest not written") {
  PlacedCall call(delta::slice(), kTokens);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const DrawnMap map = drawn(seed, 40);
    call.plant("o", 4 * 16, call.outputs.at("o"), map);
    const std::string text = call.text();
    INFO(seed << ": " << map.step << " t + " << map.offset << "\n" << text);
    CHECK(has(text, "o"));
    CHECK(has(text, "holds what is right of token " + sum(map.step, "t", map.offset) +
                        "; this reproduces " + std::to_string(4 * map.moved()) + " of "));
  }
}

TEST_CASE("places: states of sequences by maps drawn, as they are and with their axes exchanged") {
  PlacedCall call(delta::slice(), kStates);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const DrawnMap map = drawn(seed, 8);
    const bool exchanged = seed % 2 == 1;
    call.plant("final_state", 2 * 256, call.outputs.at("final_state"), map);
    if (exchanged) call.exchange("final_state", 16, 16, [](std::int64_t) { return true; });
    const std::string text = call.text();
    INFO(seed << ": " << map.step << " n + " << map.offset << "\n" << text);
    CHECK(has(text, "holds what is right" +
                        std::string(exchanged ? ", with the two axes of a state exchanged," : "") +
                        " of sequence " + sum(map.step, "n", map.offset)));
  }
}

TEST_CASE("places: states of an input") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PlacedCall call(delta::slice(), kStates);
    const DrawnMap map = drawn(seed, 8);
    call.plant("final_state", 2 * 256, call.record.inputs.at("initial_state"), map);
    const std::string text = call.text();
    INFO(seed << ": " << map.step << " n + " << map.offset << "\n" << text);
    CHECK(has(text, "holds initial_state of sequence " + sum(map.step, "n", map.offset)));
  }
}

TEST_CASE("places: exchanged axes, other strides, a state that is not square") {
  PlacedCall call(delta::slice(), kTokens);
  call.plant("o", 16, call.outputs.at("o"), [](std::int64_t i) { return i % 4 * 40 + i / 4; });
  CHECK(has(call.text(), "holds what is right at flat place t + 40 j of (packed token, head)"));
  call.plant("o", 16, call.outputs.at("o"), [](std::int64_t i) { return i / 4 * 3 + i % 4; });
  CHECK(has(call.text(), "holds what is right at flat place 3 t + j of (packed token, head)"));
  PlacedCall wide(delta::slice(), "op=gdn mode=prefill lens=4x9 H=1 HV=2 K=32 V=16 gate=log");
  wide.exchange("final_state", 16, 32, [](std::int64_t line) { return line / 2 == 2; });
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

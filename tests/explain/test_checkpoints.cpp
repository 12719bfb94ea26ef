// SPDX-License-Identifier: Apache-2.0
//
// Prefill on a pool and states on the way: kernels that make one of their mistakes, emulated under
// the contract that the call implies, are named.
#include <doctest/doctest.h>

#include "fixtures/call/operation.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

constexpr const char* kLines[] = {
    "op=gdn mode=prefill lens=65,33,70 H=1 HV=2 K=32 V=16 gate=log h0=1 checkpoints=after every=32",
    "op=kda mode=prefill lens=65,33,70 H=1 HV=2 K=32 V=16 gate=bounded checkpoints=before every=20",
    "op=gdn mode=prefill lens=40,0,33,70,1 H=2 HV=2 K=32 V=16 gate=log slots=padded "
    "checkpoints=listed",
    "op=kda mode=prefill lens=40,66,33,70 H=1 HV=2 K=32 V=16 gate=log slots=separate_padded "
    "checkpoints=continued every=24 state_layout=kv",
    "op=gdn mode=prefill lens=40,70 H=1 HV=1 K=32 V=16 gate=log io=f32 checkpoints=listed"};

bool is_of_this(const Mistake& m) {
  constexpr std::string_view kNames[] = {
      "slot_ignored",       "output_slot_ignored", "pad_writes_slot0",
      "pad_writes_last",    "state_carry_dropped", "state_leaks",
      "last_token_dropped", "tail_chunk_dropped",  "tail_chunk_unmasked"};
  return m.group == "States on the way" || std::ranges::find(kNames, m.name) != std::end(kNames);
}

TEST_CASE("mistakes with slots and checkpoints of a prefill are named") {
  std::map<std::string, int> named;
  for (const char* line : kLines) {
    CAPTURE(line);
    for (const Mistake& m : delta::mistakes()) {
      const Record call = make_call(line);
      if (!is_of_this(m) || !m.applies(call)) continue;
      CAPTURE(m.name);
      CAPTURE(m.meaning);
      const Diagnosis d = diagnosis_of(capture_of(line, {&m}), delta::mistakes());
      // Beside operands of bf16 a rounded state need not leave the budget.
      if (m.rounds && d.pattern.empty()) continue;
      REQUIRE_FALSE(d.pattern.empty());
      CAPTURE(d.pattern);
      REQUIRE_FALSE(d.explanations.empty());
      const Explanation& first = d.explanations.front();
      CHECK(first.explains);
      const bool right = first.name() == m.name ||
                         std::ranges::find(first.same, std::string(m.name)) != first.same.end();
      CHECK_MESSAGE(right, "named ", first.name());
      named[std::string(m.name)] += right ? 1 : 0;
    }
  }
  for (const Mistake& m : delta::mistakes()) {
    CAPTURE(m.name);
    if (is_of_this(m)) CHECK(named[std::string(m.name)] > 0);
  }
}

TEST_CASE("where checkpoints fail is said in rows of checkpoints") {
  const Mistake* shifted = nullptr;
  for (const Mistake& m : delta::mistakes()) {
    if (m.name == "checkpoint_shifted" && shifted == nullptr) shifted = &m;
  }
  REQUIRE(shifted != nullptr);
  Record record = capture_of(kLines[0], {shifted});
  const Diagnosis d = diagnosis_of(record, delta::mistakes());
  CHECK(d.pattern.find("checkpoints: ") != std::string::npos);
  // One row alone.
  Record one = capture_of(kLines[0], {});
  call::Tensor& kept = one.outputs.at("checkpoints");
  const std::int64_t row = kept.size() / kept.shape()[0];
  for (std::int64_t i = 2 * row; i < 3 * row; ++i) kept.set(i, -3.0 * kept[i]);
  CHECK(diagnosis_of(one, delta::mistakes()).pattern.find("only checkpoint 2") !=
        std::string::npos);
}

TEST_CASE("a cut keeps the checkpoints that it reaches") {
  const Record record = capture_of(kLines[1], {});
  const auto judged = verdict::judgement(delta::slice(), record, {});
  const Capture whole = make_capture(judged);
  const Capture part = cut(whole, {.values = {1, 5}, .sequences = 2, .tokens = 41});
  const call::Dims d = call::validate(part.call);
  CHECK(d.rows == 2);
  CHECK(d.tokens == 41 + 33);
  CHECK(part.call.inputs.at("cu_checkpoints").to_integers() == std::vector<std::int64_t>{0, 3, 5});
  CHECK(part.call.inputs.at("checkpoint_offsets").to_integers() ==
        std::vector<std::int64_t>{0, 20, 40, 0, 20});
  CHECK(part.outputs.at("checkpoints").shape() == call::output_shape(part.call, d, "checkpoints"));
  CHECK_FALSE(part.outputs.contains("final_state"));
  const auto again =
      verdict::expect(delta::slice(), part.call, judged.contract, scalar::Precision::kDouble);
  CHECK(part.expected.outputs.at("checkpoints").exact.golden ==
        again.outputs.at("checkpoints").exact.golden);
  // A pool binds the sequences together: only value channels are cut.
  const Record pooled = make_call(kLines[2]);
  CHECK_FALSE(is_cut_by_tokens(pooled));
  CHECK(is_cut_by_tokens(part.call));
}

}  // namespace
}  // namespace goldenrule::explain::test

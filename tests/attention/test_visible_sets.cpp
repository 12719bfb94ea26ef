// SPDX-License-Identifier: Apache-2.0
//
// Length: one generator of calls and captures, and what is asked of them.
//
// Visible sets that no table has are found in the captures of emulated kernels and said in words:
// drawn calls over masks, windows, tables, caps and types, drawn mistakes with drawn numbers. What
// is no visible set (noise, another scale, other values or keys) is not called one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/cases/suite.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/attention/emulation/emulate.hpp"
#include "reference/attention/mistakes/mistake.hpp"
#include "reference/attention/visible/find.hpp"
#include "reference/suites/unknown/visible_sets.hpp"
#include "tests/attention/support.hpp"

using namespace goldenrule;
using namespace goldenrule::attention;
using namespace goldenrule::test;
using cases::record_of;

namespace {

constexpr const char* kStream = "visible sets";

// The capture of an emulated kernel in which `heads` see the changed sets; the others are right.
call::Record capture(const call::Record& call, const Plan& wrong, std::int64_t first_head,
                     std::uint64_t seed) {
  const contract::Contract& flash = flash_contract();
  const Plan plan = make_plan(call);
  call::TensorMap outputs = emulate(call, plan, *flash.softmax(), seed);
  suites::replace_heads(plan, first_head, emulate(call, wrong, *flash.softmax(), seed), outputs);
  call::Record record = call;
  record.outputs = calls::stored(call, flash, outputs);
  if (seed % 2 == 0) record.outputs.erase("lse");
  return record;
}

std::vector<std::string> found_in(const call::Record& record, bool& refused) {
  const auto judgement =
      verdict::judgement(attention::slice(), record, {.contract = flash_contract()});
  refused = judgement.report.verdict == verdict::Verdict::kOutOfBudget;
  return find_visible_sets(judgement).texts;
}

bool says(const std::vector<std::string>& texts, const std::string& words) {
  return std::ranges::any_of(
      texts, [&](const std::string& text) { return text.find(words) != std::string::npos; });
}

struct Count {
  int refused = 0, right = 0, wrong = 0, none = 0;
};

void add(Count& count, const std::vector<std::string>& texts, bool right) {
  ++count.refused;
  if (texts.empty()) {
    ++count.none;
  } else {
    ++(right ? count.right : count.wrong);
  }
}

}  // namespace

TEST_CASE("attention: drawn visible sets are found and said in words") {
  constexpr std::uint64_t kDraws = 12;
  Count all;
  for (const std::string& kind : suites::kinds_of_ranges()) {
    Count count;
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
      suites::Draws draw(seed + 1000 * kind.size(), kStream);
      const suites::DrawnRanges mistake = suites::drawn_ranges(kind, draw);
      const call::Record call = record_of(mistake.line);
      const Plan plan = suites::changed_plan(call, mistake.change);
      const std::int64_t first_head = seed % 3 == 0 ? plan.dims.HV / 2 : 0;
      bool refused = false;
      const auto texts = found_in(capture(call, plan, first_head, seed), refused);
      if (!refused) continue;
      const std::string heads =
          first_head == 0 ? "" : fmt::format("of head{}", plan.dims.HV - first_head > 1 ? "s" : "");
      const bool right = texts.size() == 1 && says(texts, mistake.words) && says(texts, heads);
      if (!right) {
        MESSAGE(kind << ": " << mistake.line << "\n  wanted: " << mistake.words
                     << "\n  said: " << (texts.empty() ? "nothing" : texts[0]));
      }
      add(count, texts, right);
    }
    MESSAGE(kind << ": " << count.refused << " refused, " << count.right << " right, "
                 << count.wrong << " wrong, " << count.none << " not found");
    CHECK(count.refused >= 8);
    CHECK(count.wrong == 0);
    CHECK(count.right * 10 >= count.refused * 8);
    all.refused += count.refused;
    all.right += count.right;
  }
  MESSAGE(all.right << " of " << all.refused);
}

TEST_CASE("attention: the length of another request is named, and the heads that have it") {
  Count count;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    suites::Draws draw(seed + 77, kStream);
    const call::Record call = record_of(
        fmt::format("op=attention mode=decode lens=1,1,1 ctx={},{},{} H=2 HV=8 K=32 V=32 page=8 "
                    "block_kv=in_cache seed={} pattern=A",
                    draw.between(20, 30), draw.between(40, 50), draw.between(60, 70), seed));
    Plan plan = make_plan(call);
    const std::int64_t shortest = plan.requests[0].key_count();
    for (std::size_t n = 1; n < 3; ++n) plan.requests[n].visible[0].last = shortest;
    const std::int64_t first_head = draw.of<std::int64_t>({0, 4, 6});
    bool refused = false;
    const auto texts = found_in(capture(call, plan, first_head, seed), refused);
    if (!refused) continue;
    add(count, texts,
        texts.size() == 1 && says(texts, "had the length of request 0") &&
            (first_head == 0 ? says(texts, "every query")
                             : says(texts, fmt::format("of heads {} to 7", first_head))));
    CAPTURE(texts);
  }
  MESSAGE(count.right << " right, " << count.wrong << " wrong, " << count.none << " not found");
  CHECK(count.refused == 12);
  CHECK(count.right == count.refused);
}

TEST_CASE("attention: noise, scales, values and keys are no visible sets") {
  std::map<std::string, Count> counts;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    for (const std::string kind : {"noise", "one element", "scale", "values", "keys", "zeros"}) {
      suites::Draws draw(seed + 31 * kind.size(), kStream);
      const call::Record call =
          record_of(suites::drawn_attention(draw, "mask=causal", seed % 2 == 0, 8));
      call::Record given = call;
      Plan plan = make_plan(call);
      if (kind == "scale") plan.scale *= draw.of<double>({0.9, 0.98, 1.02, 1.44, 2.0});
      for (const char* name : {"v", "v_cache"}) {
        if (kind != "values" || !given.inputs.contains(name)) continue;
        call::Tensor& v = given.inputs.at(name);
        for (std::int64_t i = 0; i < v.size(); i += 7) v.set(i, -v[i]);
      }
      if (kind == "keys") {
        call::Tensor& k = given.inputs.at("k");
        for (std::int64_t i = 0; i < k.size(); i += 3) k.set(i, -k[i]);
      }
      call::Record record = capture(given, plan, 0, seed);
      record.inputs = call.inputs;
      call::Tensor& o = record.outputs.at("o");
      const random::Stream noise(seed, "noise");
      const double size = draw.of<double>({0.003, 0.03, 0.3});
      for (std::int64_t i = 0; i < o.size() && kind == "noise"; ++i) {
        o.set(i, o[i] + size * noise.normal(i));
      }
      if (kind == "one element") o.set(draw.between(0, o.size() - 1), 3.0);
      for (std::int64_t i = o.size() / 2; i < o.size() && kind == "zeros"; ++i) o.set(i, 0.0);
      bool refused = false;
      const auto texts = found_in(record, refused);
      if (!refused) continue;
      if (!texts.empty()) MESSAGE(kind << " seed " << seed << ": " << texts[0]);
      add(counts[kind], texts, false);
    }
  }
  for (const auto& [kind, count] : counts) {
    MESSAGE(kind << ": " << count.refused << " refused, " << count.wrong << " called a set");
    CHECK(count.refused > 0);
    CHECK(count.wrong == 0);
  }
}

// Other numbers, heads and tables are made of the keys that a row is to see, and of no range of
// them.
TEST_CASE("attention: known mistakes in numbers, heads and tables are no visible sets") {
  constexpr int kCases = 2;
  std::vector<call::Record> records;
  for (const cases::Case& c : cases::load_suite("attention_boundary").cases) {
    if (cases::step_count(c) < 3'000'000) records.push_back(cases::make_record(c));
  }
  const calls::Kernel kernel = verdict::emulated_kernel(attention::slice(), flash_contract(), 5);
  int refused = 0;
  for (const calls::Mistake& mistake : mistakes()) {
    const bool is_number = std::ranges::any_of(
        number_mistakes(), [&](const calls::Mistake& m) { return m.name == mistake.name; });
    if (!is_number && mistake.group != "heads" && !mistake.name.starts_with("table_")) continue;
    int made = 0;
    for (const call::Record& honest : records) {
      if (made >= kCases) break;
      if (!mistake.applies(honest)) continue;
      call::Record record = honest;
      record.outputs = calls::stored(record, flash_contract(), mistake.commit(honest, kernel));
      bool is_refused = false;
      const auto texts = found_in(record, is_refused);
      if (!is_refused) continue;
      ++made;
      CAPTURE(std::string(mistake.name));
      CAPTURE(record.case_line);
      CHECK_MESSAGE(texts.empty(), texts[0]);
    }
    refused += made;
  }
  CHECK(refused >= 20);
}

TEST_CASE("attention: keys behind the context, and keys with gaps between them") {
  const call::Record paged = record_of(
      "op=attention mode=decode lens=1,1 ctx=37,53 keys=1,1 H=2 HV=4 K=32 V=32 page=16 pattern=A");
  call::Record call = paged;
  for (const char* name : {"k_cache", "v_cache"}) {
    call::Tensor& cache = call.inputs.at(name);
    const random::Stream stream(5, name);
    for (std::int64_t i = 0; i < cache.size(); ++i) cache.set(i, stream.normal(i));
  }
  Plan plan = make_plan(call);
  for (Request& request : plan.requests) {
    for (std::size_t i = request.runs.size(); i-- > 0;) {
      Run& run = request.runs[i];
      if (run.source != Source::kCache) continue;
      run.count += 16 - (run.row + run.count) % 16;
      break;
    }
  }
  bool refused = false;
  auto texts = found_in(capture(call, plan, 0, 3), refused);
  CHECK(refused);
  CHECK(
      says(texts, "every query sees its cached keys up to the end of the page of 16 keys, beyond"));

  call = record_of("op=attention mode=prefill lens=24 keys=40 H=2 HV=4 K=32 V=32 mask=causal");
  call::Integers positions;
  for (std::int64_t i = 0; i < 40; ++i) positions.push_back(2 * i + 1);
  call.inputs["key_positions"] = call::integer_tensor(positions);
  call.inputs["q_offset"] = call::integer_tensor({56});
  plan = make_plan(call);
  for (std::int64_t i = 0; i < 24; ++i) {
    plan.requests[0].visible[static_cast<std::size_t>(i)].last = 2 * (40 - 24 + i + 1);
  }
  texts = found_in(capture(call, plan, 0, 4), refused);
  CHECK(refused);
  CHECK_MESSAGE(says(texts, "bottom right), counted in keys, not in positions"),
                (texts.empty() ? "" : texts[0]));
}

TEST_CASE("attention: nothing is found in calls that pass") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    suites::Draws draw(seed, kStream);
    const call::Record call = record_of(suites::drawn_attention(draw, "mask=causal", true, 8));
    bool refused = true;
    CHECK(found_in(capture(call, make_plan(call), 0, seed), refused).empty());
    CHECK_FALSE(refused);
  }
}

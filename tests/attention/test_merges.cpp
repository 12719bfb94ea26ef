// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of parts and their merge, made by a kernel in fp32 that knows nothing of the generator
// (suites/unknown/merge_kernel.hpp), are the first that is named; where several partitions give the
// same, only what they share.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "reference/attention/mistakes/mistake.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/suites/unknown/merge_kernel.hpp"
#include "tests/attention/support.hpp"

using namespace goldenrule;
using namespace goldenrule::attention;
using namespace goldenrule::suites;
using namespace goldenrule::test;
using cases::record_of;

namespace {

PartOfKey of_size(std::int64_t size) {
  return [size](const Request&, std::int64_t i) { return i / size; };
}
PartOfKey of_number(std::int64_t number) {
  return [number](const Request& r, std::int64_t i) {
    return i / ((r.key_count() + number - 1) / number);
  };
}
// Fresh keys stand behind the cached ones.
PartOfKey cached_and_fresh() {
  return [](const Request& r, std::int64_t i) {
    for (const Run& run : r.runs) i -= run.source == Source::kCache ? run.count : 0;
    return std::int64_t{i >= 0 ? 1 : 0};
  };
}

call::Record capture_of(const call::Record& call, const MergeInParts& merge) {
  call::Record record = call;
  record.outputs = calls::stored(call, flash_contract(), merge_in_parts<float>(call, merge));
  return record;
}

explain::Diagnosis diagnosis_of(const call::Record& record) {
  return explain::diagnose(
      verdict::judgement(attention::slice(), record, {.contract = flash_contract()}),
      attention::mistakes());
}

std::string first_name(const explain::Diagnosis& d) {
  if (d.explanations.empty() || !d.explanations.front().explains) return "";
  return d.explanations.front().name_and_place();
}

// Requests of unlike lengths tell partitions apart.
std::string drawn_line(std::uint64_t seed) {
  const random::Stream stream(seed, "merges");
  const auto drawn = [&](std::int64_t i, std::int64_t first, std::int64_t last) {
    return first +
           static_cast<std::int64_t>(stream.bits(i) % static_cast<std::uint64_t>(last - first + 1));
  };
  return fmt::format(
      "op=attention mode=decode lens=3,2,4 ctx={},{},{} H=2 HV=4 K=32 V=16 page=16 mask=causal "
      "pattern=A seed={}",
      drawn(0, 250, 400), drawn(1, 401, 520), drawn(2, 100, 190), seed);
}

}  // namespace

TEST_CASE("merges: names and meanings are their own") {
  std::set<std::string_view> names, meanings;
  for (const calls::Mistake& m : mistakes()) names.insert(m.name);
  for (const calls::Mistake& m : merge_mistakes()) {
    CAPTURE(m.name);
    CHECK(names.insert(m.name).second);
    CHECK(meanings.insert(m.meaning).second);
    CHECK(m.meaning.size() < 250);
    CHECK(calls::is_name_of(m, m.name));
    CHECK(calls::is_name_of(m, m.aspects.front().name));
    CHECK_FALSE(calls::is_name_of(m, "merge"));
  }
}

TEST_CASE("merges: a wrong merge is the first that is named, an honest one passes") {
  using enum WrongMerge;
  std::uint64_t seed = 0;
  const auto check = [&](const MergeInParts& merge, const std::string& name) {
    CAPTURE(name);
    const call::Record call = record_of(drawn_line(++seed));
    CHECK(judged(capture_of(call, {merge.part_of}), flash_contract()).verdict ==
          verdict::Verdict::kWithinBudget);
    CHECK(first_name(diagnosis_of(capture_of(call, merge))) == name);
  };
  check({of_size(96), kBaseEOf2}, "merge_base_e_of_2_splits_of_96");
  check({of_number(3), kMean, 0, true}, "merge_unweighted_mean_3_splits_lse_right");
  check({of_size(80), kLost, 1}, "merge_part_lost_part_1_splits_of_80");
  check({cached_and_fresh(), kTwice, 0}, "merge_part_twice_part_0_cache_and_fresh");
  check({of_number(7), kBaseEOf2}, "merge_base_e_of_2_7_splits");
  check({of_size(112), kOwnMaximum}, "merge_own_maximum_splits_of_112");
  // Partitions with as many empty parts of each request give the same.
  check({of_size(192), kEmptyIsOne}, "merge_empty_is_one");
  check({of_number(6), kLseOfLast}, "merge_lse_of_last_6_splits");
  check({of_size(144), kTransposed}, "merge_lse_of_heads_first_splits_of_144");
  check({of_number(4), kLastWriter}, "merge_last_writer_4_splits");
}

TEST_CASE("merges: of partitions that give the same only what they share is said") {
  const call::Record call = record_of(
      "op=attention mode=decode lens=3,2 ctx=253,254 H=2 HV=4 K=32 V=16 page=16 pattern=A seed=4");
  call::Record record = capture_of(call, {of_size(128), WrongMerge::kBaseEOf2});
  CHECK(first_name(diagnosis_of(record)) == "merge_base_e_of_2");
  record.outputs.erase("lse");
  CHECK(first_name(diagnosis_of(record)) == "merge_base_e_of_2");
}

// One number of a call with one row: of more than a thousand weightings some one gives it.
TEST_CASE("merges: a number that fails alone has no name of a merge") {
  const call::Record call = record_of(
      "op=attention mode=decode lens=1 ctx=600 H=1 HV=1 K=32 V=1 page=16 pattern=A seed=6");
  int refused = 0;
  for (int i = 1; i <= 8; ++i) {
    call::Record record = capture_of(call, {of_size(128)});
    call::Tensor& o = record.outputs.at("o");
    o.set(0, o[0] * (1.0 + 0.2 * i));
    const explain::Diagnosis d = diagnosis_of(record);
    if (judged(record, flash_contract()).verdict != verdict::Verdict::kWithinBudget) ++refused;
    CHECK_FALSE(first_name(d).starts_with("merge_"));
  }
  CHECK(refused >= 4);
}

TEST_CASE("merges: they are tried in calls of few keys and queries only") {
  const auto tried = [](const std::string& line) {
    const call::Record call = record_of(line + " H=2 HV=4 K=32 V=16 page=16 pattern=A seed=1");
    return std::ranges::count_if(merge_mistakes(),
                                 [&](const calls::Mistake& m) { return m.applies(call); });
  };
  CHECK(tried("op=attention mode=decode lens=3 ctx=2000") > 500);
  CHECK(tried("op=attention mode=decode lens=3 ctx=2100") == 0);
  CHECK(tried("op=attention mode=decode lens=60 ctx=1000") > 500);
  CHECK(tried("op=attention mode=decode lens=70 ctx=1000") == 0);
}

TEST_CASE("merges: mistakes of the table keep their names") {
  const calls::Kernel kernel = verdict::emulated_kernel(attention::slice(), flash_contract(), 5);
  const call::Record call = record_of(drawn_line(40));
  int refused = 0;
  for (const calls::Mistake& m : mistakes()) {
    if (!m.applies(call)) continue;
    call::Record record = call;
    record.outputs = calls::stored(call, flash_contract(), m.commit(call, kernel));
    const explain::Diagnosis d = diagnosis_of(record);
    if (d.explanations.empty()) continue;
    ++refused;
    CHECK_MESSAGE(!first_name(d).starts_with("merge_"), std::string(m.name));
  }
  CHECK(refused >= 12);
}

// SPDX-License-Identifier: Apache-2.0
//
// A name says which other one comes nearest, and shows a public report only where it stands alone.
#include <doctest/doctest.h>

#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

TEST_CASE("a name says what comes nearest, and its report stands where no other name explains") {
  std::vector<Mistake> table = local_table();
  for (Mistake& m : table) m.reported = "a place";
  const Diagnosis d = diagnosis_of(capture_of(kPrefill, {&kHeadTiled}), table);
  REQUIRE(d.explanations.size() == 1);
  CHECK(d.explanations[0].name() == "head_tiled");
  CHECK(d.explanations[0].reported == std::vector<std::string>{"a place"});
  CHECK(!d.explanations[0].rival.empty());
  CHECK(d.explanations[0].rival != "head_tiled");
  CHECK(d.explanations[0].told_by > 0);

  // One element alone tells the two apart.
  table.push_back(kHeadTiled);
  table.back().name = "head_tiled_and_a_channel";
  table.back().commit = [](const Record& r, const Kernel& kernel) {
    TensorMap outputs = kHeadTiled.commit(r, kernel);
    call::Tensor& o = outputs.at("o");
    o.set(7, o[7] + 1.0);
    return outputs;
  };
  const Record one_more = capture_of(kPrefill, {&table.back()});
  const Diagnosis told = diagnosis_of(one_more, table);
  REQUIRE(!told.explanations.empty());
  CHECK(told.explanations[0].name() == "head_tiled_and_a_channel");
  CHECK(told.explanations[0].rival == "head_tiled");
  CHECK(told.explanations[0].told_by == 1);

  table.back() = kHeadTiled;
  table.back().name = "the_same_by_another_name";
  table.back().reported = "another place";
  const Diagnosis same = diagnosis_of(capture_of(kPrefill, {&kHeadTiled}), table);
  REQUIRE(!same.explanations.empty());
  CHECK(same.explanations[0].same.size() == 1);
  CHECK(same.explanations[0].reported.empty());
}

}  // namespace
}  // namespace goldenrule::explain::test

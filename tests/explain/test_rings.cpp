// SPDX-License-Identifier: Apache-2.0
//
// Mistakes with rings of pending tokens are seen and called by their names.
#include <doctest/doctest.h>

#include "reference/delta/mistakes/table.hpp"
#include "tests/explain/support.hpp"

using namespace goldenrule;
using namespace goldenrule::explain;
using namespace goldenrule::explain::test;

TEST_CASE("rings: every mistake has its name, in fp32 and on tensor cores") {
  int named = 0;
  for (const char* line : {"op=gdn mode=mtp B=4 T=3 H=1 HV=2 K=32 V=16 slots=padded ring=f32 "
                           "io=f32 window=9 seed=2",
                           "op=kda mode=mtp lens=3,0,2,4 H=2 HV=4 K=32 V=16 slots=separate ring=io "
                           "window=10 gate=bounded"}) {
    for (const calls::Mistake& mistake : delta::mistakes()) {
      if (mistake.group != "Rings") continue;
      CAPTURE(line);
      CAPTURE(mistake.name);
      REQUIRE(mistake.applies(make_call(line)));
      const Diagnosis diagnosis = diagnosis_of(capture_of(line, {&mistake}), delta::mistakes());
      REQUIRE_FALSE(diagnosis.explanations.empty());
      CHECK(diagnosis.explanations.front().name() == mistake.name);
      ++named;
    }
  }
  CHECK(named == 24);
}

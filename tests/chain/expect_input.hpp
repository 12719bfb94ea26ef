// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/chain/server.hpp"

namespace goldenrule::testing {

/// The first finding is that call `call` contradicts the chain, in these words.
inline void expect_input(const Judged& judged, std::int64_t call, const std::string& words) {
  REQUIRE(!judged.findings.empty());
  const chain::Finding& finding = judged.findings[0];
  CAPTURE(finding.text);
  CHECK(finding.check == chain::Check::kInput);
  CHECK(finding.verdict == verdict::Verdict::kError);
  CHECK(finding.call == call);
  CHECK(finding.text.find(words) != std::string::npos);
  CHECK(judged.summary.verdict == verdict::Verdict::kError);
}

}  // namespace goldenrule::testing

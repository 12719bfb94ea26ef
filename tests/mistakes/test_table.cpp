// SPDX-License-Identifier: Apache-2.0
//
// The table has exactly the documented names, and every row says what it is.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "reference/bounds/contract.hpp"
#include "reference/mistakes/licence.hpp"
#include "reference/mistakes/mistake.hpp"

using namespace goldenrule;

namespace {

std::set<std::string> words_of(const char* path) {
  std::ifstream file(path);
  REQUIRE(file);
  return {std::istream_iterator<std::string>(file), {}};
}

std::set<std::string> table_names() {
  std::set<std::string> names;
  for (const mistakes::Mistake& m : mistakes::table()) names.emplace(m.name);
  return names;
}

}  // namespace

TEST_CASE("the table has the names of the list") {
  CHECK(table_names() == words_of(GOLDENRULE_MISTAKE_NAMES));
}

TEST_CASE("a meaning is one clause to the author, without a full stop") {
  std::set<std::string_view> meanings;
  for (const mistakes::Mistake& m : mistakes::table()) {
    CAPTURE(m.name);
    CHECK(m.meaning.size() > 10);
    CHECK(m.meaning.size() < 200);
    CHECK_FALSE(m.meaning.ends_with("."));
    CHECK_FALSE(m.group.empty());
    CHECK(meanings.insert(m.meaning).second);
  }
}

TEST_CASE("a licence follows from the contract") {
  const auto& chunk64 = bounds::find_contract("chunk64_bf16");
  const auto& f32 = bounds::find_contract("recurrent_f32");
  const auto& ideal = bounds::find_contract("ideal");
  CHECK_FALSE(mistakes::licence("tf32_operands", chunk64).empty());
  CHECK(mistakes::licence("tf32_operands", f32).empty());
  CHECK_FALSE(mistakes::licence("softplus_no_log1p", f32).empty());
  CHECK_FALSE(mistakes::licence("softplus_no_log1p", chunk64).empty());
  CHECK_FALSE(mistakes::licence("gate_sum_f32", chunk64).empty());
  CHECK(mistakes::licence("gate_sum_f32", f32).empty());
  CHECK_FALSE(mistakes::licence("beta_bf16", chunk64).empty());
  CHECK(mistakes::licence("beta_bf16", f32).empty());
  CHECK(mistakes::licence("gate_bf16", chunk64).empty());
  CHECK_FALSE(mistakes::licence("gate_bf16", bounds::find_contract("chunk16_bf16_state")).empty());
  CHECK(mistakes::licence("cumsum_bf16", chunk64).empty());
  // A contract of fp16 operands grants less than bf16 arithmetic takes.
  bounds::Contract fp16 = chunk64;
  for (auto& point : fp16.rounding) {
    if (point == bounds::Format::kBF16) point = bounds::Format::kF16;
  }
  for (const char* name : {"tf32_operands", "norm_bf16", "output_bf16_for_fp16"}) {
    CAPTURE(name);
    CHECK_FALSE(mistakes::licence(name, chunk64).empty());
    CHECK(mistakes::licence(name, fp16).empty());
  }
  for (const mistakes::Mistake& m : mistakes::table()) {
    CHECK(mistakes::licence(m.name, ideal).empty());
  }
}

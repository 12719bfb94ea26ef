// SPDX-License-Identifier: Apache-2.0
//
// The table has exactly the documented names, and every row says what it is.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "reference/calls/mistake.hpp"
#include "reference/contract/contract.hpp"
#include "reference/delta/mistakes/permitted_by.hpp"
#include "reference/delta/mistakes/table.hpp"

using namespace goldenrule;

namespace {

std::set<std::string> words_of(const char* path) {
  std::ifstream file(path);
  REQUIRE(file);
  return {std::istream_iterator<std::string>(file), {}};
}

std::set<std::string> table_names() {
  std::set<std::string> names;
  for (const calls::Mistake& m : delta::mistakes()) names.emplace(m.name);
  return names;
}

}  // namespace

TEST_CASE("the table has the names of the list") {
  CHECK(table_names() == words_of(GOLDENRULE_MISTAKE_NAMES));
}

TEST_CASE("a meaning is one clause to the author, without a full stop") {
  std::set<std::string_view> meanings;
  for (const calls::Mistake& m : delta::mistakes()) {
    CAPTURE(m.name);
    CHECK(m.meaning.size() > 10);
    CHECK(m.meaning.size() < 200);
    CHECK_FALSE(m.meaning.ends_with("."));
    CHECK_FALSE(m.group.empty());
    CHECK(meanings.insert(m.meaning).second);
  }
}

TEST_CASE("a permitted_by follows from the contract") {
  const auto& chunk64 = contract::find_contract("chunk64_bf16");
  const auto& f32 = contract::find_contract("recurrent_f32");
  const auto& ideal = contract::find_contract("ideal");
  CHECK_FALSE(delta::permitted_by("tf32_operands", chunk64).empty());
  CHECK(delta::permitted_by("tf32_operands", f32).empty());
  CHECK_FALSE(delta::permitted_by("softplus_no_log1p", f32).empty());
  CHECK_FALSE(delta::permitted_by("softplus_no_log1p", chunk64).empty());
  CHECK_FALSE(delta::permitted_by("gate_sum_f32", chunk64).empty());
  CHECK(delta::permitted_by("gate_sum_f32", f32).empty());
  CHECK_FALSE(delta::permitted_by("beta_bf16", chunk64).empty());
  CHECK(delta::permitted_by("beta_bf16", f32).empty());
  CHECK(delta::permitted_by("gate_bf16", chunk64).empty());
  CHECK_FALSE(
      delta::permitted_by("gate_bf16", contract::find_contract("chunk16_bf16_state")).empty());
  CHECK(delta::permitted_by("cumsum_bf16", chunk64).empty());
  // A contract of fp16 operands grants less than bf16 arithmetic takes.
  contract::Contract fp16 = chunk64;
  for (contract::Rounding& point : fp16.roundings()) {
    if (point == contract::Format::kBF16) point = contract::Format::kF16;
  }
  for (const char* name : {"tf32_operands", "norm_bf16", "output_bf16_for_fp16"}) {
    CAPTURE(name);
    CHECK_FALSE(delta::permitted_by(name, chunk64).empty());
    CHECK(delta::permitted_by(name, fp16).empty());
  }
  for (const calls::Mistake& m : delta::mistakes()) {
    CHECK(delta::permitted_by(m.name, ideal).empty());
  }
}

// SPDX-License-Identifier: Apache-2.0
//
// The table has exactly the documented names, and every row says what it is.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "reference/calls/mistake.hpp"
#include "reference/contract/contract.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/mistakes/tables.hpp"

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

// Whether `contract` permits the mistake of this name: every way to make it, or none.
bool is_permitted(std::string_view name, const contract::Contract& contract) {
  std::size_t rows = 0;
  std::size_t permitted = 0;
  for (const calls::Mistake& m : delta::mistakes()) {
    if (m.name != name) continue;
    ++rows;
    permitted += calls::permitted_by(m, contract).empty() ? 0 : 1;
  }
  CAPTURE(name);
  REQUIRE(rows > 0);
  CHECK((permitted == 0 || permitted == rows));
  return permitted == rows;
}

}  // namespace

TEST_CASE("the table has the names of the list") {
  CHECK(table_names() == words_of(GOLDENRULE_MISTAKE_NAMES));
}

TEST_CASE("what was reported in public is a mistake of the table") {
  const std::set<std::string> names = table_names();
  for (const std::string_view name : delta::mistakes_with_threads()) {
    CAPTURE(name);
    CHECK(names.contains(std::string(name)));
    CHECK(delta::public_threads(name).find(" #") != std::string_view::npos);
  }
  const auto reported = std::ranges::count_if(
      delta::mistakes(), [](const calls::Mistake& m) { return !m.reported.empty(); });
  CHECK(reported >= std::ssize(delta::mistakes_with_threads()));
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

TEST_CASE("whether a mistake is permitted follows from the contract") {
  const auto& chunk64 = contract::find_contract("chunk64_bf16");
  const auto& f32 = contract::find_contract("recurrent_f32");
  const auto& ideal = contract::find_contract("ideal");
  CHECK(is_permitted("tf32_operands", chunk64));
  CHECK_FALSE(is_permitted("tf32_operands", f32));
  CHECK(is_permitted("softplus_no_log1p", f32));
  CHECK(is_permitted("softplus_no_log1p", chunk64));
  CHECK(is_permitted("gate_sum_f32", chunk64));
  CHECK_FALSE(is_permitted("gate_sum_f32", f32));
  CHECK(is_permitted("beta_bf16", chunk64));
  CHECK_FALSE(is_permitted("beta_bf16", f32));
  CHECK_FALSE(is_permitted("gate_bf16", chunk64));
  CHECK(is_permitted("gate_bf16", contract::find_contract("chunk16_bf16_state")));
  CHECK_FALSE(is_permitted("cumsum_bf16", chunk64));
  // Activations are rounded by kernels of every kind, the points of a chunk by chunked ones alone.
  const auto& activations = contract::find_contract("recurrent_f32_bf16_activations");
  for (const char* name : {"beta_bf16", "gate_bf16", "norm_bf16"}) {
    CAPTURE(name);
    CHECK(is_permitted(name, activations));
    CHECK_FALSE(is_permitted(name, f32));
  }
  CHECK_FALSE(is_permitted("tf32_operands", activations));
  CHECK_FALSE(is_permitted("gate_sum_f32", activations));
  // A contract of fp16 operands grants less than bf16 arithmetic takes.
  contract::Contract fp16 = chunk64;
  for (contract::Rounding& point : fp16.roundings()) {
    if (point == contract::Format::kBF16) point = contract::Format::kF16;
  }
  for (const char* name : {"tf32_operands", "norm_bf16", "output_bf16_for_fp16"}) {
    CAPTURE(name);
    CHECK(is_permitted(name, chunk64));
    CHECK_FALSE(is_permitted(name, fp16));
  }
  for (const calls::Mistake& m : delta::mistakes()) {
    CHECK(calls::permitted_by(m, ideal).empty());
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "fixtures/call/error.hpp"
#include "reference/bounds/contract_json.hpp"

using namespace goldenrule;

namespace {

// The message of the error that parsing `json` throws; empty if it throws none.
std::string refusal(const std::string& json) {
  try {
    (void)bounds::parse_contract(json, "c.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a contract from JSON says what it declares") {
  const bounds::Contract c = bounds::parse_contract(
      R"({"name":"mine","meaning":"text","state":"bf16","chunk":32,
          "round":{"query":"f16","carried_state":"bf16"}})",
      "c.json");
  CHECK(c.name == "mine");
  CHECK(c.meaning == "text");
  CHECK(c.state_dtype == call::DType::kBF16);
  CHECK(c.chunk == 32);
  CHECK(c.at(bounds::Point::kQuery) == call::DType::kF16);
  CHECK(c.at(bounds::Point::kCarriedState) == call::DType::kBF16);
  CHECK(std::ranges::count_if(c.rounding, [](const auto& t) { return t.has_value(); }) == 2);

  const bounds::Contract r = bounds::parse_contract(
      R"({"name":"r","unit_roundoff":1e-7,"functions":{"exp":1e-6,"norm":2e-6}})", "c.json");
  CHECK(r.unit_roundoff == 1e-7);
  CHECK(r.functions.exp == 1e-6);
  CHECK(r.functions.norm == 2e-6);
  CHECK(r.functions.sigmoid == 0.0);
  CHECK(!r.state_dtype);
}

TEST_CASE("a wrong contract is refused with the key, what is expected and what is there") {
  CHECK(refusal("not json") == "c.json: contract: expected a JSON object, actual no JSON");
  CHECK(refusal("[1]") == "c.json: contract: expected a JSON object, actual array");
  CHECK(refusal(R"({"chunk":16})") == "c.json: name: expected a name, actual none");
  CHECK(refusal(R"({"name":"a","chunks":16})").find("chunks: expected name, meaning") !=
        std::string::npos);
  CHECK(refusal(R"({"name":"a","chunk":-1})") ==
        "c.json: chunk: expected 0 to 4096 tokens, actual -1");
  CHECK(refusal(R"({"name":"a","chunk":1.5})") ==
        "c.json: chunk: expected an integer, actual number");
  CHECK(refusal(R"({"name":"a","state":"f64"})") ==
        "c.json: state: expected f32, f16 or bf16, actual 'f64'");
  CHECK(refusal(R"({"name":"a","chunk":16,"round":{"quark":"bf16"}})")
            .find("round.quark: expected one of query, key") != std::string::npos);
  CHECK(refusal(R"({"name":"a","chunk":16,"round":{"query":"f8"}})") ==
        "c.json: round.query: expected f32, f16 or bf16, actual 'f8'");
  CHECK(refusal(R"({"name":"a","functions":{"tan":1e-6}})").find("functions.tan: expected exp") !=
        std::string::npos);
  CHECK(refusal(R"({"name":"a","unit_roundoff":0.7})").find("unit_roundoff: expected 0 <= x") !=
        std::string::npos);
  CHECK(refusal(R"({"name":"a","unit_roundoff":"x"})") ==
        "c.json: unit_roundoff: expected a number, actual string");
  CHECK(refusal(R"({"name":"a","chunk":16,"unit_roundoff":1e-7})").find("actual both") !=
        std::string::npos);
  CHECK(refusal(R"({"name":"a","round":{"query":"bf16"}})") ==
        "c.json: round: expected a chunk size beside it, actual none");
}

TEST_CASE("every built-in contract is found by its name, and every point has its own name") {
  for (const bounds::Contract& c : bounds::contracts()) {
    CHECK(&bounds::find_contract(c.name) == &c);
    CHECK(!c.meaning.empty());
  }
  CHECK_THROWS_AS((void)bounds::find_contract("chunk"), Error);
  for (std::size_t i = 0; i < bounds::kPoints; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      CHECK(bounds::name_of(static_cast<bounds::Point>(i)) !=
            bounds::name_of(static_cast<bounds::Point>(j)));
    }
  }
}

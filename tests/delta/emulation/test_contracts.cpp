// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/contract/contract_json.hpp"
#include "reference/delta/budget/default_contract.hpp"
#include "tests/contract_refusal.hpp"

using namespace goldenrule;

using test::refusal;

TEST_CASE("a contract from JSON says what it declares") {
  const contract::Contract c = contract::parse_contract(
      R"({"name":"mine","meaning":"text","kind":"chunked","state":"bf16","chunk":32,
          "form":"direct","unit_roundoff":6e-8,"round":{"query":"f16","carried_state":"tf32"}})",
      "c.json");
  CHECK(c.name == "mine");
  CHECK(c.meaning == "text");
  CHECK(c.state_dtype == call::DType::kBF16);
  REQUIRE(c.chunked() != nullptr);
  CHECK(c.chunked()->form == contract::Form::kDirect);
  CHECK(c.chunked()->chunk == 32);
  CHECK(c.tokens_together() == 32);
  CHECK(c.at(contract::Activation::kQuery) == contract::Format::kF16);
  CHECK(c.chunked()->at(contract::Point::kCarriedState) == contract::Format::kTF32);
  CHECK(std::ranges::count_if(c.roundings(), [](const auto& t) { return t.has_value(); }) == 2);

  const contract::Contract r = contract::parse_contract(
      R"({"name":"r","kind":"recurrent","unit_roundoff":1e-7,
          "functions":{"exp":1e-6,"norm":2e-6},"round":{"beta":"bf16"}})",
      "c.json");
  CHECK(r.unit_roundoff() == 1e-7);
  CHECK(r.functions.exp == 1e-6);
  CHECK(r.functions.norm == 2e-6);
  CHECK(r.functions.sigmoid == 0.0);
  CHECK(r.at(contract::Activation::kBeta) == contract::Format::kBF16);
  CHECK(!r.state_dtype);
  CHECK(r.chunked() == nullptr);
  CHECK(r.roundings().size() == contract::kActivations);
  CHECK(r.tokens_together() == 1);
}

TEST_CASE("a contract inherits what it does not say") {
  const contract::Contract& base = contract::find_contract("chunk64_bf16");
  const contract::Contract c = contract::parse_contract(
      R"({"name":"mine","base":"chunk64_bf16","chunk":32,"round":{"inverse":null,"beta":"bf16"}})",
      "c.json");
  REQUIRE(c.chunked() != nullptr);
  CHECK(c.chunked()->chunk == 32);
  CHECK(c.functions == base.functions);
  CHECK(c.unit_roundoff() == base.unit_roundoff());
  CHECK(!c.chunked()->at(contract::Point::kInverse));
  CHECK(c.at(contract::Activation::kBeta) == contract::Format::kBF16);
  CHECK(c.at(contract::Activation::kKey) == contract::Format::kBF16);
  // Only what it names.
  const contract::Contract d = contract::parse_contract(
      R"({"name":"d","base":"chunk64_bf16","inherits":["kind","chunk"],"unit_roundoff":6e-8})",
      "c.json");
  REQUIRE(d.chunked() != nullptr);
  CHECK(d.chunked()->chunk == 64);
  CHECK(std::ranges::count(d.roundings(), contract::Rounding()) == contract::kPoints);
  CHECK(d.functions == contract::FunctionErrors{});
}

TEST_CASE("a contract keeps of a base of another kind what its own kind can have") {
  const contract::Contract r = contract::parse_contract(
      R"({"name":"r","base":"chunk64_bf16","kind":"recurrent",
          "inherits":["functions","state","unit_roundoff"]})",
      "c.json");
  CHECK(r.model_name() == "recurrent");
  CHECK(r.functions == contract::find_contract("chunk64_bf16").functions);
  CHECK(r.state_dtype == call::DType::kF32);
  const contract::Contract c = contract::parse_contract(
      R"({"name":"c","base":"recurrent_f32_bf16_activations","kind":"chunked","chunk":8,
          "form":"direct"})",
      "c.json");
  REQUIRE(c.chunked() != nullptr);
  CHECK(c.chunked()->chunk == 8);
  CHECK(c.chunked()->form == contract::Form::kDirect);
  CHECK(c.unit_roundoff() == 0x1p-24);
  CHECK(c.at(contract::Activation::kGate) == contract::Format::kBF16);
  CHECK(std::ranges::count_if(c.roundings(), [](const auto& t) { return t.has_value(); }) == 4);
  CHECK(refusal(R"({"name":"r","base":"chunk64_bf16","kind":"recurrent"})") ==
        "c.json: chunk: expected none in a contract of kind recurrent, actual 64");
  CHECK(refusal(R"({"name":"r","base":"chunk64_bf16","kind":"recurrent","chunk":0})") ==
        "c.json: form: expected none in a contract of kind recurrent, actual \"wy\"");
  CHECK(refusal(R"({"name":"r","base":"chunk64_bf16","kind":"recurrent","chunk":0,"form":null})") ==
        "c.json: round.beta_v: expected query, key, beta or gate in a contract of kind recurrent, "
        "actual this key");
}

TEST_CASE("a printed contract is read as the same") {
  for (const contract::Contract& contract : contract::contracts()) {
    contract::Contract renamed = contract;
    renamed.name = "mine";
    const contract::Contract read = contract::parse_contract(contract::to_json(renamed), "c.json");
    CHECK(contract::to_json(read) == contract::to_json(renamed));
    CHECK(contract::is_no_wider(read, contract));
    CHECK(contract::is_no_wider(contract, read));
  }
}

TEST_CASE("a wrong contract is refused with the key, what is expected and what is there") {
  const struct {
    const char* json;
    const char* message;
  } rows[] = {
      {"not json", "c.json: contract: expected a JSON object, actual no JSON"},
      {"[1]", "c.json: contract: expected a JSON object, actual array"},
      {R"({"chunk":16})", "c.json: name: expected a name, actual none"},
      {R"({"name":"a","name":"b"})",
       "c.json: contract: expected each key once, actual \"name\" twice"},
      {R"({"name":"a b"})",
       "c.json: name: expected 1 to 64 letters, digits or _ . + -, actual \"a b\""},
      {R"({"name":"a\nb"})",
       "c.json: name: expected 1 to 64 letters, digits or _ . + -, actual \"a\\nb\""},
      {R"({"name":"ideal"})",
       "c.json: name: expected a name that no built-in contract has, actual 'ideal'"},
      {R"({"name":"a","chunks":16})",
       "c.json: chunks: expected name, base, inherits, meaning, kind, "
       "state, unit_roundoff, round, functions, chunk, segment, form or adjoint, actual this key"},
      {R"({"name":"a"})",
       "c.json: kind: expected ideal, recurrent, chunked, softmax or chunked_adjoint (or a base), "
       "actual none"},
      {R"({"name":"a","kind":"fast"})",
       "c.json: kind: expected ideal, recurrent, chunked, softmax or chunked_adjoint, actual "
       "'fast'"},
      {R"({"name":"a","kind":"chunked","chunk":64})",
       "c.json: unit_roundoff: expected the unit "
       "roundoff of the kernel's arithmetic, above 0, actual none"},
      {R"({"name":"a","kind":"chunked","unit_roundoff":6e-8})",
       "c.json: chunk: expected a chunk size, actual none"},
      {R"({"name":"a","kind":"recurrent","unit_roundoff":6e-8,"chunk":8})",
       "c.json: chunk: expected none in a contract of kind recurrent, actual 8"},
      {R"({"name":"a","kind":"ideal","functions":{"exp":1e-6}})",
       "c.json: functions.exp: expected none in a contract of kind ideal, actual this key"},
      {R"({"name":"a","kind":"recurrent","unit_roundoff":6e-8,"round":{"inverse":"bf16"}})",
       "c.json: round.inverse: expected query, key, beta or gate in a contract of kind recurrent, "
       "actual this key"},
      {R"({"name":"a","kind":"recurrent","unit_roundoff":6e-8,"round":{"inverted":null}})",
       "c.json: round.inverted: expected query, key, beta or gate in a contract of kind recurrent, "
       "actual this key"},
      {R"({"name":"a","base":"chunk64_bf16","inherits":["functions"],"unit_roundoff":6e-8})",
       "c.json: kind: expected ideal, recurrent, chunked, softmax or chunked_adjoint (or a base), "
       "actual none"},
      {R"({"name":"a","base":"recurrent_f32","form":"direct"})",
       "c.json: form: expected none in a contract of kind recurrent, actual \"direct\""},
      {R"({"name":"a","kind":"ideal","unit_roundoff":6e-8})",
       "c.json: unit_roundoff: expected none in a contract of kind ideal, actual 6e-08"},
      {R"({"name":"a","inherits":["round"]})",
       "c.json: inherits: expected a base beside it, actual none"},
      {R"({"name":"a","base":"ideal","inherits":["rond"]})",
       "c.json: inherits: expected kind, state, "
       "unit_roundoff, round, functions, chunk, segment, form or adjoint, actual \"rond\""},
      {R"({"name":"a","base":"chunk64_bf16","chunk":-1})",
       "c.json: chunk: expected 0 to 4096 tokens, actual -1"},
      {R"({"name":"a","base":"chunk64_bf16","chunk":18446744073709551615})",
       "c.json: chunk: expected 0 to 4096 tokens, actual 18446744073709551615"},
      {R"({"name":"a","base":"chunk64_bf16","chunk":1.5})",
       "c.json: chunk: expected an integer, actual number"},
      {R"({"name":"a","base":"ideal","state":"f64"})",
       "c.json: state: expected f32, f16 or bf16, actual 'f64'"},
      {R"({"name":"a","base":"chunk64_bf16","round":{"query":"f8"}})",
       "c.json: round.query: expected f32, tf32, f16, bf16, any16 or bf16x2, actual 'f8'"},
      {R"({"name":"a","base":"recurrent_f32","functions":{"tan":1e-6}})",
       "c.json: functions.tan: expected exp, log, log_alpha, softplus, logit, sigmoid or norm in a "
       "contract of kind recurrent, actual this key"},
      {R"({"name":"a","base":"recurrent_f32","functions":7})",
       "c.json: functions: expected an object, actual number"},
      {R"({"name":"a","base":"recurrent_f32","unit_roundoff":0.7})",
       "c.json: unit_roundoff: expected 0 <= x < 0.5, actual 0.7"},
      {R"({"name":"a","base":"recurrent_f32","unit_roundoff":"x"})",
       "c.json: unit_roundoff: expected a number, actual string"},
  };
  for (const auto& row : rows) CHECK(refusal(row.json) == row.message);
  CHECK(refusal(R"({"name":"a","base":"chunk64_bf16","round":{"quark":"bf16"}})")
            .starts_with("c.json: round.quark: expected query, key, beta"));
  CHECK(refusal(R"({"name":"a","base":"b"})").starts_with("c.json: base: expected one of ideal"));
}

TEST_CASE("of two contracts the wider one is known where it can be") {
  const auto no_wider = [](const char* a, const char* b) {
    return contract::is_no_wider(contract::find_contract(a), contract::find_contract(b));
  };
  CHECK(no_wider("ideal", "recurrent_f32"));
  CHECK(no_wider("recurrent_f32", "chunk64_bf16"));
  CHECK(no_wider("chunk64_f32", "chunk64_bf16"));
  CHECK(no_wider("chunk64_tf32", "chunk64_bf16"));
  CHECK(no_wider("chunk64_bf16", "chunk64_16bit"));
  CHECK_FALSE(no_wider("chunk64_16bit", "chunk64_bf16"));
  CHECK(no_wider("recurrent_f32", "recurrent_bf16_state"));
  CHECK_FALSE(no_wider("chunk64_bf16", "chunk64_f32"));
  CHECK_FALSE(no_wider("recurrent_bf16_state", "recurrent_f32"));
  CHECK_FALSE(no_wider("chunk16_bf16_state", "chunk64_bf16"));
  CHECK_FALSE(no_wider("chunk64_bf16", "chunk16_bf16_state"));  // other chunks round other values
  CHECK_FALSE(no_wider("recurrent_f32_bf16_activations", "chunk64_f32"));
  CHECK_FALSE(no_wider("recurrent_f32", "ideal"));
}

TEST_CASE("the contract that a call implies") {
  const struct {
    const char* line;
    const char* contract;
  } rows[] = {
      {"op=gdn mode=decode B=2 H=1 HV=1 K=4 V=4", "recurrent_f32"},
      {"op=gdn mode=mtp B=2 T=2 H=1 HV=1 K=4 V=4 state=bf16", "recurrent_bf16_state"},
      {"op=gdn mode=prefill lens=5 H=1 HV=1 K=4 V=4", "chunk64_bf16"},
      {"op=gdn mode=prefill lens=5 H=1 HV=1 K=4 V=4 io=f16", "chunk64_16bit"},
      {"op=gdn mode=prefill lens=5 H=1 HV=1 K=4 V=4 io=f32", "chunk64_f32"},
      {"op=kda mode=prefill lens=5 H=1 HV=1 K=4 V=4 h0=1 state=bf16", "chunk16_bf16_state"},
      {"op=kda mode=prefill lens=5 H=1 HV=1 K=4 V=4 h0=1 io=f32", "chunk64_f32"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.line);
    call::Record record = cases::make_record(cases::parse(row.line));
    CHECK(delta::default_contract(record).name == row.contract);
    // A claim that is wider, or cannot be compared, is none; one that is tighter is taken.
    record.contract = "chunk16_bf16_state";
    CHECK(delta::default_contract(record).name == row.contract);
    record.contract = "ideal";
    CHECK(delta::default_contract(record).name == "ideal");
    record.contract = "mine";
    CHECK_THROWS_AS((void)delta::default_contract(record), Error);
  }
}

TEST_CASE("every built-in contract is found by its name, and every point has its own name") {
  for (const contract::Contract& c : contract::contracts()) {
    CHECK(&contract::find_contract(c.name) == &c);
    CHECK(!c.meaning.empty());
  }
  CHECK_THROWS_AS((void)contract::find_contract("chunk"), Error);
  for (std::size_t i = 0; i < contract::kPoints; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      CHECK(contract::point_name(i) != contract::point_name(j));
    }
  }
}

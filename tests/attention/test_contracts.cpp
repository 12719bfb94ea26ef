// SPDX-License-Identifier: Apache-2.0
//
// Contracts of attention that a person writes: what a file may say of them, and that a verdict
// follows what it says.
#include <doctest/doctest.h>

#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/attention/slice.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/contract/contract_json.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/contract_refusal.hpp"

using namespace goldenrule;

namespace {

using test::refusal;

contract::Contract mine(const std::string& rest) {
  return contract::parse_contract(R"({"name":"mine",)" + rest + "}", "c.json");
}

constexpr const char* kFlash = R"("kind":"softmax","unit_roundoff":5.9604644775390625e-08,)";

}  // namespace

TEST_CASE("attention: a contract of one's own begins with a built-in one") {
  const auto eager = contract::find_contract("eager_bf16");
  const contract::Contract same = mine(R"("base":"eager_bf16")");
  CHECK(same.softmax()->rounds == eager.softmax()->rounds);
  CHECK(same.softmax()->tanh_error == eager.softmax()->tanh_error);
  CHECK(same.is_of(call::Family::kAttention));
  CHECK_FALSE(same.is_of(call::Family::kDelta));

  const contract::Contract other =
      mine(R"("base":"flash_bf16","round":{"sum":"type of q"},"functions":{"tanh":0})");
  CHECK(other.softmax()->rounds ==
        contract::find_contract("flash_bf16_rounded_sum").softmax()->rounds);
  CHECK(other.softmax()->exp2_error == 0x1p-22);  // of the base
  CHECK(other.softmax()->tanh_error == 0.0);

  // Of the base only what is listed; what is not said is exact.
  const contract::Contract part =
      mine(std::string(kFlash) + R"("base":"flash_bf16","inherits":["functions"])");
  CHECK(part.softmax()->rounds == decltype(part.softmax()->rounds){});
  CHECK(part.softmax()->exp2_error == 0x1p-22);
  CHECK(mine(std::string(kFlash) + R"("round":{})").softmax()->exp2_error == 0.0);
  const contract::Contract fp32 = mine(R"("base":"flash_bf16","round":{"weights":null})");
  CHECK_FALSE(fp32.softmax()->at(contract::SoftmaxPoint::kWeights));
}

TEST_CASE(
    "attention: a wrong contract is refused with the key, what is expected and what is there") {
  const std::string attention = std::string(R"({"name":"a",)") + kFlash;
  const struct {
    std::string json, message;
  } rows[] = {
      {R"({"name":"a","kind":"softmax"})",
       "c.json: unit_roundoff: expected the unit roundoff of the kernel's arithmetic, above 0, "
       "actual "
       "none"},
      {R"({"name":"a","kind":"softmax","unit_roundoff":0.001})",
       "c.json: unit_roundoff: expected 5.960464477539063e-08: kernels of attention add in fp32, "
       "actual 0.001"},
      {attention + R"("round":{"weights":"bf16"}})",
       "c.json: round.weights: expected type of q, actual 'bf16'"},
      {attention + R"("round":{"weights":7}})",
       "c.json: round.weights: expected a string, actual number"},
      {attention + R"("round":{"inverse":"bf16"}})",
       "c.json: round.inverse: expected scores, weights or sum in a contract of kind softmax, "
       "actual this key"},
      {attention + R"("round":{"sum":"type of q"}})",
       "c.json: round.sum: expected rounded weights beside it, and no stored scores, actual "
       "weights "
       "that are not rounded"},
      {attention + R"("round":{"scores":"type of q"}})",
       "c.json: round.scores: expected rounded weights beside stored scores, actual weights that "
       "are "
       "not"},
      {R"({"name":"a","base":"eager_bf16","round":{"sum":"type of q"}})",
       "c.json: round.sum: expected rounded weights beside it, and no stored scores, actual stored "
       "scores"},
      {attention + R"("functions":{"exp":1e-6}})",
       "c.json: functions.exp: expected exp2 or tanh in a contract of kind softmax, actual this "
       "key"},
      {attention + R"("functions":{"exp2":-1}})",
       "c.json: functions.exp2: expected 0 <= x < 0.5, actual -1"},
      {attention + R"("state":"bf16"})",
       "c.json: state: expected none in a contract of kind softmax, actual \"bf16\""},
      {attention + R"("chunk":64})",
       "c.json: chunk: expected none in a contract of kind softmax, actual 64"},
      {attention + R"("form":"wy"})",
       "c.json: form: expected none in a contract of kind softmax, actual \"wy\""},
      {R"({"name":"a","base":"recurrent_f32","round":{"weights":"type of q"}})",
       "c.json: round.weights: expected query, key, beta or gate in a contract of kind recurrent, "
       "actual this key"},
      {R"({"name":"a","base":"recurrent_f32","functions":{"exp2":1e-7}})",
       "c.json: functions.exp2: expected exp, log, log_alpha, softplus, logit, sigmoid or norm in "
       "a "
       "contract of kind recurrent, actual this key"},
      {R"({"name":"a","base":"flash_bf16","kind":"recurrent"})",
       "c.json: round.weights: expected query, key, beta or gate in a contract of kind recurrent, "
       "actual this key"},
      {R"({"name":"a","base":"chunk64_bf16","kind":"softmax"})",
       "c.json: state: expected none in a contract of kind softmax, actual \"f32\""},
      {R"({"name":"flash_bf16","base":"flash_bf16"})",
       "c.json: name: expected a name that no built-in contract has, actual 'flash_bf16'"},
  };
  for (const auto& row : rows) CHECK(refusal(row.json) == row.message);
}

TEST_CASE("attention: a verdict follows a contract of one's own") {
  const call::Record call = cases::make_record(
      cases::parse("op=attention mode=decode lens=4,4 ctx=100,31 H=1 HV=2 K=32 V=16 pattern=C"));
  const auto verdict_of = [&](const contract::Contract& kernel,
                              const contract::Contract& declared) {
    call::Record record = call;
    record.outputs = calls::stored(record, kernel, attention::slice().emulate(record, kernel, 3));
    return verdict::judgement(attention::slice(), record, {.contract = declared}).report.verdict;
  };
  const contract::Contract fp32 = mine(R"("base":"flash_bf16","round":{"weights":null})");
  const contract::Contract rough = mine(R"("base":"flash_bf16","functions":{"exp2":0.01})");
  const contract::Contract& flash = contract::find_contract("flash_bf16");
  CHECK(verdict_of(fp32, fp32) == verdict::Verdict::kWithinBudget);
  CHECK(verdict_of(flash, fp32) == verdict::Verdict::kOutOfBudget);
  CHECK(verdict_of(rough, rough) == verdict::Verdict::kWithinBudget);
  CHECK(verdict_of(rough, flash) == verdict::Verdict::kOutOfBudget);
}

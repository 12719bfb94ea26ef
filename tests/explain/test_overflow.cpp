// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that leave the range of fp32 are named by what was written before and beside it.
#include <doctest/doctest.h>

#include <cmath>

#include "reference/delta/slice.hpp"
#include "reference/explain/overflow.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

const Mistake kNormIgnored{.name = "norm_ignored",
                           .group = "test",
                           .meaning = "does not normalise q and k",
                           .applies = always,
                           .commit = [](const Record& r, const Kernel& kernel) {
                             Record changed = r;
                             changed.convention.qk_l2norm = call::QkNorm::kNone;
                             return kernel(changed);
                           }};

// V = 3 values of HV = 2 heads and 20 + 5 tokens.
const std::string kTwoSequences = "op=gdn mode=prefill lens=20,5 H=1 HV=2 K=4 V=3 gate=log h0=1";

std::int64_t nonfinite(const call::Tensor& t) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < t.size(); ++i) count += std::isfinite(t[i]) ? 0 : 1;
  return count;
}

// Keys of norm 4 to 16 and cosine .95 multiply the state by 1 - beta ||k||^2, some -30, at each
// token: fp32 ends after about 38 / log10(30) = 26 of them. The sequences of 70 and 33 tokens go
// beyond, that of 1 does not.
TEST_CASE("overflow: the mistake is named though much of what it wrote is not finite") {
  std::vector<Mistake> table = local_table();
  table.push_back(kNormIgnored);
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  Record capture = make_call(kPrefill + " pattern=B95");
  const TensorMap outputs =
      kNormIgnored.commit(capture, verdict::emulated_kernel(delta::slice(), contract, 7));
  capture.outputs = calls::stored(capture, contract, outputs);
  capture.contract = contract.name;
  call::Tensor& o = capture.outputs.at("o");
  REQUIRE(nonfinite(o) > o.size() / 4);
  REQUIRE(nonfinite(o) < o.size() / 4 * 3);
  const Diagnosis d = diagnosis_of(capture, table);
  REQUIRE(!d.explanations.empty());
  CHECK(d.explanations[0].name() == "norm_ignored");
  CHECK(d.explanations[0].explains);

  // A NaN where nothing overflows, in the sequence of one token, is not forgiven.
  o.set(o.size() - o.shape().back(), std::nan(""));
  CHECK(std::ranges::none_of(diagnosis_of(capture, table).explanations, &Explanation::explains));
}

// The elements of `name` that may overflow when element `at` of `where` is predicted beyond fp32.
std::vector<std::int64_t> marked(const char* contract, const std::string& where, std::int64_t at,
                                 const std::string& name) {
  const Record record = capture_of(kTwoSequences, {});
  const contract::Contract& c = contract::find_contract(contract);
  const auto judgement = verdict::judgement(
      delta::slice(), record, {.contract = c, .precision = scalar::Precision::kDouble});
  const Capture capture = make_capture(judgement);
  Prediction prediction;
  for (const auto& [output, e] : capture.expected.outputs) {
    prediction.outputs[output] = {.value = e.exact.golden,
                                  .spread = std::vector<float>(e.exact.golden.size()),
                                  .may_overflow = {}};
  }
  prediction.outputs.at(where).value[static_cast<std::size_t>(at)] = -1e39;
  mark_overflows(capture, prediction);
  const std::vector<bool>& may = prediction.outputs.at(name).may_overflow;
  std::vector<std::int64_t> found;
  for (std::size_t i = 0; i < may.size(); ++i) {
    if (may[i]) found.push_back(static_cast<std::int64_t>(i));
  }
  return found;
}

// The elements of o of one head and tokens [first, last) of the packed axis.
std::vector<std::int64_t> rows(std::int64_t head, std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> elements;
  for (std::int64_t t = first; t < last; ++t) {
    for (std::int64_t v = 0; v < 3; ++v) elements.push_back((t * 2 + head) * 3 + v);
  }
  return elements;
}

TEST_CASE("overflow: from its token, or the start of its chunk, to the end of its sequence") {
  using Elements = std::vector<std::int64_t>;
  const std::int64_t token_18 = rows(1, 18, 19)[2];
  CHECK(marked("recurrent_f32", "o", token_18, "o") == rows(1, 18, 20));
  CHECK(marked("chunk16_bf16_state", "o", token_18, "o") == rows(1, 16, 20));
  CHECK(marked("chunk64_bf16", "o", token_18, "o") == rows(1, 0, 20));
  // final_state [2,2,3,4]: sequence 0, head 1.
  const Elements state{12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
  CHECK(marked("recurrent_f32", "o", token_18, "final_state") == state);
  // A state that overflows did so in its last token at the latest.
  CHECK(marked("recurrent_f32", "final_state", 12, "final_state") == state);
  CHECK(marked("recurrent_f32", "final_state", 12, "o") == rows(1, 19, 20));
  // The other sequence.
  CHECK(marked("recurrent_f32", "o", rows(0, 22, 23)[0], "o") == rows(0, 22, 25));
}

}  // namespace
}  // namespace goldenrule::explain::test

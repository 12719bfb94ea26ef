// SPDX-License-Identifier: Apache-2.0
//
// What a draft acceptance may be asked for: refusals with place, expectation and value, and what
// nobody reads, which may hold anything.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "fixtures/call/error.hpp"
#include "reference/drafts/plan/plan.hpp"
#include "tests/drafts/calls.hpp"

using namespace goldenrule;
using namespace goldenrule::drafts;
using drafts::test::f32;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

call::Record greedy() { return test::greedy({5, 6, 7, 8}); }
call::Record rejection() {
  return test::rejection({0.5, 0.125, 0.25, 0.125}, {0.25, 0.25, 0.25, 0.25}, 0.5, 0.5);
}

void check_refused(call::Record record, const std::function<void(call::Record&)>& change,
                   const std::string& where, const std::string& expected) {
  change(record);
  CAPTURE(where);
  try {
    (void)make_plan(record);
    FAIL("not refused");
  } catch (const Error& e) {
    CHECK(e.where() == where);
    CHECK_MESSAGE(e.expected().find(expected) != std::string::npos, e.what());
    CHECK(std::string(e.what()).find('\n') == std::string::npos);
  }
}

using Change = std::function<void(call::Record&)>;

Change set(const char* name, std::int64_t i, double x) {
  return [=](call::Record& r) { r.inputs.at(name).set(i, x); };
}
Change put(const char* name, const call::Tensor& tensor) {
  return [=](call::Record& r) { r.inputs[name] = tensor; };
}
Change erase(const char* name) {
  return [=](call::Record& r) { r.inputs.erase(name); };
}

}  // namespace

TEST_CASE("draft acceptance: calls that make no sense are refused by name") {
  CHECK_NOTHROW((void)make_plan(greedy()));
  CHECK_NOTHROW((void)make_plan(rejection()));
  check_refused(greedy(), set("start", 0, -2), "/inputs/start[0]", "-1 to 2147483643");
  check_refused(greedy(), set("start", 0, 2147483644), "/inputs/start[0]", "-1 to 2147483643");
  check_refused(greedy(), set("draft_tokens", 1, -1), "/inputs/draft_tokens[0,1]", "a token");
  check_refused(greedy(), set("target_tokens", 3, -1), "/inputs/target_tokens[0,3]", "a token");
  check_refused(greedy(), put("stop_tokens", call::integer_tensor({3, -1})),
                "/inputs/stop_tokens[1]", "0 to");
  check_refused(greedy(), put("draft_lens", call::integer_tensor({4})), "/inputs/draft_lens[0]",
                "0 to 3");
  check_refused(greedy(), put("uniforms", f32({0.5, 0.5, 0.5}, {1, 3})), "/inputs/uniforms",
                "mode 'greedy' reads");
  check_refused(greedy(), put("start", call::integer_tensor({1, 2})), "/inputs/start", "[1]");
  check_refused(greedy(), put("target_tokens", call::integer_tensor({5, 6, 7}, {1, 3})),
                "/inputs/target_tokens", "[1,4]");
  check_refused(
      greedy(), [](call::Record& r) { r.mode = call::Mode::kDecode; }, "/@mode",
      "greedy or rejection");
  check_refused(
      greedy(), [](call::Record& r) { r.convention.page_size = 0; }, "/convention@page_size",
      "1 to");

  check_refused(rejection(), set("draft_tokens", 0, 4), "/inputs/draft_tokens[0,0]", "0 to 3");
  check_refused(rejection(), set("target_probs", 2, -0.25), "/inputs/target_probs[0,0,2]",
                "a probability");
  check_refused(rejection(), set("target_probs", 7, kNaN), "/inputs/target_probs[0,1,3]",
                "a probability");
  check_refused(rejection(), set("target_probs", 0, 0.5625), "/inputs/target_probs[0,0]",
                "whose sum is 1");
  check_refused(rejection(), set("draft_probs", 0, 0.0), "/inputs/draft_probs[0,0]",
                "whose sum is 1");
  check_refused(rejection(), set("uniforms", 0, 1.5), "/inputs/uniforms[0,0]", "0 to 1");
  check_refused(rejection(), set("uniforms", 0, kNaN), "/inputs/uniforms[0,0]", "0 to 1");
  check_refused(rejection(), set("recover_uniforms", 0, -0.5), "/inputs/recover_uniforms[0]",
                "0 to 1");
  check_refused(rejection(), erase("recover_uniforms"), "/inputs/recover_uniforms", "[1]");
  check_refused(rejection(), erase("draft_probs"), "/inputs/draft_probs", "[1,1,4]");
  check_refused(rejection(), put("recover_noise", f32({1, 1, 1, 1}, {1, 4})),
                "/inputs/recover_noise", "reads");
  check_refused(rejection(), put("bonus_tokens", call::integer_tensor({1})), "/inputs/target_probs",
                "[1,1,4]");
  check_refused(rejection(), put("target_probs", call::Tensor(call::DType::kF64, {1, 2, 4})),
                "/inputs/target_probs", "f32, bf16 or f16");
  const auto noise = [](const std::vector<double>& values) {
    return [=](call::Record& r) {
      r.inputs.erase("recover_uniforms");
      r.inputs["recover_noise"] = f32(values, {1, 4});
    };
  };
  check_refused(rejection(), noise({1, 0, 1, 1}), "/inputs/recover_noise[0,1]", "above 0");
  check_refused(rejection(), noise({1, 1, INFINITY, 1}), "/inputs/recover_noise[0,2]", "above 0");
}

TEST_CASE("draft acceptance: what no row reads may hold anything") {
  call::Record r = rejection();
  r.inputs["draft_lens"] = call::integer_tensor({0});
  r.inputs["draft_tokens"].set(0, -5);
  r.inputs["uniforms"].set(0, kNaN);
  r.inputs["draft_probs"].set(0, kNaN);
  r.inputs["target_probs"].set(4, 0.25);
  CHECK_NOTHROW((void)make_plan(r));
  r.inputs["target_probs"].set(0, kNaN);  // position 0 is read: its token is the one emitted
  CHECK_THROWS_AS((void)make_plan(r), Error);
  r.inputs["start"].set(0, -1);
  r.inputs["recover_uniforms"].set(0, kNaN);
  CHECK_NOTHROW((void)make_plan(r));
}

TEST_CASE("draft acceptance: sums may err by what a softmax and the type can do") {
  CHECK(sum_bound(call::DType::kF32, 7) < 2e-6);
  CHECK(sum_bound(call::DType::kF32, 151936) < 0.01);
  CHECK(sum_bound(call::DType::kBF16, 7) > 0x1p-8);
  CHECK(sum_bound(call::DType::kF16, 151936) > 151936 * 0x1p-25);
}

// SPDX-License-Identifier: Apache-2.0
//
// The rule against numbers worked out by hand: acceptance, the token behind the drafts, stops,
// counts, caches and pages, and what is open in fp32.
#include <doctest/doctest.h>

#include <cmath>

#include "reference/drafts/rule/decide.hpp"
#include "reference/drafts/rule/evaluate.hpp"
#include "reference/drafts/rule/fixed.hpp"
#include "tests/drafts/calls.hpp"

using namespace goldenrule;
using namespace goldenrule::drafts;
using drafts::test::f32;
using drafts::test::greedy;
using drafts::test::rejection;

namespace {

using Numbers = std::vector<double>;
constexpr double kOpen = -1e9;  // an element that is not judged

Numbers of(const verdict::Expectations& e, const char* name) {
  const verdict::Exact& exact = e.outputs.at(name).exact;
  Numbers numbers = exact.golden;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!exact.is_defined(i)) numbers[i] = kOpen;
  }
  return numbers;
}
Numbers of(const call::Record& record, const char* name) { return of(evaluate(record), name); }

}  // namespace

TEST_CASE("draft acceptance: a greedy row emits what matches and one token more") {
  const call::Record r = greedy({5, 6, 9, 3});
  CHECK(of(r, "tokens") == Numbers{5, 6, 9, -1});
  CHECK(of(r, "accepted") == Numbers{2});
  CHECK(of(r, "committed") == Numbers{3});
  CHECK(of(r, "target_len") == Numbers{13});
  CHECK(of(r, "draft_len") == Numbers{10});
  CHECK(of(r, "next_anchor") == Numbers{9});
  CHECK(of(r, "keep") == Numbers{1, 1, 1, 0});
  CHECK(of(r, "release_from") == Numbers{4});  // pages of 4: 13 tokens use four
}

TEST_CASE("draft acceptance: all accepted, none accepted, matches behind a rejection") {
  CHECK(of(greedy({5, 6, 7, 8}), "tokens") == Numbers{5, 6, 7, 8});
  CHECK(of(greedy({5, 6, 7, 8}), "accepted") == Numbers{3});
  CHECK(of(greedy({4, 6, 7, 8}), "tokens") == Numbers{4, -1, -1, -1});
  CHECK(of(greedy({4, 6, 7, 8}), "accepted") == Numbers{0});
  CHECK(of(greedy({4, 6, 7, 8}), "committed") == Numbers{1});
  CHECK(of(greedy({5, 9, 7, 8}), "accepted") == Numbers{1});
}

TEST_CASE("draft acceptance: pages, crops and pad tokens are as they are asked for") {
  call::Record r = greedy({5, 9, 7, 8});  // start + c = 12
  CHECK(of(r, "release_from") == Numbers{3});
  r.convention.page_size = 1;
  r.convention.pad_token = 0;
  r.convention.draft_crop = call::DraftCrop::kNewStart;
  CHECK(of(r, "release_from") == Numbers{12});
  CHECK(of(r, "draft_len") == Numbers{12});
  CHECK(of(r, "tokens") == Numbers{5, 9, 0, 0});
}

TEST_CASE("draft acceptance: a stop ends what is emitted, not what is accepted") {
  call::Record r = greedy({5, 6, 7, 8});
  r.inputs["stop_tokens"] = call::integer_tensor({99, 6, 7});
  CHECK(of(r, "tokens") == Numbers{5, 6, -1, -1});
  CHECK(of(r, "accepted") == Numbers{3});
  CHECK(of(r, "committed") == Numbers{2});
  CHECK(of(r, "next_anchor") == Numbers{6});
  CHECK(of(r, "target_len") == Numbers{12});
  CHECK(of(r, "keep") == Numbers{1, 1, 0, 0});
  r.inputs["stop_tokens"] = call::integer_tensor({8});
  CHECK(of(r, "committed") == Numbers{4});
}

TEST_CASE("draft acceptance: rows of padding emit and release nothing, whatever they hold") {
  call::Record r = greedy({-1, -1, -1, -1});
  r.inputs["start"] = call::integer_tensor({-1});
  r.inputs["draft_tokens"] = call::integer_tensor({-7, -7, -7}, {1, 3});
  CHECK(of(r, "tokens") == Numbers{-1, -1, -1, -1});
  CHECK(of(r, "accepted") == Numbers{0});
  CHECK(of(r, "committed") == Numbers{0});
  CHECK(of(r, "target_len") == Numbers{-1});
  CHECK(of(r, "draft_len") == Numbers{-1});
  CHECK(of(r, "keep") == Numbers{0, 0, 0, 0});
  CHECK(of(r, "release_from") == Numbers{-1});
}

TEST_CASE("draft acceptance: a row may have fewer drafts, or none") {
  call::Record r = greedy({5, 6, 7, 8});
  r.inputs["draft_lens"] = call::integer_tensor({1});
  CHECK(of(r, "tokens") == Numbers{5, 6, -1, -1});
  r.inputs["draft_lens"] = call::integer_tensor({0});
  CHECK(of(r, "tokens") == Numbers{5, -1, -1, -1});
  CHECK(of(r, "committed") == Numbers{1});
}

TEST_CASE("draft acceptance: rejection accepts where u q <= p and draws from what p has beyond q") {
  const Numbers p{0.5, 0.125, 0.25, 0.125};
  const Numbers q{0.25, 0.25, 0.25, 0.25};
  CHECK(of(rejection(p, q, 0.25, 0.9), "accepted") == Numbers{1});
  CHECK(of(rejection(p, q, 0.25, 0.9), "tokens") == Numbers{1, 3});  // 0.9 of four quarters
  // r = (1/4, 0, 0, 0).
  CHECK(of(rejection(p, q, 0.75, 0.9), "accepted") == Numbers{0});
  CHECK(of(rejection(p, q, 0.75, 0.9), "tokens") == Numbers{0, -1});
  // r = (0, 0, 1/4, 1/8): two thirds of it are token 2.
  const Numbers other{0.25, 0.0, 0.5, 0.25};
  const Numbers less{0.25, 0.375, 0.25, 0.125};
  CHECK(of(rejection(other, less, 0.5, 0.6), "tokens") == Numbers{2, -1});
  CHECK(of(rejection(other, less, 0.5, 0.7), "tokens") == Numbers{3, -1});
  CHECK(of(rejection(other, less, 0.5, 0.0), "tokens") == Numbers{2, -1});
}

TEST_CASE("draft acceptance: comparisons with u = 0, q = 0 and one-hot drafts are decided") {
  const Numbers q{0.25, 0.25, 0.25, 0.25};
  const auto accepted = [](call::Record r, call::AcceptRule rule) {
    r.convention.accept_rule = rule;
    return of(r, "accepted");
  };
  constexpr auto kLe = call::AcceptRule::kLe;
  constexpr auto kLt = call::AcceptRule::kLt;
  for (const auto rule : {kLe, kLt}) {
    CHECK(accepted(rejection({0.5, 0.125, 0.25, 0.125}, q, 0.0, 0.5), rule) == Numbers{1});
    CHECK(accepted(rejection({0.5, 0.125, 0.25, 0.125}, q, 1.0, 0.5), rule) == Numbers{0});
    CHECK(accepted(rejection({0.25, 0.5, 0.25, 0.0}, q, 1.0, 0.5), rule) == Numbers{1});
    CHECK(accepted(rejection({0.5, 0.0, 0.25, 0.25}, q, 0x1p-100, 0.5), rule) == Numbers{0});
  }
  // A quotient that errs by 2 ulp is 1 or below it.
  for (const double p : {0.25, 0.25 - 0x1p-26, 0.25 + 0x1p-25}) {
    const call::Record near = rejection({0.5, p, 0.25, 0.0}, q, 1.0, 0.5);
    CHECK(accepted(near, kLe) == Numbers{kOpen});
    CHECK(accepted(near, kLt) == Numbers{kOpen});
  }
  // 0 <= 0, but a token of probability 0 is none to take.
  const call::Record none = rejection({0.5, 0.0, 0.25, 0.25}, q, 0.0, 0.5);
  CHECK(accepted(none, kLe) == Numbers{kOpen});
  CHECK(accepted(none, kLt) == Numbers{0});
  call::Record one_hot = rejection({0.5, 0.25, 0.125, 0.125}, {0.0, 1.0, 0.0, 0.0}, 0.25, 0.5);
  one_hot.convention.draft_kind = call::DraftKind::kOneHot;
  CHECK(accepted(one_hot, kLe) == Numbers{1});
  CHECK(accepted(one_hot, kLt) == Numbers{0});
  call::Record r = rejection({0.5, 0.25, 0.25, 0.0}, {0.5, 0.0, 0.25, 0.25}, 0.5, 0.5);
  CHECK(of(r, "accepted") == Numbers{0});
  r.convention.zero_draft = call::ZeroDraft::kAccept;
  CHECK(of(r, "accepted") == Numbers{1});
}

TEST_CASE("draft acceptance: a one-hot draft is accepted with p(d), else drawn from p without it") {
  call::Record r = rejection({0.5, 0.25, 0.125, 0.125}, {0.0, 0.0, 0.0, 1.0}, 0.2, 0.5);
  r.convention.draft_kind = call::DraftKind::kOneHot;  // q may be there, and nobody reads it
  CHECK(of(r, "accepted") == Numbers{1});
  r.inputs.erase("draft_probs");
  r.inputs["uniforms"] = f32({0.3}, {1, 1});
  CHECK(of(r, "tokens") == Numbers{0, -1});  // (4 0 1 1) / 6
  r.inputs["recover_uniforms"] = f32({0.9}, {1});
  CHECK(of(r, "tokens") == Numbers{3, -1});
}

TEST_CASE("draft acceptance: the largest r / noise wins, and a bonus that is given is taken") {
  call::Record r = rejection({0.5, 0.0, 0.25, 0.25}, {0.25, 0.5, 0.125, 0.125}, 0.5, 0.0);
  r.inputs.erase("recover_uniforms");
  r.inputs["recover_noise"] = f32({2.0, 1.0, 0.25, 1.0}, {1, 4});  // scores 1/8, 0, 1/2, 1/8
  CHECK(of(r, "tokens") == Numbers{2, -1});
  r.inputs["uniforms"] = f32({0.0}, {1, 1});
  r.inputs["target_probs"] = f32({0.5, 0.125, 0.25, 0.125}, {1, 1, 4});
  r.inputs["bonus_tokens"] = call::integer_tensor({2});
  CHECK(of(r, "tokens") == Numbers{1, 2});
}

TEST_CASE("draft acceptance: what hangs on a rounding is open, and only what hangs on it") {
  const Numbers q{0.25, 0.25, 0.25, 0.25};
  const Numbers p{0.5, 0.125, 0.25, 0.125};
  // u q = p up to an ulp: accepted or not, and whatever follows from it.
  const double near = static_cast<double>(std::nextafterf(0.5F, 1.0F));
  const verdict::Expectations open = evaluate(rejection(p, q, near, 0.9));
  for (const char* name : {"accepted", "committed", "target_len", "next_anchor"}) {
    CHECK(of(open, name) == Numbers{kOpen});
  }
  CHECK(of(open, "tokens") == Numbers{kOpen, kOpen});
  CHECK(of(open, "keep") == Numbers{1, kOpen});
  CHECK(of(open, "draft_len") == Numbers{10});
  // A token that hangs on the edge between 0 and 3: its place and the next anchor.
  const Numbers wide{0.375, 0.0, 0.25, 0.375};  // r = (1/8, 0, 0, 1/8)
  const verdict::Expectations token = evaluate(rejection(wide, q, 0.5, 0.5));
  CHECK(of(token, "tokens") == Numbers{kOpen, -1});
  CHECK(of(token, "next_anchor") == Numbers{kOpen});
  CHECK(of(token, "accepted") == Numbers{0});
  CHECK(of(token, "target_len") == Numbers{11});
  // r = 0 everywhere: p = q, and neither has the draft.
  const Numbers same{0.5, 0.0, 0.25, 0.25};
  const call::Record none = rejection(same, same, 0.5, 0.5);
  CHECK(of(none, "tokens") == Numbers{kOpen, -1});
  CHECK(of(none, "committed") == Numbers{1});
}

TEST_CASE("draft acceptance: what fp32 may choose") {
  using Tokens = std::vector<std::int64_t>;
  const Numbers p{0.25, 0.0, 0.25, 0.25, 0.25};
  const auto drawn = [&](double u) { return draw({.p = p}, u); };
  CHECK(drawn(0.0).tokens == Tokens{0});
  CHECK(drawn(0.25).tokens == Tokens{0, 2});
  CHECK(drawn(0.25).exact == 2);  // the first sum above t
  CHECK(drawn(0.3).tokens == Tokens{2});
  CHECK(drawn(0.75).tokens == Tokens{3, 4});
  CHECK_FALSE(drawn(0.75).any);
  CHECK(drawn(1.0).any);  // no sum is above all of them
  CHECK(draw({.p = p, .q = p}, 0.5).any);
  CHECK(draw({.p = p, .q = {}, .but = 2}, 0.0).only() == 0);
  // Probabilities below what an edge of fp32 can tell: all of them are candidates.
  const Numbers small{0.5, 1e-9, 1e-9, 1e-9, 0.5};
  CHECK(draw({.p = small}, 0.5).tokens == Tokens{0, 1, 2, 3, 4});
  const Choice any = drawn(1.0);
  CHECK(any.admits(4));
  CHECK_FALSE(any.admits(5));
  CHECK_FALSE(any.admits(-1));
  CHECK_FALSE(drawn(0.25).admits(3));
  CHECK_FALSE(drawn(0.25).only());

  const auto led = [&](const Numbers& noise) { return race({.p = p}, noise); };
  CHECK(led({1, 1, 1, 0.5, 1}).tokens == Tokens{3});
  CHECK(led({1, 1, 0.5, 0.5, 1}).tokens == Tokens{2, 3});
  CHECK(led({1, 0x1p-149, 1, 1, 0.25}).tokens == Tokens{4});  // r is 0 where the noise is
  CHECK(led({0x1p-130, 1, 1, 1, 0.25}).tokens == Tokens{0, 4});
  CHECK(led({0x1p-130, 1, 1, 1, 0.25}).exact == 0);
  CHECK(race({.p = p, .q = p}, Numbers(5, 1.0)).any);
}

TEST_CASE("draft acceptance: a race is open where scores leave f32") {
  const std::vector<double> p{0.5, 0.25, 0.125, 0.125};
  const auto winner = [&](const std::vector<double>& noise) {
    return race({.p = p}, noise).only();
  };
  CHECK(winner({1.0, 1.0, 0.1, 1.0}) == 2);
  CHECK(winner({1.0, 0x1p-120, 1.0, 1.0}) == 1);
  CHECK_FALSE(winner({1.0, 0x1p-149, 0x1p-148, 1.0}));  // both infinite: the lower one, or NaN
  CHECK_FALSE(winner({0x1p-130, 1.0, 1.0, 1.0}));       // its reciprocal is
}

TEST_CASE("draft acceptance: drafts in front of an open one are certain") {
  call::Record r;
  r.op = call::Op::kDraftAcceptance;
  r.mode = call::Mode::kRejection;
  r.convention.draft_kind = call::DraftKind::kSampled;
  r.inputs["start"] = call::integer_tensor({0});
  r.inputs["draft_tokens"] = call::integer_tensor({0, 1}, {1, 2});
  r.inputs["target_probs"] = f32({0.75, 0.25, 0.5, 0.5, 0.5, 0.5}, {1, 3, 2});
  r.inputs["draft_probs"] = f32({0.5, 0.5, 0.25, 0.75}, {1, 2, 2});
  const float edge = 0.5F / 0.75F;
  r.inputs["uniforms"] = f32({0.5, static_cast<double>(edge)}, {1, 2});
  r.inputs["recover_uniforms"] = f32({0.25}, {1});
  const verdict::Expectations e = evaluate(r);
  CHECK(of(e, "tokens") == Numbers{0, kOpen, kOpen});
  CHECK(of(e, "keep") == Numbers{1, 1, kOpen});
  CHECK(of(e, "accepted") == Numbers{kOpen});
  r.inputs["stop_tokens"] = call::integer_tensor({0});  // whatever follows is cut
  const verdict::Expectations cut = evaluate(r);
  CHECK(of(cut, "tokens") == Numbers{0, -1, -1});
  CHECK(of(cut, "committed") == Numbers{1});
  CHECK(of(cut, "accepted") == Numbers{kOpen});
}

TEST_CASE("draft acceptance: sums of f32 are exact, from the smallest to the largest") {
  Fixed sum;
  sum.add(0x1p-149);
  for (int i = 0; i < 1000; ++i) sum.add(1.0);
  Fixed whole;
  for (int i = 0; i < 500; ++i) whole.add(2.0);
  CHECK(sum > whole);
  CHECK(sum.distance(whole) == 0x1p-149);
  sum.subtract(0x1p-149);
  CHECK(sum == whole);
  CHECK(sum.to_double() == 1000.0);
  CHECK(sum.times(0x1.8p-20).to_double() == 1000.0 * 0x1.8p-20);
  CHECK(sum.times(1.0) == sum);
  Fixed small;
  small.add(0x1.8p-140);
  CHECK(small.times(0x1p-149).to_double() == 0x1.8p-289);
  CHECK(sum.times(0.0) == Fixed());
  // Borrows and carries over words.
  Fixed carried;
  carried.add(0x1.fffffep-44);
  carried.add(0x1p-67);
  CHECK(carried.to_double() == 0x1p-43);
  Fixed one;
  one.add(1.0);
  one.subtract(0x1p-149);
  one.add(0x1p-149);
  CHECK(one.to_double() == 1.0);
}

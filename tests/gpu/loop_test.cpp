// SPDX-License-Identifier: Apache-2.0
//
// DFlash's loop (loop/world.hpp) over 64 rounds, the reference and the kernels side by side, each
// in a world of its own: tokens, accepted counts, lengths and caches are equal after every round,
// to the number, and every element of every output and state is within its bound.
#include <array>
#include <set>
#include <string>

#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/loop/replay.hpp"
#include "tests/gpu/loop/world.hpp"

namespace goldenrule::test {
namespace {

using namespace loop;

constexpr int kRounds = 64;

/// What two worlds can differ in, from the numbers of the calls to what a user sees.
enum Part { kOutputs, kStates, kAccepted, kTokens, kLengths, kCaches, kParts };
constexpr std::array<const char*, kParts> kPartNames{"outputs", "states",  "accepted",
                                                     "tokens",  "lengths", "caches"};

/// The first round, from 1, in which each part differed; 0: none did.
using FirstRounds = std::array<int, kParts>;

/// The largest |difference| / bound of each output.
using Worst = std::map<std::string, double>;

/// Whether an element of `actual` is beyond the bound of `expected`, and how close they come.
bool is_beyond(const std::string& name, const Output& expected, const Output& actual,
               Worst& worst) {
  bool beyond = expected.values.size() != actual.values.size();
  for (std::size_t i = 0; !beyond && i < expected.values.size(); ++i) {
    const double error = std::abs(actual.values[i] - expected.values[i]);
    if (error == 0.0) continue;
    worst[name] = std::max(worst[name], error / expected.bounds[i]);
    beyond = !(error <= expected.bounds[i]);
  }
  return beyond;
}

void compare(int round, const World& leader, const Turn& expected, const World& follower,
             const Turn& actual, FirstRounds& first, Worst& worst) {
  const auto note = [&](Part part, bool differs) {
    if (differs && first[part] == 0) first[part] = round;
  };
  for (const auto& [name, output] : expected.outputs) {
    note(name == "state" ? kStates : kOutputs,
         is_beyond(name, output, actual.outputs.at(name), worst));
  }
  note(kAccepted, expected.accepted != actual.accepted);
  note(kTokens, expected.emitted != actual.emitted);
  note(kLengths, expected.lengths != actual.lengths);
  note(kCaches, leader.draft_cache() != follower.draft_cache() ||
                    leader.target_cache() != follower.target_cache());
}

TEST_CASE("loop: 64 rounds of drafts, the same tokens from the reference and the kernels") {
  REQUIRE_GPU();
  Draws draws;
  World reference(compute_exactly, draws, true), kernels(compute_by_kernel, draws, false);
  FirstRounds first{};
  Worst worst;
  std::map<std::int64_t, int> accepted;
  std::int64_t tokens = 0;
  int uneven = 0;
  for (int round = 1; round <= kRounds; ++round) {
    const Turn& expected = reference.round();
    const Turn& actual = kernels.round();
    compare(round, reference, expected, kernels, actual, first, worst);
    REQUIRE_MESSAGE(first == FirstRounds{}, "round " << round);
    REQUIRE(reference.lengths_agree());
    for (const std::int64_t count : expected.accepted) ++accepted[count];
    uneven += std::set(expected.accepted.begin(), expected.accepted.end()).size() > 1 ? 1 : 0;
    for (const Tokens& row : expected.emitted) tokens += std::ssize(row);
  }
  CHECK(wrong_token(reference.requests(), draws) == "");
  std::printf("%d rounds, %d requests, %d tokens; accepted:", kRounds,
              static_cast<int>(reference.requests().size()), static_cast<int>(tokens));
  for (const auto& [count, times] : accepted) {
    std::printf(" %d x%d", static_cast<int>(count), times);
  }
  std::printf("\n%d decisions, %d draws anew;", draws.decisions(), draws.redrawn());
  for (const auto& [name, ratio] : worst) std::printf(" %s %.3f", name.c_str(), ratio);
  std::printf(" of the bound at worst\n");
  // None of it is empty: rows differ in most rounds, none and all drafts are accepted now and then,
  // requests end and others take their slots and pages, and few decisions are drawn anew.
  CHECK(uneven > kRounds / 2);
  CHECK(accepted.contains(0));
  CHECK(accepted.contains(kDrafts));
  CHECK(reference.requests().size() > kRequests);
  CHECK(draws.redrawn() * 8 < draws.decisions());
}

struct Planted {
  Fault fault;
  const char* name;
  bool changes_tokens = true;   ///< within the rounds of the test
  bool stays_lossless = false;  ///< drafts are worse, or tokens fewer, but none is wrong
};
// A key too many for the drafter never changes what is emitted but by what is accepted, and as one
// among many seldom that: the bounds of draft attention see it.
constexpr std::array kPlanted{
    Planted{Fault::kAcceptsOneMore, "a rejected draft is accepted"},
    Planted{Fault::kDraftKeepsRejected, "the drafter's crop keeps a rejected key", false, true},
    Planted{Fault::kTargetKeepsRejected, "the target's crop keeps a rejected key"},
    Planted{Fault::kBonusNotCommitted, "the bonus token is not committed", true, true},
    Planted{Fault::kStaleDraftLength, "draft attention reads a stale length", true, true},
    Planted{Fault::kCommitsOneLess, "the delta rule commits one token less"},
};

// A fault is seen where it can be: in the numbers of the calls, and in what is emitted. Lengths
// alone would be the fault itself and no effect of it.
TEST_CASE("loop: a server's faults with right kernels are seen") {
  REQUIRE_GPU();
  for (const Planted& planted : kPlanted) {
    CAPTURE(std::string(planted.name));
    Draws draws;
    World reference(compute_exactly, draws, true);
    World kernels(compute_by_kernel, draws, false, planted.fault);
    FirstRounds first{};
    Worst worst;
    const auto is_seen = [&] {
      const bool tokens = first[kAccepted] != 0 && first[kTokens] != 0;
      return first[kOutputs] != 0 && (tokens || !planted.changes_tokens);
    };
    for (int round = 1; round <= kRounds && !is_seen(); ++round) {
      const Turn& expected = reference.round();
      const Turn& actual = kernels.round();
      compare(round, reference, expected, kernels, actual, first, worst);
    }
    CHECK(is_seen());
    std::printf("%s:", planted.name);
    for (std::size_t part = 0; part < kParts; ++part) {
      if (first[part] != 0) std::printf(" %s in round %d", kPartNames[part], first[part]);
    }
    std::printf("\n");
  }
}

// The loop itself is judged apart from kernels: what both worlds did wrong would make no difference
// between them, and is seen by the target over all tokens at once, unless it only spoils drafts.
TEST_CASE(
    "loop: a server's faults with exact numbers emit tokens that the target does not choose") {
  for (const Planted& planted : kPlanted) {
    CAPTURE(std::string(planted.name));
    Draws draws;
    World world(compute_exactly, draws, true, planted.fault);
    for (int round = 0; round < 16; ++round) static_cast<void>(world.round());
    const std::string wrong = wrong_token(world.requests(), draws);
    CHECK_MESSAGE(wrong.empty() == planted.stays_lossless, wrong);
  }
}

}  // namespace
}  // namespace goldenrule::test

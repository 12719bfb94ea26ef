// SPDX-License-Identifier: Apache-2.0
//
// No element is paid for by another: the ledger of a request. A value channel of its tokens, a
// head, and slots that no call names are scaled, replaced or poisoned; what the ledger grants the
// other elements stays what it was, noise there is found, and an honest server passes.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "reference/chain/step.hpp"
#include "reference/delta/slice.hpp"
#include "tests/chain/server.hpp"

namespace {

using namespace goldenrule;
using call::Mode;
using testing::Server;

using Change = std::function<double(double)>;

struct Case {
  const char* name;
  Change f;
};
const std::vector<Case>& changes() {
  static const std::vector<Case> kAll{
      {"by 2^120", [](double x) { return std::ldexp(x, 120); }},
      {"by 2^40", [](double x) { return std::ldexp(x, 40); }},
      {"by 2^14", [](double x) { return std::ldexp(x, 14); }},
      {"by 2^-120", [](double x) { return std::ldexp(x, -120); }},
      {"is NaN", [](double) { return std::numeric_limits<double>::quiet_NaN(); }},
      {"is 1e36", [](double) { return 1e36; }}};
  return kAll;
}

// Of v: element i, changed or not.
using Where = std::function<bool(std::int64_t)>;
const Where kChannel = [](std::int64_t i) { return i % Server::kV == 5; };
const Where kHead = [](std::int64_t i) { return i / Server::kV % Server::kHV == 1; };

constexpr int kCalls = 8;

// One request that is decoded, its v changed.
std::vector<chain::Call> decoded(const testing::ServerOptions& options, const Where& where,
                                 const Change& f) {
  testing::ServerOptions changed = options;
  changed.v = [&](std::int64_t i, double x) { return where(i) ? f(x) : x; };
  Server server(changed);
  std::vector<chain::Call> calls;
  calls.push_back(
      server.serve(Mode::kPrefill, {{.request = 1, .slot = 2, .tokens = 8, .fresh = true}}));
  for (int i = 1; i < kCalls; ++i) {
    calls.push_back(server.serve(Mode::kDecode, {{.request = 1, .slot = 2}}));
  }
  return calls;
}

// What the last state of the request may be, without what calls but the last one stored.
chain::Allowed ledger_of(const std::vector<chain::Call>& calls) {
  const verdict::Slice& slice = delta::slice();
  const chain::Layout layout(calls.back().record, call::validate(calls.back().record));
  chain::Known known = layout.zero();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const call::Record& record = calls[i].record;
    const chain::Step step(slice, slice.default_contract(record), layout, chain::tokens_of(record),
                           std::vector<chain::Known>{known});
    const std::int64_t last = step.known(0).back();
    if (i + 1 == calls.size()) return step.allowed(0, last);
    known = step.after(0, last);
  }
  return {};
}

struct Part {
  double before2 = 0.0, after2 = 0.0, worst = 0.0, signal2 = 0.0;
  std::vector<std::int64_t> elements;
};

Part unreached_of(const chain::Allowed& before, const chain::Allowed& after) {
  Part part;
  for (std::size_t i = 0; i < after.golden.size(); ++i) {
    if (after.golden[i] != before.golden[i]) continue;
    const auto a = static_cast<double>(after.budget[i]);
    const auto b = static_cast<double>(before.budget[i]);
    part.elements.push_back(static_cast<std::int64_t>(i));
    part.before2 += b * b;
    part.after2 += a * a;
    part.signal2 += before.golden[i] * before.golden[i];
    part.worst = std::fmax(part.worst, a / b);
    CHECK(after.radius[i] < 1.1F * before.radius[i]);
  }
  return part;
}

// A third of what the elements hold is added to one of them in the state that the server left.
void check_noise(std::vector<chain::Call> calls, const Part& part) {
  const double size = 0.3 * std::sqrt(part.signal2 / static_cast<double>(part.elements.size()));
  call::Tensor& pool = calls.back().record.outputs.at("final_state");
  const std::int64_t at =
      2 * Server::kHV * Server::kK * Server::kV + part.elements[part.elements.size() / 3];
  pool.set(at, pool[at] + size);
  CHECK(testing::judge(calls, {.only_chain = true}).summary.verdict ==
        verdict::Verdict::kOutOfBudget);
}

void ledger_holds(const testing::ServerOptions& options, const Where& where) {
  const chain::Allowed before = ledger_of(decoded(options, where, [](double x) { return x; }));
  for (const Case& change : changes()) {
    CAPTURE(change.name);
    const std::vector<chain::Call> calls = decoded(options, where, change.f);
    const testing::Judged honest = testing::judge(calls, {.only_chain = true});
    for (const chain::Finding& finding : honest.findings) MESSAGE(finding.text);
    CHECK(honest.findings.empty());
    const Part part = unreached_of(before, ledger_of(calls));
    REQUIRE(part.elements.size() >= before.golden.size() / 2);
    CHECK(part.after2 < 1.3 * part.before2);
    CHECK(part.after2 > 0.7 * part.before2);
    CHECK(part.worst < 4.0);
    check_noise(calls, part);
  }
}

}  // namespace

TEST_CASE("no element is paid for by another: the ledger of a request") {
  for (const call::Op op : {call::Op::kGatedDeltaRule, call::Op::kKda}) {
    for (const call::DType pool : {call::DType::kF32, call::DType::kBF16}) {
      CAPTURE(op);
      CAPTURE(pool);
      ledger_holds({.op = op, .pool = pool}, kChannel);
      ledger_holds({.op = op, .pool = pool}, kHead);
    }
  }
}

// Two requests that share no slot, and slots of which nobody speaks.
TEST_CASE("what other slots hold is nothing to a ledger") {
  for (const double other : {std::numeric_limits<double>::quiet_NaN(), 3e38, -1e-38}) {
    CAPTURE(other);
    Server server({.seed = 3});
    for (const std::int64_t slot : {1, 4, 5}) {
      server.put(slot, std::vector<double>(
                           static_cast<std::size_t>(Server::kHV * Server::kK * Server::kV), other));
    }
    std::vector<chain::Call> calls{server.serve_prompts()};
    for (int i = 0; i < 4; ++i) {
      calls.push_back(
          server.serve(Mode::kDecode, {{.request = 1, .slot = 3}, {.request = 2, .slot = 0}}));
    }
    const testing::Judged honest = testing::judge(calls);
    for (const chain::Finding& finding : honest.findings) MESSAGE(finding.text);
    CHECK(honest.findings.empty());
    CHECK(honest.summary.verdict == verdict::Verdict::kWithinBudget);
    call::Tensor& pool = calls.back().record.outputs.at("final_state");
    const std::int64_t at = 3 * Server::kHV * Server::kK * Server::kV;
    pool.set(at, 1.3 * pool[at] + 0.1);
    CHECK(testing::judge(calls).summary.verdict == verdict::Verdict::kOutOfBudget);
  }
}

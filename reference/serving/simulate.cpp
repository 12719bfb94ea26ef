// SPDX-License-Identifier: Apache-2.0
#include "reference/serving/simulate.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "reference/serving/mistakes.hpp"
#include "reference/serving/server.hpp"

namespace goldenrule::serving {
namespace {

bool have_request_in_common(const Step& a, const Step& b) {
  return std::ranges::any_of(a.rows, [&](const Row& row) {
    return row.request >= 0 &&
           std::ranges::find(b.rows, row.request, &Row::request) != b.rows.end();
  });
}

void put_before(std::vector<Move> moves, Step& step) {
  step.moves.insert(step.moves.begin(), moves.begin(), moves.end());
}

// Calls that are made later than they should be, or not at all.
class Order {
 public:
  // The calls to be made now that `step` has come.
  std::vector<Step> calls_at(Step step) {
    if (step.lost) {  // the server goes on as if
      owed_.insert(owed_.end(), step.moves.begin(), step.moves.end());
      return {};
    }
    put_before(std::exchange(owed_, {}), step);
    if (!late_ && step.late) {
      late_ = std::move(step);
      return {};
    }
    if (!late_) return {std::move(step)};
    Step late = *std::exchange(late_, std::nullopt);
    if (!have_request_in_common(late, step)) return {std::move(late), std::move(step)};
    put_before(std::exchange(late.moves, {}), step);
    return {std::move(step), std::move(late)};
  }

 private:
  std::vector<Move> owed_;
  std::optional<Step> late_;
};

// Calls f(step, done) for every step, with the mistake of the scenario in it, until it is false; f
// counts its calls.
template <class F>
Simulated walk(const cases::Scenario& scenario, Scheduler& scheduler, F&& f) {
  const ServerMistake* mistake = find_server_mistake(scenario.mistake);
  Past past{.scenario = &scenario, .scheduler = &scheduler};
  Order order;
  Simulated done;
  while (done.calls < scenario.calls) {
    std::optional<Step> step = scheduler.next();
    if (!step) break;
    const Step meant = *step;
    if (mistake != nullptr && mistake->change(*step, past)) {
      if (done.occasions++ == 0) done.first = done.calls;
    }
    past.add(meant);
    for (const Row& row : meant.rows) done.tokens += row.request < 0 ? 0 : row.count;
    for (const Step& call : order.calls_at(*std::move(step))) {
      if (!f(call, done)) return done;
    }
  }
  return done;
}

// Two caches, that of the server and that of a call, and the numbers from which they were drawn.
double of_caches(const cases::Scenario& s) {
  if (s.cache == 0) return 0.0;
  const auto rows = static_cast<double>(s.requests * (s.prompt + s.output + s.T + 2 * s.cache));
  const auto bytes = static_cast<double>(call::info(s.io).bytes);
  return rows * static_cast<double>(s.H * (s.K + s.V)) * (2.0 * bytes + 8.0);
}

}  // namespace

Simulated simulate(const cases::Scenario& scenario,
                   const std::function<bool(chain::Call&& call)>& sink) {
  Server server(scenario);
  const std::string name = chain_name(scenario);
  return walk(scenario, server.scheduler(), [&](const Step& step, Simulated& done) {
    for (call::Record& record : server.carry_out(step)) {
      if (done.calls == scenario.calls) return false;
      if (!sink({.chain = name, .index = done.calls++, .record = std::move(record)})) return false;
    }
    return true;
  });
}

std::int64_t occasions(const cases::Scenario& scenario) {
  Scheduler scheduler(scenario);
  return walk(scenario, scheduler, [](const Step&, Simulated& done) { return ++done.calls > 0; })
      .occasions;
}

double memory_needed(const cases::Scenario& s) {
  constexpr double kProcess = 48.0 * (1 << 20);  // program, libraries, tables
  const auto count = [](std::int64_t n) { return static_cast<double>(n); };
  const double lengths = count(s.requests) * count(s.prompt + s.output);
  const double gates = count(s.HV) * (s.op == call::Op::kKda ? count(s.K) : 1.0);
  // The numbers of a token in their types (gate and beta in f32 at most); those of all requests and
  // their rejected drafts are made before the first call, and those of one call are doubles as
  // well.
  constexpr double kPlaces = 32.0;  // of a token, while all are drawn
  const double vectors = 2.0 * count(s.H * s.K) + count(s.HV * s.V);
  const double scalars = gates + count(s.HV);
  const double token =
      kPlaces + 4.0 * scalars + vectors * count(static_cast<std::int64_t>(call::info(s.io).bytes));
  const double token_in_call = token + 8.0 * (vectors + scalars);
  const double resident = count(cases::resident_requests(s));
  const double in_call = resident * count(std::max(s.T, s.chunk));
  const double state = count(s.HV) * count(s.K) * count(s.V);
  const double bytes = count(static_cast<std::int64_t>(call::info(s.state).bytes));
  constexpr double kPathsOfTree = 16.0;  // kMostPathTokens of the oracle
  const double slots = resident * (s.mtp == cases::MtpForm::kScatter ? count(s.T) : 1.0);
  // The states that a call leaves on the way: after each token of an MTP call, at each boundary.
  const double on_the_way = resident * (count(s.T) * (s.tree == 0 ? 1.0 : kPathsOfTree) +
                                        (s.block == 0 ? 0.0 : count(s.chunk / s.block + 1)));
  const double kept =
      count(s.requests) * (1.0 + (s.rollback != 0 ? count(s.T) : 0.0) +
                           (s.block == 0 ? 0.0 : count((s.prompt + s.output) / s.block)));
  // The pool, as a call and the one before it found it and as it was left; what the kernel
  // computes, in double, beside what is stored of it; what is kept for requests.
  return kProcess + 2.0 * lengths * token + in_call * token_in_call +
         state * (slots * (5.0 * bytes + 16.0) + on_the_way * (2.0 * bytes + 16.0) + kept * bytes) +
         of_caches(s);
}

std::string chain_name(const cases::Scenario& scenario) {
  const std::uint64_t hash = random::fnv1a(cases::canonical(scenario));
  std::array<char, 16> hex{};
  std::snprintf(hex.data(), hex.size(), "_%08x", static_cast<unsigned>((hash >> 32) ^ hash));
  return std::string("chain_") + (scenario.op == call::Op::kKda ? "kda" : "gdn") + "_R" +
         std::to_string(scenario.requests) + "_C" + std::to_string(scenario.calls) + hex.data();
}

}  // namespace goldenrule::serving

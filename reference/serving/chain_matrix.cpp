// SPDX-License-Identifier: Apache-2.0
#include "reference/serving/chain_matrix.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <string_view>

#include "fixtures/parallel/for_each_index.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/chain/judge.hpp"
#include "reference/serving/simulate.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::serving {
namespace {

// Of all that a call holds, but who made it.
std::uint64_t digest(const call::Record& record) {
  std::uint64_t sum = 0;
  for (const call::TensorMap* map : {&record.inputs, &record.outputs}) {
    for (const auto& [name, tensor] : *map) {
      const auto bytes = tensor.bytes();
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      sum = 31 * sum + random::fnv1a(name) + random::fnv1a(text);
    }
  }
  return sum;
}

struct Judged {
  Simulated simulated;
  std::vector<std::uint64_t> digests;   // of the calls
  std::optional<chain::Finding> first;  // that is not about a call by itself
  int alone = 0;                        // calls that are refused by themselves
  // What was taken for right and strict judgement refuses: starts, restarts, parameters.
  std::array<std::int64_t, 3> taken{};
};

Judged judge(const cases::Scenario& scenario, const ChainMatrixOptions& options) {
  Judged judged;
  chain::Judge judge(suites::slice_of, {.contract = options.contract});
  judged.simulated = simulate(scenario, [&](chain::Call&& call) {
    judged.digests.push_back(digest(call.record));
    bool refused = false;  // by itself
    for (chain::Finding& found : judge.add(call)) {
      if (found.check == chain::Check::kCall) {
        refused = true;
      } else if (!judged.first) {
        judged.first = std::move(found);
      }
    }
    judged.alone += refused ? 1 : 0;
    return !judged.first;
  });
  const chain::Summary summary = judge.finish();
  judged.taken = {summary.taken, summary.restarts, summary.parameter_changes};
  return judged;
}

// Whether strict judgement has more to refuse than the honest server gives it.
bool is_taken(const Judged& judged, const Judged& honest) {
  bool more = false;
  for (std::size_t i = 0; i < judged.taken.size(); ++i) {
    more = more || judged.taken[i] > honest.taken[i];
  }
  return more;
}

void add(ChainRow& row, const cases::Scenario& scenario, const Judged& judged,
         const Judged& honest) {
  const std::string line = cases::canonical(scenario);
  ++row.made;
  row.alone += judged.alone;
  if (!judged.first && row.mistake->strict && is_taken(judged, honest)) {
    ++row.seen;
    ++row.named;
    return;
  }
  if (!judged.first) {
    row.unseen.push_back(line);
    return;
  }
  ++row.seen;
  const chain::Finding& found = *judged.first;
  const bool as_good =
      found.mistake != chain::Mistake::kNone &&
      std::ranges::find(row.mistake->also, found.mistake) != row.mistake->also.end();
  const bool right = found.mistake == row.mistake->named || as_good;
  if (right && found.call >= judged.simulated.first) {
    ++row.named;
  } else {
    row.unnamed.push_back(line + ": " + std::string(call::name_of(found.check)) + ", " +
                          std::string(call::name_of(found.mistake)) + ": " + found.text);
  }
}

}  // namespace

bool ChainMatrix::holds() const {
  return false_alarms.empty() && std::ranges::all_of(rows, [](const ChainRow& row) {
           return row.made > 0 && row.seen == row.made && row.named == row.made &&
                  (row.alone == 0 || row.mistake->in_call);
         });
}

double memory_to_judge(const cases::Scenario& s) {
  const auto count = [](std::int64_t n) { return static_cast<double>(n); };
  const double state = count(s.HV) * count(s.K) * count(s.V) * 8.0;
  const double runs = std::ceil(64.0 / count(s.V));
  // Of each request: two ledgers, the states of its last call, those at boundaries and ends of
  // calls; no more than the judge keeps, and those of one call.
  const double at_rest =
      2.0 * (1.0 + runs) + count(s.T) + 1.0 +
      (2.0 + runs) * count(s.prompt + s.output) * (s.block == 0 ? 1.0 : 1.0 + 1.0 / count(s.block));
  const double limit = static_cast<double>(chain::Options{}.most_bytes);
  const double rows = count(cases::resident_requests(s));
  // Expectations of every state of one call, its noise, and what is compared.
  const double one_call = rows * (count(s.T) + count(s.chunk)) * (8.0 + 2.0 * runs) * state;
  return memory_needed(s) + std::min(limit, count(s.requests) * at_rest * state) + one_call;
}

ChainMatrix chain_matrix(const ChainMatrixOptions& options) {
  ChainMatrix matrix;
  for (const ServerMistake& mistake : server_mistakes()) {
    const auto& asked = options.mistakes;
    if (asked.empty() || std::ranges::find(asked, mistake.name) != asked.end()) {
      matrix.rows.push_back({.mistake = &mistake, .unseen = {}, .unnamed = {}});
    }
  }
  for (const std::string& name : options.mistakes) {
    static_cast<void>(find_server_mistake(name));  // refuses what there is not
  }
  const std::size_t chains = options.scenarios.size() * (matrix.rows.size() + 1);
  std::size_t number = 0;
  std::mutex beginning;
  const auto judged = [&](const cases::Scenario& scenario) {
    {
      const std::lock_guard lock(beginning);
      if (options.begin_chain) options.begin_chain(number, chains, cases::canonical(scenario));
      ++number;
    }
    return judge(scenario, options);
  };
  for (const cases::Scenario& honest : options.scenarios) {
    // The calls are too small for threads of their own: each server has one.
    std::vector<cases::Scenario> servers(matrix.rows.size() + 1, honest);
    std::vector<std::optional<Judged>> judgements(servers.size());
    parallel::for_each_index(std::ssize(servers), [&](std::int64_t index) {
      const auto i = static_cast<std::size_t>(index);
      if (i > 0) servers[i].mistake = matrix.rows[i - 1].mistake->name;
      if (i == 0 || occasions(servers[i]) > 0) judgements[i] = judged(servers[i]);
    });
    const Judged& right = *judgements.front();
    ++matrix.chains;
    matrix.calls += right.simulated.calls;
    if (right.first || right.alone > 0) {
      matrix.false_alarms.push_back(
          {cases::canonical(honest), right.first.value_or(chain::Finding{})});
    }
    for (std::size_t i = 1; i < servers.size(); ++i) {
      const std::optional<Judged>& made = judgements[i];
      if (made && (made->first || made->digests != right.digests)) {
        add(matrix.rows[i - 1], servers[i], *made, right);
      }
    }
  }
  return matrix;
}

}  // namespace goldenrule::serving

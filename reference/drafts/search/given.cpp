// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/search/given.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "reference/drafts/search/read.hpp"

namespace goldenrule::drafts {
namespace {

constexpr std::int64_t kAll = -2;  // accepted, of the drafts of a row

// How often something was seen.
class Frequencies {
 public:
  void add(std::int64_t value) {
    ++counts_[value];
    ++total_;
  }
  [[nodiscard]] double bits(std::int64_t value) const {
    const auto at = counts_.find(value);
    const auto seen = static_cast<double>(at == counts_.end() ? 0 : at->second);
    return -std::log2((seen + 1.0) / (static_cast<double>(total_) + 2.0));
  }

 private:
  std::map<std::int64_t, std::int64_t> counts_;
  std::int64_t total_ = 0;
};

// Failing rows refute most.
std::vector<Given> failing_first(std::vector<Given> rows) {
  std::stable_partition(rows.begin(), rows.end(), [](const Given& row) { return row.fails; });
  return rows;
}

}  // namespace

std::vector<Given> Kernel::counts() const {
  std::vector<Given> rows;
  const auto accepted = outputs_.find("accepted");
  if (accepted == outputs_.end()) return rows;
  for (std::int64_t n = 0; n < work_.plan.dims.rows; ++n) {
    if (work_.row(n).padded()) continue;
    const double a = accepted->second[n];
    const bool possible = a >= 0.0 && a <= static_cast<double>(work_.plan.dims.drafts);
    const auto value = possible ? static_cast<std::int64_t>(a) : std::int64_t{-1};
    const bool right = std::ranges::any_of(work_.decisions.outcomes(n), [&](const Outcome& o) {
      return static_cast<double>(o.accepted) == a;
    });
    rows.push_back({.n = n, .accepted = value, .value = value, .fails = !right});
  }
  const auto count = [&](const Given& row) {
    return row.value == work_.row(row.n).drafts ? kAll : row.value;
  };
  const auto tells = [&](const Given& row) { return work_.row(row.n).drafts > 0; };
  Frequencies fails, of_failing, of_all;
  for (const Given& row : rows) {
    if (!tells(row)) continue;
    fails.add(row.fails ? 1 : 0);
    of_all.add(count(row));
    if (row.fails) of_failing.add(count(row));
  }
  for (Given& row : rows) {
    if (!tells(row)) continue;
    const double in_places = row.fails ? of_failing.bits(count(row)) : 0.0;
    if (row.fails) row.constant_bits = std::log2(static_cast<double>(work_.row(row.n).drafts + 1));
    row.bits = {fails.bits(row.fails ? 1 : 0) + in_places, of_all.bits(count(row))};
  }
  return failing_first(std::move(rows));
}

std::vector<Given> Kernel::tokens(const std::vector<Given>& counts) const {
  std::vector<Given> rows;
  for (const Given& row : counts) {
    if (!is_possible(row)) continue;
    const std::optional<std::int64_t> given = token(row);
    if (!given) continue;
    Given of_token{.n = row.n, .accepted = row.accepted, .value = *given};
    of_token.fails = !work_.decisions.choice(row.n, row.accepted).admits(*given);
    if (of_token.fails) of_token.bits.fill(token_bits(of_token));
    rows.push_back(of_token);
  }
  return failing_first(std::move(rows));
}

bool Kernel::is_possible(const Given& row) const {
  return row.accepted >= 0 && row.accepted <= work_.row(row.n).drafts;
}

// Nothing behind a stop token, where none is emitted, and where no number was.
std::optional<std::int64_t> Kernel::token(const Given& row) const {
  for (std::int64_t i = 0; i < row.accepted; ++i) {
    if (work_.plan.is_stop(work_.decisions.draft(row.n, i))) return std::nullopt;
  }
  const auto tokens = outputs_.find("tokens");
  if (tokens == outputs_.end()) return std::nullopt;
  const std::int64_t width = work_.plan.dims.drafts + 1;
  return integer_of(tokens->second[row.n * width + row.accepted]);
}

double Kernel::token_bits(const Given& row) const {
  if (work_.is_greedy()) {
    std::set<std::int64_t> offered;
    for (std::int64_t i = 0; i < work_.target_positions(); ++i) {
      offered.insert(work_.decisions.target_token(row.n, i));
    }
    return std::log2(static_cast<double>(offered.size()));
  }
  const std::int64_t Z = work_.plan.dims.vocabulary;
  const auto p = target_row(work_, {row.n, row.accepted});
  if (!p || row.value < 0 || row.value >= Z) return 0.0;
  const double share = (*p)[static_cast<std::size_t>(row.value)];
  return -std::log2(std::clamp(share, 1.0 / static_cast<double>(Z), 0.5));
}

bool Kernel::follows(const std::vector<Given>& counts) const {
  if (!std::ranges::all_of(counts, [&](const Given& row) { return is_possible(row); })) {
    return false;
  }
  std::vector<Outcome> outcomes;
  for (std::int64_t n = 0; n < work_.plan.dims.rows; ++n) {
    outcomes.push_back(work_.decisions.outcome(n));
  }
  for (const Given& row : counts) {
    outcomes[static_cast<std::size_t>(row.n)] = {row.accepted, token(row)};
  }
  for (std::int64_t n = 0; n < work_.plan.dims.rows; ++n) {
    const Returned row = work_.decisions.returned(n, outcomes[static_cast<std::size_t>(n)]);
    if (differences(row, n, outputs_) != 0) return false;
  }
  return true;
}

}  // namespace goldenrule::drafts

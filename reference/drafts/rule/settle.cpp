// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/rule/settle.hpp"

#include <algorithm>

#include "fixtures/parallel/for_each_index.hpp"
#include "reference/drafts/rule/rule.hpp"

namespace goldenrule::drafts {
namespace {

// One row of the outputs against its outcomes.
class OpenRow {
 public:
  OpenRow(const Decisions& decisions, const call::TensorMap& outputs, std::int64_t n)
      : decisions_(decisions), outputs_(outputs), n_(n) {}

  /// The outcome that differs in the fewest numbers, the exact one of several; nothing if one
  /// differs in none.
  [[nodiscard]] std::optional<Returned> nearest() const {
    std::optional<Returned> best;
    std::int64_t fewest = 0;
    for (const Outcome& outcome : decisions_.outcomes(n_)) {
      Returned row = decisions_.returned(n_, chosen(outcome));
      const std::int64_t count = differences(row, n_, outputs_);
      if (count == 0) return std::nullopt;
      if (!best || count < fewest) {
        best = std::move(row);
        fewest = count;
      }
    }
    return best;
  }

 private:
  // With the token that the outputs have, if fp32 may choose it, else with the exact one.
  [[nodiscard]] Outcome chosen(Outcome outcome) const {
    if (outcome.token) return outcome;
    const Choice choice = decisions_.choice(n_, outcome.accepted);
    const std::int64_t token = token_at(outcome.accepted);
    outcome.token = choice.admits(token) ? token : choice.exact;
    return outcome;
  }

  // What the outputs say of the token behind that many drafts: -1 where they lack it.
  [[nodiscard]] std::int64_t token_at(std::int64_t accepted) const {
    constexpr std::int64_t kNone = -1;
    const auto tokens = outputs_.find("tokens");
    const auto anchor = outputs_.find("next_anchor");
    double token = kNone;
    if (tokens != outputs_.end()) {
      token = tokens->second[n_ * tokens->second.shape().back() + accepted];
    } else if (anchor != outputs_.end()) {
      token = anchor->second[n_];
    }
    return integer_of(token).value_or(kNone);
  }

  const Decisions& decisions_;
  const call::TensorMap& outputs_;
  const std::int64_t n_;
};

bool is_open(const verdict::Expectations& expected, std::size_t n) {
  return std::ranges::any_of(expected.outputs, [&](const auto& item) {
    const verdict::Exact& exact = item.second.exact;
    for (std::size_t i = n * exact.block; i < (n + 1) * exact.block; ++i) {
      if (!exact.is_defined(i)) return true;
    }
    return false;
  });
}

void define(std::size_t n, const Returned& row, verdict::Expectations& expected) {
  Returned::for_each(row, [&](const char* name, const auto& given) {
    verdict::Exact& exact = expected.outputs.at(name).exact;
    const auto& values = Returned::values(given);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t at = n * exact.block + i;
      exact.golden[at] = static_cast<double>(values[i].value_or(0));
      if (!exact.undefined.empty()) exact.undefined[at] = !values[i];
    }
  });
}

}  // namespace

void settle(const call::Record& record, const call::TensorMap& outputs,
            verdict::Expectations& expected) {
  for (const auto& [name, output] : outputs) {
    const auto found = expected.outputs.find(name);
    if (found == expected.outputs.end() || output.shape() != found->second.exact.shape) return;
  }
  const Plan plan = make_plan(record);
  const Decisions decisions(record, plan);
  std::vector<std::optional<Returned>> wrong(plan.rows.size());
  parallel::for_each_index(std::ssize(plan.rows), [&](std::int64_t n) {
    const auto at = static_cast<std::size_t>(n);
    if (is_open(expected, at)) wrong[at] = OpenRow(decisions, outputs, n).nearest();
  });
  for (std::size_t n = 0; n < wrong.size(); ++n) {
    if (wrong[n]) define(n, *wrong[n], expected);
  }
}

}  // namespace goldenrule::drafts

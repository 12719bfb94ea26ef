// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/plan/plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "fixtures/call/chain_rows.hpp"
#include "fixtures/call/error.hpp"
#include "fixtures/call/integer_inputs.hpp"

namespace goldenrule::drafts {
namespace {

using call::Integers;

std::string print(double x) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", x);
  return text.data();
}

[[noreturn]] void bad(const char* name, const call::Shape& index, const std::string& expected,
                      const std::string& actual) {
  throw Error(ErrorKind::kValue, "/inputs/" + std::string(name) + call::to_string(index), expected,
              actual);
}

// Values of one input, where rows read them.
class Checker {
 public:
  Checker(const call::Record& record, const Plan& plan) : record_(record), plan_(plan) {}

  /// Tokens [n, i] for i < count(row).
  template <class Count>
  void tokens(const char* name, std::int64_t width, const Count& count) const {
    const auto given = call::integers(record_, name);
    if (!given) return;
    const bool one_each = record_.inputs.at(name).shape().size() == 1;
    const std::int64_t Z = plan_.dims.vocabulary;
    const std::int64_t last = Z == 0 ? call::kMaxPadSlot : Z - 1;
    for_each_row([&](std::int64_t n, const Row& row) {
      for (std::int64_t i = 0; i < count(row); ++i) {
        const std::int64_t token = (*given)[static_cast<std::size_t>(n * width + i)];
        if (token >= 0 && token <= last) continue;
        bad(name, one_each ? call::Shape{n} : call::Shape{n, i},
            "a token of the vocabulary, 0 to " + std::to_string(last), std::to_string(token));
      }
    });
  }

  /// Numbers [n, i] for i < count(row).
  template <class Count, class Demand>
  void numbers(const char* name, std::int64_t width, const Count& count, const Demand& is_right,
               const char* expected) const {
    const call::Tensor* t = record_.find_input(name);
    if (t == nullptr) return;
    for_each_row([&](std::int64_t n, const Row& row) {
      for (std::int64_t i = 0; i < count(row); ++i) {
        const double x = (*t)[n * width + i];
        if (is_right(x)) continue;
        bad(name, t->shape().size() == 1 ? call::Shape{n} : call::Shape{n, i}, expected, print(x));
      }
    });
  }

  /// Probabilities [n, i, :] for i < count(row).
  template <class Count>
  void probabilities(const char* name, const Count& count) const {
    const call::Tensor& t = record_.inputs.at(name);
    const std::int64_t Z = plan_.dims.vocabulary;
    const std::int64_t width = t.shape()[1];
    const double bound = sum_bound(t.dtype(), Z);
    std::vector<double> p(static_cast<std::size_t>(Z));
    for_each_row([&](std::int64_t n, const Row& row) {
      for (std::int64_t i = 0; i < std::min(count(row), width); ++i) {
        t.read((n * width + i) * Z, Z, p.data());
        double sum = 0.0;
        for (std::int64_t x = 0; x < Z; ++x) {
          const double y = p[static_cast<std::size_t>(x)];
          if (!(y >= 0.0 && y <= 1.0 + bound)) {
            bad(name, {n, i, x}, "a probability, 0 to 1", print(y));
          }
          sum += y;
        }
        if (!(std::fabs(sum - 1.0) <= bound)) {
          bad(name, {n, i}, "probabilities whose sum is 1 within " + print(bound), print(sum));
        }
      }
    });
  }

 private:
  template <class F>
  void for_each_row(const F& f) const {
    for (std::size_t n = 0; n < plan_.rows.size(); ++n) {
      if (!plan_.rows[n].padded()) f(static_cast<std::int64_t>(n), plan_.rows[n]);
    }
  }

  const call::Record& record_;
  const Plan& plan_;
};

void plan_rows(const call::Record& record, Plan& plan) {
  const std::int64_t S = plan.dims.drafts;
  const Integers start = call::integers(record, "start").value();
  const auto lens = call::integers(record, "draft_lens");
  for (std::size_t n = 0; n < start.size(); ++n) {
    call::check_value(start, "start", n, -1, call::kMaxPadSlot - S - 1);
    if (lens && start[n] >= 0) call::check_value(*lens, "draft_lens", n, 0, S);
    plan.rows.push_back({.start = start[n], .drafts = lens ? (*lens)[n] : S});
  }
}

void check_stops(const Plan& plan) {
  const std::int64_t Z = plan.dims.vocabulary;
  for (std::size_t i = 0; i < plan.stops.size(); ++i) {
    call::check_value(plan.stops, "stop_tokens", i, 0, Z == 0 ? call::kMaxPadSlot : Z - 1);
  }
}

}  // namespace

bool Plan::is_stop(std::int64_t token) const { return std::ranges::binary_search(stops, token); }

double sum_bound(call::DType type, std::int64_t Z) {
  constexpr double kUnit = 0x1p-24;
  const call::DTypeInfo& t = call::info(type);
  const double h = std::ldexp(1.0, -t.significand_bits);
  const double smallest = std::ldexp(1.0, t.min_exponent - t.significand_bits + 1);
  return h + 8.0 * kUnit + static_cast<double>(Z) * (kUnit + 0.5 * smallest);
}

Plan make_plan(const call::Record& record) {
  Plan plan;
  plan.dims = call::validate(record);
  plan_rows(record, plan);
  plan.stops = call::integers(record, "stop_tokens").value_or(Integers());
  check_stops(plan);
  static_cast<void>(call::chain_rows(record, plan.dims));  // whose rows they are changes no plan
  std::ranges::sort(plan.stops);
  const std::int64_t S = plan.dims.drafts;
  const auto of_drafts = [](const Row& row) { return row.drafts; };
  const auto of_positions = [](const Row& row) { return row.drafts + 1; };
  const auto one = [](const Row&) { return std::int64_t{1}; };
  const Checker check(record, plan);
  check.tokens("draft_tokens", S, of_drafts);
  check.tokens("target_tokens", S + 1, of_positions);
  check.tokens("bonus_tokens", 1, one);
  if (record.mode != call::Mode::kRejection) return plan;
  check.probabilities("target_probs", of_positions);
  if (record.convention.draft_kind == call::DraftKind::kSampled) {
    check.probabilities("draft_probs", of_drafts);
  }
  const auto in_unit = [](double u) { return u >= 0.0 && u <= 1.0; };
  check.numbers("uniforms", S, of_drafts, in_unit, "a uniform, 0 to 1");
  check.numbers("recover_uniforms", 1, one, in_unit, "a uniform, 0 to 1");
  check.numbers(
      "recover_noise", plan.dims.vocabulary, [&](const Row&) { return plan.dims.vocabulary; },
      [](double x) { return x > 0.0 && std::isfinite(x); }, "a finite number above 0");
  return plan;
}

}  // namespace goldenrule::drafts

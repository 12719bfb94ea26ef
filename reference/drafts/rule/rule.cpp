// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/rule/rule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fixtures/call/integer_inputs.hpp"

namespace goldenrule::drafts {
namespace {

std::vector<double> row_of(const call::Tensor& t, std::int64_t row, std::int64_t length) {
  std::vector<double> values(static_cast<std::size_t>(length));
  t.read(row * length, length, values.data());
  return values;
}

std::vector<std::int64_t> given(const call::Record& record, const char* name) {
  return call::integers(record, name).value_or(std::vector<std::int64_t>());
}

}  // namespace

std::optional<std::int64_t> integer_of(double x) {
  using Limits = std::numeric_limits<std::int64_t>;
  if (std::isnan(x)) return std::nullopt;
  if (x >= 0x1p63) return Limits::max();
  return x < -0x1p63 ? Limits::min() : static_cast<std::int64_t>(x);
}

std::int64_t differences(const Returned& row, std::int64_t n, const call::TensorMap& outputs) {
  std::int64_t count = 0;
  Returned::for_each(row, [&](const char* name, const auto& given) {
    const auto output = outputs.find(name);
    if (output == outputs.end()) return;
    const auto& values = Returned::values(given);
    const auto width = std::ssize(values);
    for (std::int64_t i = 0; i < width; ++i) {
      const Returned::Value& value = values[static_cast<std::size_t>(i)];
      const double y = output->second[n * width + i];
      count += value && y != static_cast<double>(*value) ? 1 : 0;
    }
  });
  return count;
}

void store(const Returned& row, std::int64_t n, call::TensorMap& outputs) {
  Returned::for_each(row, [&](const char* name, const auto& given) {
    const auto& values = Returned::values(given);
    const auto width = std::ssize(values);
    for (std::int64_t i = 0; i < width; ++i) {
      const Returned::Value& value = values[static_cast<std::size_t>(i)];
      if (value) outputs.at(name).set(n * width + i, static_cast<double>(*value));
    }
  });
}

Decisions::Decisions(const call::Record& record, const Plan& plan)
    : record_(record),
      plan_(plan),
      drafts_(given(record, "draft_tokens")),
      targets_(given(record, "target_tokens")),
      bonus_(given(record, "bonus_tokens")) {}

std::int64_t Decisions::draft(std::int64_t n, std::int64_t i) const {
  return drafts_[static_cast<std::size_t>(n * plan_.dims.drafts + i)];
}

std::int64_t Decisions::target_token(std::int64_t n, std::int64_t position) const {
  return targets_[static_cast<std::size_t>(n * (plan_.dims.drafts + 1) + position)];
}

std::vector<double> Decisions::target_row(std::int64_t n, std::int64_t position) const {
  return row_of(record_.inputs.at("target_probs"), n * plan_.dims.target_rows + position,
                plan_.dims.vocabulary);
}

std::vector<double> Decisions::draft_row(std::int64_t n, std::int64_t i) const {
  return row_of(record_.inputs.at("draft_probs"), n * plan_.dims.drafts + i, plan_.dims.vocabulary);
}

Acceptance Decisions::acceptance(std::int64_t n, std::int64_t i, std::int64_t row) const {
  const std::int64_t d = draft(n, i);
  if (record_.mode == call::Mode::kGreedy) return {.accepted = target_token(n, row) == d};
  const std::int64_t Z = plan_.dims.vocabulary;
  const call::Convention& rule = record_.convention;
  const bool one_hot = rule.draft_kind == call::DraftKind::kOneHot;
  const std::int64_t S = plan_.dims.drafts;
  const double p = record_.inputs.at("target_probs")[(n * plan_.dims.target_rows + row) * Z + d];
  const double q = one_hot ? 1.0 : record_.inputs.at("draft_probs")[(n * S + i) * Z + d];
  return accept(p, q, record_.inputs.at("uniforms")[n * S + i], rule);
}

Choice Decisions::choice(std::int64_t n, std::int64_t accepted) const {
  const std::int64_t Z = plan_.dims.vocabulary;
  if (record_.mode == call::Mode::kGreedy) return Choice::of(target_token(n, accepted), Z);
  const bool all = accepted == plan_.rows[static_cast<std::size_t>(n)].drafts;
  if (all && !bonus_.empty()) return Choice::of(bonus_[static_cast<std::size_t>(n)], Z);
  const std::vector<double> p = target_row(n, accepted);
  std::vector<double> q;
  Source source{.p = p};
  if (!all && record_.convention.draft_kind == call::DraftKind::kOneHot) {
    source.but = draft(n, accepted);
  } else if (!all) {
    q = draft_row(n, accepted);
    source.q = q;
  }
  const call::Tensor* noise = record_.find_input("recover_noise");
  if (noise != nullptr) return race(source, row_of(*noise, n, Z));
  return draw(source, record_.inputs.at("recover_uniforms")[n]);
}

Outcome Decisions::outcome(std::int64_t n) const {
  const std::int64_t drafts = plan_.rows[static_cast<std::size_t>(n)].drafts;
  std::int64_t a = 0;
  while (a < drafts && acceptance(n, a).accepted) ++a;
  return {.accepted = a, .token = token(n, a)};
}

std::vector<Outcome> Decisions::outcomes(std::int64_t n) const {
  const std::int64_t drafts = plan_.rows[static_cast<std::size_t>(n)].drafts;
  std::vector<Outcome> all{outcome(n)};
  const auto add = [&](std::int64_t a) {
    if (a != all.front().accepted) all.push_back({.accepted = a, .token = token(n, a)});
  };
  for (std::int64_t i = 0; i < drafts; ++i) {
    const Acceptance decided = acceptance(n, i);
    if (!decided.accepted || decided.open) add(i);
    if (!decided.accepted && !decided.open) return all;
  }
  add(drafts);
  return all;
}

Returned Decisions::returned(std::int64_t n, const Outcome& outcome) const {
  const Row& row = plan_.rows[static_cast<std::size_t>(n)];
  const call::Convention& c = record_.convention;
  const auto width = static_cast<std::size_t>(plan_.dims.drafts + 1);
  Returned r;
  r.tokens.assign(width, c.pad_token);
  r.keep.assign(width, 0);
  if (row.padded()) {
    r.accepted = r.committed = 0;
    r.target_len = r.draft_len = r.release_from = -1;
    r.next_anchor = c.pad_token;
    return r;
  }
  std::int64_t committed = 0;
  bool stopped = false;
  for (std::int64_t i = 0; i <= outcome.accepted && !stopped; ++i) {
    const Returned::Value emitted =
        i < outcome.accepted ? Returned::Value(draft(n, i)) : outcome.token;
    r.tokens[static_cast<std::size_t>(i)] = emitted;
    r.keep[static_cast<std::size_t>(i)] = 1;
    r.next_anchor = emitted;
    ++committed;
    stopped = emitted && plan_.is_stop(*emitted);
  }
  const std::int64_t length = row.start + committed;
  r.accepted = outcome.accepted;
  r.committed = committed;
  r.target_len = length;
  r.draft_len = c.draft_crop == call::DraftCrop::kStart ? row.start : length;
  r.release_from = (length + c.page_size - 1) / c.page_size;
  return r;
}

}  // namespace goldenrule::drafts

// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in the token behind the accepted drafts.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fixtures/call/operation.hpp"
#include "reference/drafts/mistakes/mistake.hpp"

namespace goldenrule::drafts {
namespace {

constexpr std::int64_t kTile = 1024;

bool draws(const Work& work) { return work.call.inputs.contains("recover_uniforms"); }
double uniform(const Work& work, std::int64_t n) {
  return work.call.inputs.at("recover_uniforms")[n];
}

// p - q at every token, without a floor; of the bonus, or of a one-hot draft, p.
std::vector<double> difference(const Work& work, std::int64_t n, std::int64_t a) {
  std::vector<double> r = work.decisions.target_row(n, a);
  if (a == work.row(n).drafts) return r;
  if (work.is_one_hot()) {
    r[static_cast<std::size_t>(work.decisions.draft(n, a))] -= 1.0;
    return r;
  }
  const std::vector<double> q = work.decisions.draft_row(n, a);
  for (std::size_t x = 0; x < r.size(); ++x) r[x] -= q[x];
  return r;
}

// The first x with a sum of r above `threshold`; the last one where there is none.
std::int64_t first_above(std::span<const double> r, double threshold) {
  double sum = 0.0;
  for (std::size_t x = 0; x < r.size(); ++x) {
    sum += r[x];
    if (sum > threshold) return static_cast<std::int64_t>(x);
  }
  return std::ssize(r) - 1;
}

bool is_given(const Work& work, std::int64_t n, const Outcome& outcome) {
  return outcome.accepted == work.row(n).drafts && work.call.inputs.contains("bonus_tokens");
}

void wrong_row(const Work& work, std::int64_t n, Outcome& outcome) {
  const std::int64_t drafts = work.row(n).drafts;
  if (outcome.accepted < drafts) outcome.token = work.decisions.token(n, drafts);
}

void shared(const Work& work, call::Record& record) {
  const auto uniforms = work.call.inputs.find("uniforms");
  if (!draws(work) || uniforms == work.call.inputs.end()) return;
  const std::int64_t S = work.plan.dims.drafts;
  for (std::int64_t n = 0; n < work.plan.dims.rows; ++n) {
    const Row& row = work.row(n);
    if (row.padded() || row.drafts == 0) continue;
    const std::int64_t last = std::min(work.decisions.outcome(n).accepted, row.drafts - 1);
    record.inputs.at("recover_uniforms").set(n, uniforms->second[n * S + last]);
  }
}

void of_target(const Work& work, std::int64_t n, Outcome& outcome) {
  if (work.is_greedy() || outcome.accepted == work.row(n).drafts) return;
  const std::vector<double> p = work.decisions.target_row(n, outcome.accepted);
  const Source source{.p = p};
  const call::Tensor* noise = work.call.find_input("recover_noise");
  if (noise == nullptr) {
    outcome.token = draw(source, uniform(work, n)).only();
    return;
  }
  std::vector<double> of_row(p.size());
  noise->read(n * std::ssize(p), std::ssize(p), of_row.data());
  outcome.token = race(source, of_row).only();
}

void unclamped(const Work& work, std::int64_t n, Outcome& outcome) {
  if (!draws(work) || is_given(work, n, outcome)) return;
  const std::vector<double> r = difference(work, n, outcome.accepted);
  double total = 0.0;
  for (const double x : r) total += std::max(x, 0.0);
  if (total > 0.0) outcome.token = first_above(r, uniform(work, n) * total);
}

// Lanes behind the vocabulary read what lies behind it in memory, the next rows.
void behind_vocabulary(const Work& work, std::int64_t n, Outcome& outcome) {
  if (!draws(work) || is_given(work, n, outcome)) return;
  const call::Dims& d = work.plan.dims;
  const std::int64_t lanes = (d.vocabulary + kTile - 1) / kTile * kTile;
  const auto at = [&](const char* name, std::int64_t i) {
    const call::Tensor& t = work.call.inputs.at(name);
    const double x = i < t.size() ? t[i] : 0.0;
    return std::isfinite(x) ? x : 0.0;
  };
  const std::int64_t a = outcome.accepted;
  std::vector<double> r = difference(work, n, a);
  double total = 0.0;
  for (double& x : r) total += x = std::max(x, 0.0);
  const bool with_q = a < work.row(n).drafts && !work.is_one_hot();
  for (std::int64_t x = d.vocabulary; x < lanes; ++x) {
    const double p = at("target_probs", (n * d.target_rows + a) * d.vocabulary + x);
    const double q = with_q ? at("draft_probs", (n * d.drafts + a) * d.vocabulary + x) : 0.0;
    r.push_back(std::max(p - q, 0.0));
    total += r.back();
  }
  const std::int64_t token = first_above(r, uniform(work, n) * total);
  if (token >= d.vocabulary) outcome.token = token;
}

// The emitted tokens of a row, but for the one that is no draft.
void drop_last(const Work& work, std::int64_t n, Returned& r) {
  const std::int64_t a = r.accepted.value_or(0);
  if (work.row(n).padded() || r.committed != a + 1) return;
  const call::Convention& c = work.call.convention;
  const auto last = static_cast<std::size_t>(a);
  r.tokens[last] = c.pad_token;
  r.keep[last] = 0;
  r.next_anchor = a > 0 ? r.tokens[last - 1] : Returned::Value(c.pad_token);
  r.committed = a;
  const std::int64_t length = work.row(n).start + a;
  if (r.draft_len == r.target_len) r.draft_len = length;
  r.target_len = length;
  r.release_from = (length + c.page_size - 1) / c.page_size;
}

void zero_is_none(const Work& work, std::int64_t n, Returned& r) {
  if (r.next_anchor == std::int64_t{0}) drop_last(work, n, r);
}

constexpr std::array kTokenMistakes{
    mistake<drop_last>("bonus_missing", "the token behind the drafts",
                       "emits the accepted drafts alone"),
    mistake<zero_is_none>("bonus_vs_zero", "the token behind the drafts",
                          "takes token 0 for none: compares it with 0, not with the pad token",
                          "vLLM #29274"),
    mistake<wrong_row>("bonus_of_wrong_row", "the token behind the drafts",
                       "emits the token behind the last draft, not behind the accepted ones",
                       "vLLM #8320"),
    mistake<of_target>("residual_is_target", "the token behind the drafts",
                       "draws the token in the place of a rejected draft from p, not from what p "
                       "has beyond q"),
    mistake<unclamped>("residual_unclamped", "the token behind the drafts",
                       "adds p - q where it is below 0 as well"),
    mistake<behind_vocabulary>("recovered_oov", "the token behind the drafts",
                               "reads the last tile of 1024 to its end, behind the vocabulary",
                               "vLLM #44744, #53029"),
    mistake<shared>("uniform_shared", "the token behind the drafts",
                    "draws with the uniform that rejected the draft", "vLLM #47386"),
};

}  // namespace

std::span<const calls::Mistake> token_mistakes() { return kTokenMistakes; }

}  // namespace goldenrule::drafts

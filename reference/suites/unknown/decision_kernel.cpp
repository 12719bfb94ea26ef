// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/unknown/decision_kernel.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/drafts/slice.hpp"

namespace goldenrule::suites {
namespace {

using drafts::Chosen;
using drafts::CountPoint;
using drafts::From;
using drafts::Stop;
using drafts::Test;
using drafts::TokenPoint;
using drafts::Weights;
using Row = std::vector<float>;

class Kernel {
 public:
  Kernel(const call::Record& call, const CountPoint& count, const TokenPoint& token)
      : call_(call), count_(count), token_(token), tokens_(call.inputs.at("draft_tokens")) {
    rows_ = tokens_.shape()[0];
    width_ = tokens_.shape()[1];
  }

  call::TensorMap run() const {
    drafts::Work work(call_);
    call::TensorMap outputs = drafts::slice().emulate(call_, contract::find_contract("ideal"), 1);
    for (std::int64_t n = 0; n < rows_; ++n) {
      if (number("start", n) < 0.0F) continue;
      drafts::Outcome outcome;
      outcome.accepted = accepted(n);
      outcome.token = token(n, outcome.accepted);
      drafts::store(work.decisions.returned(n, outcome), n, outputs);
    }
    return outputs;
  }

 private:
  [[nodiscard]] bool has(const char* name) const { return call_.inputs.contains(name); }
  [[nodiscard]] float number(const char* name, std::int64_t i) const {
    const call::Tensor& t = call_.inputs.at(name);
    return static_cast<float>(t[std::clamp<std::int64_t>(i, 0, t.size() - 1)]);
  }
  [[nodiscard]] std::int64_t drafts_of(std::int64_t n) const {
    return has("draft_lens") ? static_cast<std::int64_t>(number("draft_lens", n)) : width_;
  }
  [[nodiscard]] std::int64_t target_rows() const {
    return call_.inputs.at(greedy() ? "target_tokens" : "target_probs").shape()[1];
  }
  [[nodiscard]] bool greedy() const { return call_.mode == call::Mode::kGreedy; }
  [[nodiscard]] bool one_hot() const {
    return call_.convention.draft_kind == call::DraftKind::kOneHot;
  }
  [[nodiscard]] std::int64_t vocabulary() const {
    return call_.inputs.at("target_probs").shape()[2];
  }
  [[nodiscard]] std::int64_t draft(std::int64_t n, std::int64_t i) const {
    return static_cast<std::int64_t>(tokens_[n * width_ + i]);
  }

  // The flat place of position i of request n in a tensor of `positions` a request.
  [[nodiscard]] std::int64_t flat(From from, std::int64_t n, std::int64_t i, std::int64_t last,
                                  std::int64_t positions) const {
    switch (from) {
      case From::kOwn:
        return n * positions + i;
      case From::kNext:
        return n * positions + i + 1;
      case From::kBefore:
        return n * positions + i - 1;
      case From::kNextInside:
        return n * positions + std::min(i + 1, last);
      case From::kBeforeInside:
        return n * positions + std::max<std::int64_t>(i - 1, 0);
      case From::kFirst:
        return n * positions;
      case From::kLast:
        return n * positions + last;
      case From::kFirstRow:
        return i;
    }
    return 0;
  }
  [[nodiscard]] std::int64_t target_place(From from, std::int64_t n, std::int64_t i) const {
    const std::int64_t rows = target_rows();
    return flat(from, n, i, std::min(drafts_of(n), rows - 1), rows);
  }
  [[nodiscard]] Row row(const char* name, std::int64_t at) const {
    const call::Tensor& t = call_.inputs.at(name);
    const std::int64_t Z = vocabulary();
    at = std::clamp<std::int64_t>(at, 0, t.size() / Z - 1);
    Row values(static_cast<std::size_t>(Z));
    for (std::int64_t x = 0; x < Z; ++x) {
      values[static_cast<std::size_t>(x)] = static_cast<float>(t[at * Z + x]);
    }
    return values;
  }
  // The last where no sum is above the threshold.
  static std::int64_t drawn(const Row& w, float u, bool times_sum = true) {
    const std::vector<double> wide(w.begin(), w.end());
    double sum = 0.0, below = 0.0;
    for (const double x : wide) sum += std::max(x, 0.0);
    const auto number = static_cast<double>(u);
    const double threshold = times_sum ? number * sum : number;
    for (std::size_t x = 0; x < wide.size(); ++x) {
      below += wide[x];
      if (below > threshold) return static_cast<std::int64_t>(x);
    }
    return std::ssize(w) - 1;
  }
  static std::int64_t likeliest(const Row& w) { return std::ranges::max_element(w) - w.begin(); }

  [[nodiscard]] bool passes(std::int64_t n, std::int64_t i, float& product) const {
    if (count_.test == Test::kAlways) return true;
    if (count_.test == Test::kNever) return false;
    const std::int64_t d = draft(n, i);
    const std::int64_t at = target_place(count_.target, n, i);
    if (greedy()) return static_cast<std::int64_t>(number("target_tokens", at)) == d;
    const Row target = row("target_probs", at);
    const float p = target[static_cast<std::size_t>(d)];
    const float q = one_hot() ? 1.0F : number("draft_probs", (n * width_ + i) * vocabulary() + d);
    const float u = number("uniforms", flat(count_.uniform, n, i, drafts_of(n) - 1, width_));
    product *= p / q;
    const bool strict = call_.convention.accept_rule == call::AcceptRule::kLt;
    const auto below = [&](float left, float right) {
      return strict ? left < right : left <= right;
    };
    switch (count_.test) {
      case Test::kWithoutQ:
        return u <= p;
      case Test::kInverted:
        return u * p <= q;
      case Test::kComplement:
        return (1.0F - u) * q <= p;
      case Test::kWithoutU:
        return q <= p;
      case Test::kProduct:
        return u <= product;
      case Test::kLikeliest:
        return d == likeliest(target);
      case Test::kAlsoLikeliest:
        return below(u * q, p) || d == likeliest(target);
      case Test::kSampled:
        return d == drawn(target, u);
      case Test::kRight:
      case Test::kAlways:
      case Test::kNever:
        break;
    }
    return q > 0.0F && below(u * q, p);
  }

  [[nodiscard]] std::int64_t accepted(std::int64_t n) const {
    const std::int64_t drafts = drafts_of(n);
    std::int64_t run = 0, sum = 0, last = 0;
    float product = 1.0F;
    for (std::int64_t i = 0; i < drafts; ++i) {
      const bool free = count_.stop == Stop::kFirstFree && i == 0;
      const bool pass = passes(n, i, product) || free;
      if (pass && run == i) ++run;
      if (pass) {
        ++sum;
        last = i + 1;
      }
    }
    switch (count_.stop) {
      case Stop::kSum:
        return sum;
      case Stop::kLastSuccess:
        return last;
      case Stop::kAllOrNone:
        return run == drafts ? run : 0;
      case Stop::kOneMore:
        return std::min(run + 1, drafts);
      case Stop::kOneLess:
        return std::max<std::int64_t>(run - 1, 0);
      case Stop::kFirstFailure:
      case Stop::kFirstFree:
        break;
    }
    return run;
  }

  [[nodiscard]] Row weights(std::int64_t n, std::int64_t a) const {
    Row w = row("target_probs", target_place(token_.target, n, a));
    if (a == drafts_of(n) || token_.weights == Weights::kTarget) return w;
    if (one_hot()) {
      w[static_cast<std::size_t>(draft(n, a))] = 0.0F;
      return w;
    }
    const Row q = row("draft_probs", flat(token_.draft, n, a, drafts_of(n) - 1, width_));
    for (std::size_t x = 0; x < w.size(); ++x) {
      const float difference = w[x] - q[x];
      if (token_.weights == Weights::kRight) w[x] = std::max(difference, 0.0F);
      if (token_.weights == Weights::kDraft) w[x] = q[x];
      if (token_.weights == Weights::kDistance) w[x] = std::fabs(difference);
      if (token_.weights == Weights::kUnclamped) w[x] = difference;
    }
    return w;
  }

  [[nodiscard]] std::int64_t token(std::int64_t n, std::int64_t a) const {
    if (greedy()) {
      return static_cast<std::int64_t>(number("target_tokens", target_place(token_.target, n, a)));
    }
    const std::int64_t drafts = drafts_of(n);
    if (a == drafts && has("bonus_tokens")) {
      return static_cast<std::int64_t>(number("bonus_tokens", n));
    }
    if (token_.chosen == Chosen::kDraft && a < drafts) return draft(n, a);
    Row w = weights(n, a);
    if (token_.chosen == Chosen::kLikeliest) return likeliest(w);
    const bool by_decision = (token_.chosen == Chosen::kByDecision && drafts > 0) ||
                             (token_.chosen == Chosen::kByRejection && a < drafts);
    const std::int64_t of = token_.chosen == Chosen::kOfFirstRow ? 0 : n;
    if (has("recover_noise") && !by_decision) {
      const Row noise = row("recover_noise", of);
      for (std::size_t x = 0; x < w.size(); ++x) {
        w[x] = token_.chosen == Chosen::kTimesNoise ? w[x] * noise[x] : w[x] / noise[x];
      }
      return likeliest(w);
    }
    const float u = by_decision ? number("uniforms", n * width_ + std::min(a, drafts - 1))
                                : number("recover_uniforms", of);
    return drawn(w, u, token_.chosen != Chosen::kUnnormalized);
  }

  const call::Record& call_;
  const CountPoint count_;
  const TokenPoint token_;
  const call::Tensor& tokens_;
  std::int64_t rows_, width_;
};

}  // namespace

call::TensorMap decide(const call::Record& call, const CountPoint& count, const TokenPoint& token) {
  return Kernel(call, count, token).run();
}

}  // namespace goldenrule::suites

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/drafts/search/drawn.hpp"
#include "reference/drafts/search/read.hpp"

namespace goldenrule::drafts {
namespace {

using Token = std::optional<std::int64_t>;

Token best_of(std::span<const double> scores) {
  const auto best = largest(scores);
  if (!best) return std::nullopt;
  const double most = scores[static_cast<std::size_t>(*best)];
  const auto rivals =
      std::ranges::count_if(scores, [&](double s) { return s * (1.0 + 16.0 * 0x1p-24) >= most; });
  return most > 0.0 && rivals == 1 ? best : Token();
}

// Weights of the tokens behind `own.i` drafts.
std::optional<std::vector<double>> weights_of(const Work& work, At own, const TokenPoint& point) {
  const auto target = place(work, point.target, own, Positions::kTarget);
  if (!target) return std::nullopt;
  auto w = target_row(work, *target);
  const bool behind_all = own.i == work.row(own.n).drafts;
  if (!w || point.weights == Weights::kTarget || behind_all) return w;
  if (work.is_one_hot()) {
    const std::int64_t d = work.decisions.draft(own.n, own.i);
    if (point.weights != Weights::kRight) return std::nullopt;
    (*w)[static_cast<std::size_t>(d)] = 0.0;
    return w;
  }
  const auto draft = place(work, point.draft, own, Positions::kDrafts);
  const auto q = draft ? draft_row(work, *draft) : std::nullopt;
  if (!q) return std::nullopt;
  for (std::size_t x = 0; x < w->size(); ++x) {
    const double difference = (*w)[x] - (*q)[x];
    switch (point.weights) {
      case Weights::kRight:
        (*w)[x] = std::max(difference, 0.0);
        break;
      case Weights::kDraft:
        (*w)[x] = (*q)[x];
        break;
      case Weights::kDistance:
        (*w)[x] = std::fabs(difference);
        break;
      case Weights::kTarget:
      case Weights::kUnclamped:
        (*w)[x] = difference;
        break;
    }
  }
  return w;
}

Token by_noise(const Work& work, std::span<const double> w, std::int64_t n, bool times) {
  const auto Z = std::ssize(w);
  std::vector<double> noise(w.size());
  work.call.inputs.at("recover_noise").read(n * Z, Z, noise.data());
  for (std::size_t x = 0; x < w.size(); ++x) {
    if (!(noise[x] > 0.0) || !std::isfinite(noise[x])) return std::nullopt;
    noise[x] = times ? w[x] * noise[x] : w[x] / noise[x];
  }
  return best_of(noise);
}

Token by_uniform(std::span<const double> w, double u, Threshold threshold = Threshold::kOfSum) {
  const auto tokens = drawn(w, u, threshold);
  return tokens ? tokens->only() : Token();
}

Token by_decision(const Work& work, At own, std::span<const double> w) {
  const std::int64_t drafts = work.row(own.n).drafts;
  if (drafts == 0) return std::nullopt;
  const std::int64_t last = std::min(own.i, drafts - 1);
  return by_uniform(w, work.call.inputs.at("uniforms")[own.n * work.plan.dims.drafts + last]);
}

Token chosen(const Work& work, At own, std::span<const double> w, Chosen how) {
  if (how == Chosen::kLikeliest) return best_of(w);
  const bool rejected = own.i < work.row(own.n).drafts;
  if (how == Chosen::kByDecision || (how == Chosen::kByRejection && rejected)) {
    return by_decision(work, own, w);
  }
  const std::int64_t n = how == Chosen::kOfFirstRow ? 0 : own.n;
  if (work.row(n).padded()) return std::nullopt;
  if (work.call.find_input("recover_noise") != nullptr) {
    if (how == Chosen::kUnnormalized) return std::nullopt;
    return by_noise(work, w, n, how == Chosen::kTimesNoise);
  }
  if (how == Chosen::kTimesNoise) return std::nullopt;
  return by_uniform(w, work.call.inputs.at("recover_uniforms")[n],
                    how == Chosen::kUnnormalized ? Threshold::kItself : Threshold::kOfSum);
}

Token of_greedy(const Work& work, At own, const TokenPoint& point) {
  const auto target = place(work, point.target, own, Positions::kTarget);
  const bool there = point.weights == Weights::kRight && point.draft == From::kOwn &&
                     point.chosen == Chosen::kRight && target;
  return there ? Token(work.decisions.target_token(target->n, target->i)) : Token();
}

}  // namespace

int TokenPoint::wrong() const {
  return (weights != Weights::kRight) + (target != From::kOwn) + (draft != From::kOwn) +
         (chosen != Chosen::kRight);
}

std::optional<std::int64_t> token_of(const Reading& reading, std::int64_t n, std::int64_t accepted,
                                     const TokenPoint& point) {
  const Work& work = reading.work;
  const std::int64_t drafts = work.row(n).drafts;
  if (accepted < 0 || accepted > drafts) return std::nullopt;
  if (point.chosen == Chosen::kDraft && accepted < drafts) return work.decisions.draft(n, accepted);
  if (point == TokenPoint()) return work.decisions.token(n, accepted);
  const bool given = accepted == drafts && work.call.inputs.contains("bonus_tokens");
  if (given) return work.decisions.token(n, accepted);
  if (work.is_greedy()) return of_greedy(work, {n, accepted}, point);
  const Chosen how = point.chosen == Chosen::kDraft ? Chosen::kRight : point.chosen;
  const auto w = weights_of(work, {n, accepted}, point);
  return w ? chosen(work, {n, accepted}, *w, how) : std::nullopt;
}

}  // namespace goldenrule::drafts

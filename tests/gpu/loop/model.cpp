// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/loop/model.hpp"

#include <cmath>

#include "fixtures/random/philox.hpp"

namespace goldenrule::test::loop {
namespace {

using random::Stream;

constexpr std::uint64_t kSeed = 16;
constexpr int kTerms = 4;  // elements of o that a logit reads

/// One index for a place of two or three coordinates, each below 2^20.
std::int64_t index_of(std::int64_t a, std::int64_t b, std::int64_t c = 0) {
  return ((a << 20) + b) * (std::int64_t{1} << 20) + c;
}

Choice signs_of(const Question& question, int draw, const Numbers& u) {
  const Stream thresholds(kSeed + static_cast<std::uint64_t>(draw), "thresholds");
  Choice choice{.value = 0, .clear = true};
  for (std::size_t i = 0; i < u.values.size(); ++i) {
    const double theta = 0.1 * thresholds.normal(index_of(question.request, question.position,
                                                          static_cast<std::int64_t>(i)));
    const double above = u.values[i] - theta;
    if (above > 0.0) choice.value |= std::int64_t{1} << i;
    choice.clear = choice.clear && std::fabs(above) > u.bound(i);
  }
  return choice;
}

struct Logit {
  double value = 0.0, bound = 0.0;
};

// Drafter and target share what they know of the language, so that drafts are often right.
double prior(const Question& question, std::int64_t token) {
  constexpr double kSpread = 4.0, kStopRarely = -6.0;
  const Stream language(kSeed, "language");
  return kSpread * language.normal(index_of(question.request, question.position, token)) +
         (token == kStop ? kStopRarely : 0.0);
}

Logit logit_of(const Question& question, int draw, std::int64_t token, const Numbers& o) {
  const Stream head(kSeed + static_cast<std::uint64_t>(draw),
                    question.kind == Kind::kDraft ? "draft head" : "target head");
  Logit logit{.value = prior(question, token)};
  for (int term = 0; term < kTerms; ++term) {
    const std::uint64_t bits =
        head.bits(index_of(question.request, question.position, token * kTerms + term));
    const std::size_t element = (bits >> 1) % o.values.size();
    logit.value += (bits & 1) != 0 ? o.values[element] : -o.values[element];
    logit.bound += o.bound(element);
  }
  // Both sides add the same five numbers in one order: 8 u of the sum of their sizes is more than
  // either errs, and far below the bounds of o.
  logit.bound += 0x1p-50 * (std::fabs(logit.value) + 16.0);
  return logit;
}

Choice token_of(const Question& question, int draw, const Numbers& o) {
  std::vector<Logit> logits;
  std::int64_t best = 0;
  for (std::int64_t z = 0; z < kVocabulary; ++z) {
    logits.push_back(logit_of(question, draw, z, o));
    if (logits.back().value > logits[static_cast<std::size_t>(best)].value) best = z;
  }
  const Logit& first = logits[static_cast<std::size_t>(best)];
  Choice choice{.value = best, .clear = true};
  for (std::int64_t z = 0; z < kVocabulary; ++z) {
    const Logit& other = logits[static_cast<std::size_t>(z)];
    if (z != best && !(first.value - other.value > first.bound + other.bound)) choice.clear = false;
  }
  return choice;
}

}  // namespace

std::vector<double> project(const std::string& name, std::int64_t width, const Hidden& hidden) {
  const Stream tokens(kSeed, name), places(kSeed, name + " at"), signs(kSeed, name + " of signs");
  std::vector<double> x(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < width; ++i) {
    double sum =
        tokens.normal(hidden.token * width + i) + 0.5 * places.normal(hidden.position * width + i);
    for (std::int64_t s = 0; hidden.has_signs && s < kSignCount; ++s) {
      const double part = signs.normal(s * width + i) / std::sqrt(static_cast<double>(kSignCount));
      sum += (hidden.signs >> s & 1U) != 0 ? part : -part;
    }
    x[static_cast<std::size_t>(i)] = sum;
  }
  return x;
}

Choice decide(const Question& question, int draw, const Numbers& numbers) {
  return question.kind == Kind::kSigns ? signs_of(question, draw, numbers)
                                       : token_of(question, draw, numbers);
}

}  // namespace goldenrule::test::loop

// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/generated.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "fixtures/parallel/observer.hpp"
#include "reference/explain/screening.hpp"

namespace goldenrule::explain {
namespace {

// Results on few lanes: of the parts of one call, which are merged in several ways.
constexpr std::size_t kRemembered = 128;

// The cuts of one capture, each made where a mistake first asks for it.
class Parts {
 public:
  Parts(const Trial& whole, std::span<const Failures> failures, std::int64_t hypotheses)
      : whole_(whole), failures_(failures), hypotheses_(hypotheses) {}

  const Trial& by(calls::CutBy by) {
    if (by == calls::CutBy::kNothing) return whole_;
    std::optional<Trial>& part = parts_[static_cast<std::size_t>(by)];
    if (!part) part.emplace(few_lanes(*whole_.capture, failures_, by, hypotheses_));
    return *part;
  }

 private:
  const Trial& whole_;
  const std::span<const Failures> failures_;
  const std::int64_t hypotheses_;
  std::array<std::optional<Trial>, 3> parts_;
};

}  // namespace

std::vector<Candidate> screen_generated(const Trial& whole, std::span<const Failures> failures,
                                        const std::vector<const calls::Mistake*>& mistakes) {
  Parts parts(whole, failures, std::ssize(mistakes));
  OracleKernel kernel(*whole.capture->slice, nullptr, kRemembered);
  parallel::Phase phase("generated mistakes", std::ssize(mistakes));
  std::vector<Candidate> promising;
  for (const calls::Mistake* m : mistakes) {
    phase.advance();
    const Trial& part = parts.by(m->cut_by);
    const auto prediction = part.predictor.predict({m}, kernel, SpreadBy::kScaling);
    if (!prediction) continue;
    Candidate c{.hypothesis = {m},
                .match = part.matcher.match(*prediction),
                .called_kernel = prediction->called_kernel,
                .prediction = {}};
    if (c.match.accounted >= kAccounted) promising.push_back(std::move(c));
  }
  std::ranges::stable_sort(promising, [](const Candidate& a, const Candidate& b) {
    return std::pair(!a.explains(), a.match.residual) < std::pair(!b.explains(), b.match.residual);
  });
  return promising;
}

std::vector<Candidate> one_of_a_kind(std::vector<Candidate> confirmed,
                                     const std::vector<Candidate>& promising,
                                     const BlockSearch& blocks) {
  const auto mistake = [](const Candidate& c) -> const calls::Mistake& {
    return *c.hypothesis.front();
  };
  std::vector<Candidate> kept;
  const auto kind_in_kept = [&](const Candidate& c) {
    return std::ranges::find_if(
        kept, [&](const Candidate& k) { return calls::are_of_a_kind(mistake(k), mistake(c)); });
  };
  for (Candidate& c : confirmed) {
    if (!c.explains()) continue;
    const auto found = kind_in_kept(c);
    if (found == kept.end()) {
      kept.push_back(std::move(c));
    } else {
      calls::share(mistake(*found), mistake(c), found->shared);
    }
  }
  for (const Candidate& c : promising) {
    const auto found = kind_in_kept(c);
    const bool open =
        std::ranges::find(confirmed, c.hypothesis, &Candidate::hypothesis) == confirmed.end() &&
        found != kept.end() && c.hypothesis != found->hypothesis;
    if (open && c.explains()) calls::share(mistake(*found), mistake(c), found->shared);
  }
  std::erase_if(kept, [&](const Candidate& c) { return blocks.may_be_chance(*c.prediction); });
  return kept;
}

}  // namespace goldenrule::explain

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
  parallel::Phase phase("generated mistakes", std::ssize(mistakes));
  std::vector<Candidate> promising;
  for (const calls::Mistake* m : mistakes) {
    phase.advance();
    const Trial& part = parts.by(m->cut_by);
    const auto prediction = part.predictor.predict({m}, SpreadBy::kScaling);
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

}  // namespace goldenrule::explain

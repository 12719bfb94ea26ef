// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/search.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "fixtures/parallel/observer.hpp"
#include "reference/explain/few_lanes.hpp"
#include "reference/explain/generated.hpp"
#include "reference/explain/pairs.hpp"
#include "reference/explain/permutation.hpp"
#include "reference/explain/screening.hpp"
#include "reference/explain/ties.hpp"

namespace goldenrule::explain {
namespace {

constexpr double kSpreadSeconds = 60.0;  // core-seconds of a spread that is worked out at most
// Candidates whose spread is worked out.
constexpr std::size_t kConfirmed = 12;
constexpr std::size_t kConfirmedOfLarge = 3;

// Explanations by what they leave, those that take nothing for granted first; then by what they
// account for. A count of elements within budget would favour mistakes whose own budget is wide.
bool better(const Candidate& a, const Candidate& b) {
  if (a.explains() != b.explains()) return a.explains();
  if (!a.explains()) return a.match.accounted > b.match.accounted;
  return std::pair(a.assumptions(), a.match.residual) <
         std::pair(b.assumptions(), b.match.residual);
}

std::optional<Candidate> evaluate(const Trial& trial, const Hypothesis& hypothesis, SpreadBy by) {
  std::optional<Prediction> prediction = trial.predictor.predict(hypothesis, by);
  if (!prediction) return std::nullopt;
  Candidate candidate{.hypothesis = hypothesis,
                      .match = trial.matcher.match(*prediction),
                      .called_kernel = prediction->called_kernel,
                      .prediction = {}};
  candidate.prediction = std::move(prediction);
  return candidate;
}

class Search {
 public:
  Search(const Trial& whole, std::span<const Failures> failures,
         const std::vector<const calls::Mistake*>& mistakes,
         const std::vector<const calls::Mistake*>& generated, bool described, Effort& effort)
      : effort_(effort),
        described_(described),
        whole_(whole),
        failures_(failures),
        mistakes_(mistakes),
        generated_(generated),
        blocks_(whole_.capture->call, whole_.matcher,
                std::ssize(mistakes_) + std::ssize(generated_)),
        steps_(steps_of(*whole_.capture)),
        screened_(steps_ > kScreeningSteps / std::max<std::int64_t>(std::ssize(mistakes_), 1)) {
    if (!screened_) return;
    for (Capture& part : screening_cuts(*whole_.capture, failures, std::ssize(mistakes_))) {
      cuts_.emplace_back(std::move(part));
    }
  }

  void run() {
    std::vector<Hypothesis> singles;
    for (const calls::Mistake* m : mistakes_) singles.push_back({m});
    const auto late = [this] {
      singles_ += is_overdue() ? 0 : 1;
      return stopped_;
    };
    const std::vector<Candidate> promising = screen(singles, "single mistakes", late);
    found_ = confirm(promising);
    const auto explained = [this] { return std::ranges::any_of(found_, &Candidate::explains); };
    // What leaves elements unwritten explains whatever they hold; another may say what that is.
    const auto guesses = [](const Candidate& c) { return !c.explains() || c.match.guessed > 0; };
    if (std::ranges::all_of(found_, guesses)) generated();
    if (!explained()) rearranged(singles);
    if (!explained()) scatter();
    if (!explained() && scattered_.empty() && !described_) {
      by_blocks_ = blocks_.found();
      const auto stop = [this] {
        pairs_ += is_over() ? 0 : 1;
        return stopped_;
      };
      lanes_.emplace(screened_ ? cuts_.back() : whole_, failures_);
      for (Candidate& pair : confirm(screen(pairs(promising), "pairs of mistakes", stop))) {
        if (pair.explains()) found_.push_back(std::move(pair));
      }
    }
    std::ranges::stable_sort(found_, better);
  }

  [[nodiscard]] Found found() && {
    return {.candidates = std::move(found_),
            .by_blocks = std::move(by_blocks_),
            .scattered = std::move(scattered_),
            .rivals = std::move(rivals_),
            .screened = screened_,
            .singles = singles_,
            .pairs = std::min(pairs_, possible_pairs_),
            .possible_pairs = possible_pairs_,
            .stopped = stopped_};
  }

 private:
  bool is_over() { return stopped_ = stopped_ || effort_.is_over(); }
  bool is_overdue() { return stopped_ = stopped_ || effort_.left() <= 0.0; }
  bool admitted(const Hypothesis& pair) {
    const bool is_admitted = lanes_->admits(pair);
    effort_.spend(lanes_->take_seconds());
    return is_admitted;
  }
  std::optional<Candidate> evaluated(const Trial& trial, const Hypothesis& h, SpreadBy by) {
    effort_.spend(trial.prediction_seconds +
                  (by == SpreadBy::kKernel ? trial.spread_seconds : 0.0));
    return evaluate(trial, h, by);
  }

  void generated() {
    const std::vector<Candidate> promising = screen_generated(whole_, failures_, generated_);
    std::vector<Candidate> told = one_of_a_kind(confirm(promising), promising, blocks_);
    for (Candidate& c : told) found_.push_back(std::move(c));
  }

  // Right results in another order, or those of one mistake. A part of a capture has lost the
  // order of its tokens, so that of a large one only the right call is tried, on the whole.
  void rearranged(const std::vector<Hypothesis>& singles) {
    const auto keep = [this](Hypothesis hypothesis, Prediction prediction, bool called_kernel) {
      std::vector<std::string> words = rearrange(*whole_.capture, whole_.matcher, prediction);
      if (words.empty()) return;
      Candidate c{.hypothesis = std::move(hypothesis),
                  .match = whole_.matcher.match(prediction),
                  .called_kernel = called_kernel,
                  .rearranged = std::move(words),
                  .prediction = {}};
      if (!c.explains()) return;
      c.prediction = std::move(prediction);
      found_.push_back(std::move(c));
    };
    keep({}, whole_.matcher.right_call(), true);
    if (screened_ || std::ranges::any_of(found_, &Candidate::explains)) return;
    parallel::Phase phase("results in another order", std::ssize(singles));
    for (const Hypothesis& h : singles) {
      if (is_over()) return;
      phase.advance();
      effort_.spend(2.0 * whole_.prediction_seconds);
      auto prediction = whole_.predictor.predict(h, SpreadBy::kScaling);
      if (!prediction) continue;
      const bool called_kernel = prediction->called_kernel;
      keep(h, std::move(*prediction), called_kernel);
    }
  }

  // Mistakes inside the algorithm may amplify roundings; a mistake around the kernel does not.
  void scatter() {
    if (whole_.matcher.match_right_call().ratio < kFar) return;
    parallel::Phase phase("mistakes that amplify roundings", std::ssize(self_made_));
    const auto runs = static_cast<std::int64_t>(kScatterRuns * self_made_.size());
    const bool whole = steps_ <= kScreeningSteps / std::max<std::int64_t>(runs, 1);
    for (const calls::Mistake* m : self_made_) {
      if (is_over()) break;
      const Trial& trial = whole || !screened_ ? whole_ : cuts_.back();
      const auto match = match_scatter(*trial.capture, {m});
      effort_.spend((match ? match->runs : 1) * trial.prediction_seconds);
      if (match && match->explains()) scattered_.push_back({m, *match});
      phase.advance();
    }
    std::ranges::stable_sort(scattered_, [](const Scattered& a, const Scattered& b) {
      return a.match.profile > b.match.profile;
    });
  }

  void consider(const Candidate& c) {
    rivals_.push_back({c.hypothesis, c.match.failing});
    if (c.hypothesis.size() > 1 || c.explains()) return;
    blocks_.consider(c.hypothesis.front(), *c.prediction);
  }

  // Hypotheses that bring the outputs nearer to the capture, or a part of it, the best first. A
  // part is a call of its own, so what explains the whole explains each part: the cheapest comes
  // first, and what accounts for little there is not tried on the others. `stop` is asked before
  // each hypothesis of the first part; what is overdue ends any.
  template <class Stop>
  std::vector<Candidate> screen(std::vector<Hypothesis> hypotheses, const char* what,
                                const Stop& stop) {
    std::vector<Candidate> promising;
    bool first = true;
    const auto keep = [&](const Trial& part) {
      const Match right = part.matcher.match_right_call();
      if (right.failing == 0) return;
      parallel::Phase phase(what, std::ssize(hypotheses));
      std::vector<Hypothesis> left;
      for (const Hypothesis& h : hypotheses) {
        if (first ? stop() : is_overdue()) break;
        phase.advance();
        if (first && h.size() > 1 && !admitted(h)) continue;
        std::optional<Candidate> c = evaluated(part, h, SpreadBy::kScaling);
        if (!c) continue;
        if (first && h.size() == 1 && c->match.breaks_right) breaking_.insert(h.front());
        if (first && h.size() == 1 && !c->called_kernel) self_made_.push_back(h.front());
        if (c->match.accounted >= kAccounted) left.push_back(h);
        if (&part == &whole_) consider(*c);
        c->prediction.reset();
        // In a slot that nobody may touch every error is beyond all budgets, before and after.
        const bool nearer = c->match.failing < right.failing ||
                            c->match.residual < 0.9 * right.residual ||
                            c->match.accounted >= kAccounted;
        if (!nearer) continue;
        const auto seen = std::ranges::find(promising, h, &Candidate::hypothesis);
        if (seen == promising.end()) {
          promising.push_back(std::move(*c));
        } else if (better(*c, *seen)) {
          *seen = std::move(*c);
        }
      }
      hypotheses = std::move(left);
      first = false;
    };
    if (!screened_) keep(whole_);
    for (auto part = cuts_.rbegin(); part != cuts_.rend(); ++part) keep(*part);
    std::ranges::stable_sort(promising, better);
    return promising;
  }

  // The first of them on the whole capture, with the spread of the mistaken call. What a hypothesis
  // accounts for does not depend on the spread: those that cannot explain stay as they are.
  std::vector<Candidate> confirm(const std::vector<Candidate>& promising) {
    const Capture& capture = *whole_.capture;
    const auto spread_by = [&] {
      const bool affordable = whole_.spread_seconds <= std::min(kSpreadSeconds, effort_.left());
      return affordable ? SpreadBy::kKernel : SpreadBy::kScaling;
    };
    const std::size_t most = screened_ ? kConfirmedOfLarge : kConfirmed;
    std::vector<Candidate> confirmed;
    for (std::size_t i = 0; i < promising.size() && i < most; ++i) {
      if (i > 0 && is_overdue()) break;
      const Candidate& candidate = promising[i];
      if (!screened_ && candidate.match.accounted < kAccounted) {
        confirmed.push_back(candidate);
      } else if (auto c = evaluated(whole_, candidate.hypothesis, spread_by())) {
        consider(*c);
        const bool near = !c->explains() && c->match.accounted >= kAccounted;
        c->only_ties_left = near && only_ties_left(capture, whole_.predictor, whole_.matcher,
                                                   c->hypothesis, *c->prediction, c->match);
        if (!c->explains()) c->prediction.reset();
        confirmed.push_back(std::move(*c));
        // Of a large capture one explanation is enough: each costs a run of the whole call.
        if (screened_ && confirmed.back().explains()) break;
      }
    }
    return confirmed;
  }

  // Pairs, as many as cost no more than the singles have, twice.
  std::vector<Hypothesis> pairs(std::vector<Candidate> promising) {
    const std::int64_t steps = screened_ ? kScreeningSteps / std::ssize(mistakes_) : steps_;
    const auto affordable =
        static_cast<std::size_t>(2 * kScreeningSteps / std::max<std::int64_t>(steps, 1));
    const auto breaks = [&](const calls::Mistake* m) { return breaking_.contains(m); };
    std::erase_if(promising, [&](const Candidate& c) { return breaks(c.hypothesis.front()); });
    std::vector<const calls::Mistake*> others = mistakes_;
    std::erase_if(others, breaks);
    std::vector<Hypothesis> all = pairs_of(promising, others, affordable);
    possible_pairs_ = std::ssize(all);
    return all;
  }

  Effort& effort_;
  const bool described_;
  const Trial& whole_;
  const std::span<const Failures> failures_;
  const std::vector<const calls::Mistake*>& mistakes_;
  const std::vector<const calls::Mistake*>& generated_;
  BlockSearch blocks_;
  const std::int64_t steps_;
  const bool screened_;
  std::vector<Trial> cuts_;
  std::int64_t singles_ = 0, pairs_ = 0, possible_pairs_ = 0;
  bool stopped_ = false;
  std::vector<const calls::Mistake*> self_made_;  // with an implementation of their own
  std::set<const calls::Mistake*> breaking_;      // of the first part: Match::breaks_right
  std::optional<FewLanes> lanes_;                 // of pairs
  std::vector<Candidate> found_;
  std::vector<BlockExplanation> by_blocks_;
  std::vector<Scattered> scattered_;
  std::vector<Rival> rivals_;
};

}  // namespace

Found search(const Trial& whole, std::span<const Failures> failures,
             const std::vector<const calls::Mistake*>& mistakes,
             const std::vector<const calls::Mistake*>& generated, bool described, Effort& effort) {
  Search search(whole, failures, mistakes, generated, described, effort);
  search.run();
  return std::move(search).found();
}

}  // namespace goldenrule::explain

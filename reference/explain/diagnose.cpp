// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/diagnose.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "reference/explain/pattern.hpp"
#include "reference/explain/places.hpp"

namespace goldenrule::explain {
namespace {

// Explanations that are reported, and near misses.
constexpr std::size_t kReported = 5;
constexpr std::size_t kNearMisses = 3;

Explanation explanation_of(const Hypothesis& hypothesis, const call::Record& record) {
  Explanation e;
  for (const calls::Mistake* m : hypothesis) {
    e.mistakes.emplace_back(m->name);
    e.meanings.emplace_back(m->meaning);
    if (!m->reported.empty()) e.reported.emplace_back(m->reported);
    if (const auto meant = calls::meant_convention(*m, record)) e.meant.push_back(*meant);
  }
  // One of two mistakes that is none leaves a mistake.
  if (e.meant.size() < e.mistakes.size()) e.meant.clear();
  return e;
}

// In place of the one mistake, where others of its kind explain as well.
void say_shared(const std::vector<calls::Aspect>& shared, Explanation& e) {
  if (shared.empty()) return;
  e.mistakes = {calls::joined_name(shared)};
  e.meanings = {calls::joined_meaning(shared)};
}

Explanation explanation_of(const Candidate& c, const call::Record& record) {
  Explanation e = explanation_of(c.hypothesis, record);
  say_shared(c.shared, e);
  for (auto words = c.rearranged.rbegin(); words != c.rearranged.rend(); ++words) {
    e.mistakes.insert(e.mistakes.begin(), *words);
    e.meanings.insert(e.meanings.begin(), "results are right in another order: " + *words);
    e.meant.clear();
  }
  e.residual_ratio = c.match.ratio;
  e.accounted = c.match.accounted;
  e.failing = c.match.failing;
  e.unbounded = c.match.unbounded;
  e.explains = c.explains();
  if (c.only_ties_left) e.flipped = c.match.failing;
  return e;
}

Explanation explanation_of(const BlockExplanation& found, const call::Record& record) {
  Explanation e = explanation_of(found.mistakes, record);
  say_shared(found.shared, e);
  // What would be declared is declared for all blocks.
  e.meant.clear();
  e.where = found.where;
  e.same = found.same;
  e.residual_ratio = found.ratio;
  e.accounted = found.accounted;
  e.explains = true;
  return e;
}

// Behind what explains the whole call, instead of near misses.
void add_by_blocks(const call::Record& record, const std::vector<BlockExplanation>& found,
                   std::vector<Explanation>& explanations) {
  if (found.empty()) return;
  std::erase_if(explanations, [](const Explanation& e) { return !e.explains; });
  for (const BlockExplanation& f : found) {
    if (explanations.size() == kReported) return;
    Explanation e = explanation_of(f, record);
    const bool named = std::ranges::any_of(explanations, [&](const Explanation& other) {
      return other.mistakes == e.mistakes && !other.where.empty();
    });
    if (!named) explanations.push_back(std::move(e));
  }
}

// Explanations with the same outputs are one, under the name that comes first in the table; those
// of one name are one too.
std::vector<Explanation> report(const call::Record& record, const Matcher& matcher,
                                const std::vector<Candidate>& found, std::int64_t failing) {
  std::vector<Explanation> explanations;
  std::vector<const Candidate*> kept;
  std::size_t near_misses = 0;
  for (const Candidate& c : found) {
    Explanation e = explanation_of(c, record);
    const bool named = std::ranges::any_of(explanations, [&](const Explanation& other) {
      return other.name() == e.name() ||
             std::ranges::find(other.same, e.name()) != other.same.end();
    });
    if (named) continue;
    if (!c.explains()) {
      const bool near = c.match.failing < failing && c.match.accounted >= kAccounted;
      if (kept.empty() && near && near_misses < kNearMisses) {
        explanations.push_back(std::move(e));
        ++near_misses;
      }
      continue;
    }
    const auto same = std::ranges::find_if(kept, [&](const Candidate* other) {
      return matcher.same_outputs(*other->prediction, *c.prediction);
    });
    if (same != kept.end()) {
      explanations[static_cast<std::size_t>(same - kept.begin())].same.push_back(e.name());
    } else if (kept.size() < kReported) {
      kept.push_back(&c);
      explanations.push_back(std::move(e));
    }
  }
  return explanations;
}

std::vector<const calls::Mistake*> possible_in(const call::Record& call,
                                               std::span<const calls::Mistake> mistakes) {
  std::vector<const calls::Mistake*> possible;
  for (const calls::Mistake& m : mistakes) {
    if (m.applies(call)) possible.push_back(&m);
  }
  return possible;
}

// Whether the names, in any order, are those of the hypothesis.
bool is_of(const Hypothesis& hypothesis, std::vector<std::string> names) {
  return names.size() == hypothesis.size() &&
         std::ranges::all_of(hypothesis, [&](const calls::Mistake* m) {
           return std::erase_if(names, [&](const auto& n) { return calls::is_name_of(*m, n); }) > 0;
         });
}

// Of an explanation of the whole call, element by element.
void name_rival(const std::vector<Rival>& rivals, std::int64_t failing, Explanation& e) {
  e.rival = "a right kernel";
  e.told_by = failing;
  for (const Rival& r : rivals) {
    std::string name;
    for (const calls::Mistake* m : r.hypothesis) {
      name += (name.empty() ? "" : " + ") + std::string(m->name);
    }
    const bool same =
        std::ranges::find(e.same, name) != e.same.end() || is_of(r.hypothesis, e.mistakes);
    if (same || r.failing >= e.told_by) continue;
    e.rival = std::move(name);
    e.told_by = r.failing;
  }
  e.told_by = std::max<std::int64_t>(e.told_by - e.unbounded, 0);
}

void drop_unproven_reports(std::vector<Explanation>& explanations) {
  const auto explaining = std::ranges::count_if(explanations, &Explanation::explains);
  for (Explanation& e : explanations) {
    const bool proven = e.explains && explaining == 1 && e.same.empty() && e.meant.empty() &&
                        e.flipped == 0 && !e.width;
    if (!proven) e.reported.clear();
  }
}

}  // namespace

std::string Explanation::name() const {
  std::string text;
  for (const std::string& m : mistakes) text += (text.empty() ? "" : " + ") + m;
  return text;
}

std::string Explanation::name_and_place() const {
  if (where.empty()) return name();
  std::string text;
  for (std::size_t i = 0; i < mistakes.size(); ++i) {
    text.append(text.empty() ? "" : " + ").append(mistakes[i]).append(" in ").append(where[i]);
  }
  return text;
}

Diagnosis diagnose(const verdict::Judgement& judgement, std::span<const calls::Mistake> table,
                   const SearchLimit& limit) {
  const call::Record& record = judgement.record;
  Diagnosis diagnosis;
  diagnosis.known = std::ssize(table);
  const std::vector<Failures> failures =
      find_failures(record, judgement.contract, judgement.expected);
  std::int64_t failing = 0;
  for (const Failures& f : failures) failing += f.count;
  if (failing == 0) return diagnosis;
  diagnosis.pattern = describe_pattern(record, judgement.contract, judgement.expected, failures);
  if (judgement.slice->capture_mistakes != nullptr) {
    diagnosis.of_capture = judgement.slice->capture_mistakes(judgement);
  }
  if (std::ranges::any_of(diagnosis.of_capture, &calls::CaptureMistake::accounts)) return diagnosis;
  verdict::Searched searched;
  if (judgement.slice->find != nullptr) searched = judgement.slice->find(judgement);
  diagnosis.found = std::move(searched.texts);
  if (!searched.whole) {
    std::ranges::move(find_places(judgement, failures), std::back_inserter(diagnosis.found));
  }
  Capture capture = make_capture(judgement);
  const std::vector<const calls::Mistake*> applicable = possible_in(capture.call, table);
  std::vector<const calls::Mistake*> generated;
  if (judgement.slice->generated != nullptr) {
    generated = possible_in(capture.call, judgement.slice->generated());
  }
  diagnosis.possible = std::ssize(applicable);
  if (applicable.empty() && generated.empty()) return diagnosis;
  const Trial whole(std::move(capture));
  const double single = whole.prediction_seconds * static_cast<double>(diagnosis.possible + 1);
  Effort effort(limit, whole.prediction_seconds + whole.spread_seconds, single);
  const Found found = search(whole, failures, applicable, generated, searched.whole, effort);
  for (const Scattered& s : found.scattered) {
    Explanation e = explanation_of({s.mistake}, record);
    e.residual_ratio = s.match.ratio;
    e.explains = true;
    e.width = s.match.width;
    diagnosis.explanations.push_back(std::move(e));
  }
  if (diagnosis.explanations.empty()) {
    diagnosis.explanations = report(record, whole.matcher, found.candidates, failing);
  }
  for (Explanation& e : diagnosis.explanations) {
    if (e.explains && !e.width && e.mistakes.size() <= 2) name_rival(found.rivals, failing, e);
  }
  add_by_blocks(record, found.by_blocks, diagnosis.explanations);
  drop_unproven_reports(diagnosis.explanations);
  diagnosis.tried = found.singles;
  diagnosis.pairs = found.pairs;
  diagnosis.possible_pairs = found.possible_pairs;
  diagnosis.screened = found.screened;
  if (found.stopped) diagnosis.stopped_after = effort.spent();
  return diagnosis;
}

}  // namespace goldenrule::explain

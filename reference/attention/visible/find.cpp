// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/visible/find.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "fixtures/parallel/for_each_index.hpp"
#include "reference/attention/visible/failing_rows.hpp"
#include "reference/attention/visible/filled.hpp"
#include "reference/attention/visible/forms.hpp"
#include "reference/attention/visible/match.hpp"
#include "reference/attention/visible/row_words.hpp"

namespace goldenrule::attention {
namespace {

constexpr std::int64_t kRows = 4096;        // failing rows that are searched
constexpr std::int64_t kPassingRows = 256;  // rows that pass on which a form is tried
constexpr std::int64_t kFewestRows = 16;
constexpr std::int64_t kMostKeys = std::int64_t{1} << 16;   // of a request
constexpr std::int64_t kSteps = std::int64_t{1} << 28;      // channels of keys, all rows together
constexpr std::int64_t kPairSteps = std::int64_t{1} << 26;  // pairs of ends, all rows together
constexpr double kDearer = 3.0;  // than the cheapest form: no alternative to it
constexpr double kAsGood = 2.0;  // a form of the same sets that costs no more than this beyond it
constexpr double kChanceBits = 10.0;
constexpr double kTriedForms = 10.0;
constexpr std::size_t kAskedRows = 64;  // for the numbers that forms may take
constexpr std::size_t kShownRows = 3;

struct Searched : JudgedRow {
  std::array<Readings, kKeyOrders> readings;
};

class Finder {
 public:
  explicit Finder(const verdict::Judgement& judgement)
      : plan_(make_plan(judgement.record)),
        seen_{&judgement, &plan_, Tensors(judgement.record), {}} {}

  std::vector<std::string> run() {
    const JudgedRows rows = judged_rows(*seen_.judgement, plan_);
    if (rows.failing.empty()) return {};
    seen_.lines = key_lines(seen_.record(), plan_, kMostKeys);
    search_rows(rows);
    std::vector<std::string> texts = by_forms();
    if (texts.empty()) texts = by_rows();
    return texts;
  }

 private:
  void search_rows(const JudgedRows& rows) {
    std::int64_t keys = 1;
    for (const auto& lines : seen_.lines) {
      for (const KeyLine& line : lines) keys = std::max(keys, line.size());
    }
    const Dims& d = plan_.dims;
    all_failing_ = rows.failing.size();
    const std::int64_t most = std::clamp(kSteps / (keys * (d.K + d.V)), kFewestRows, kRows);
    for (const JudgedRow& row : thinned(rows.failing, most)) failing_.push_back({row, {}});
    passing_ = thinned(rows.passing, std::min(kPassingRows, most));
    const std::int64_t complete = kPairSteps / (keys * keys);
    parallel::for_each_index(std::ssize(failing_), [&](std::int64_t i) {
      Searched& row = failing_[static_cast<std::size_t>(i)];
      const auto& lines = seen_.lines[row.place.request];
      for (std::size_t order = 0; order < lines.size(); ++order) {
        row.readings[order] = search(seen_, row.place, lines[order], i < complete);
      }
    });
  }

  [[nodiscard]] RowFacts facts(const JudgedRow& row, std::size_t order) const {
    return {&seen_, row.place, order};
  }
  [[nodiscard]] bool has_order(const JudgedRow& row, std::size_t order) const {
    return seen_.lines[row.place.request].size() > order;
  }

  using Rows = std::vector<const Searched*>;

  // What the searches know is asked first: it costs nothing.
  [[nodiscard]] bool reproduces_all(const Form& form, std::size_t order, const Rows& rows) const {
    std::vector<std::pair<const Searched*, Interval>> open;
    for (const Searched* row : rows) {
      const RowFacts of = facts(*row, order);
      const auto interval = form.interval(of);
      if (!interval) return false;
      const auto known =
          row->readings[order].knows(*interval, declared(seen_, row->place, of.line()));
      if (!known) {
        open.emplace_back(row, *interval);
      } else if (!*known) {
        return false;
      }
    }
    return std::ranges::all_of(open, [&](const auto& pair) {
      return reproduces(seen_, pair.first->place, facts(*pair.first, order).line(), pair.second);
    });
  }

  [[nodiscard]] bool differ(const Form& form, std::size_t order, const Match& match,
                            const Rows& rows) const {
    return order != match.order || std::ranges::any_of(rows, [&](const Searched* row) {
             const RowFacts of = facts(*row, order);
             return form.interval(of) != match.form.interval(of);
           });
  }

  // From rows of the group, spread over it, of which the searches know something.
  [[nodiscard]] Offsets offsets(const Rows& rows, std::size_t order) const {
    std::vector<RowFacts> of;
    std::vector<std::vector<Interval>> fits;
    const std::size_t step = rows.size() / kAskedRows + 1;
    for (std::size_t i = 0; i < rows.size(); i += step) {
      const Readings& readings = rows[i]->readings[order];
      if (readings.crowded || readings.fits.empty()) continue;
      of.push_back(facts(*rows[i], order));
      fits.push_back(readings.fits);
    }
    return offsets_of(of, fits);
  }

  [[nodiscard]] std::optional<Match> match(const Rows& rows) const {
    std::optional<Match> best;
    for (std::size_t order = 0; order < kKeyOrders; ++order) {
      if (!std::ranges::all_of(rows, [&](const Searched* r) { return has_order(*r, order); }))
        break;
      for (const Form& form : forms_of(seen_, offsets(rows, order))) {
        if (best && form.cost > best->form.cost + kDearer) break;
        if (best && !differ(form, order, *best, rows)) {
          if (form.cost <= best->form.cost + kAsGood) add_words(form, order, *best, best->same);
          continue;
        }
        if (!says_enough(form, order, rows) || !reproduces_all(form, order, rows)) continue;
        if (!best) {
          best = Match{form, order, {}, {}};
        } else {
          add_words(form, order, *best, best->others);
        }
      }
    }
    return best;
  }

  // Rows that are to see nothing are 0, as those that nobody writes: they say nothing of a set.
  [[nodiscard]] bool says_enough(const Form& form, std::size_t order, const Rows& rows) const {
    std::int64_t elements = 0;
    for (const Searched* row : rows) {
      const auto interval = form.interval(facts(*row, order));
      if (interval && interval->first < interval->last) elements += row->failing;
    }
    return static_cast<double>(elements) >= kChanceBits + kTriedForms;
  }

  // Whether the rows that pass are as the form says, too.
  [[nodiscard]] bool holds_elsewhere(const Match& match) const {
    return std::ranges::all_of(passing_, [&](const JudgedRow& row) {
      if (!has_order(row, match.order)) return true;
      const RowFacts of = facts(row, match.order);
      const auto interval = match.form.interval(of);
      if (!interval) return false;
      return *interval == declared(seen_, row.place, of.line()) ||
             reproduces(seen_, row.place, of.line(), *interval);
    });
  }

  // The failing rows apart by what `key` says of them: all, by request, by head, by both.
  template <class Key>
  [[nodiscard]] std::vector<Rows> apart(const Key& key) const {
    std::map<std::pair<std::int64_t, std::int64_t>, Rows> groups;
    for (const Searched& row : failing_) groups[key(row.place)].push_back(&row);
    std::vector<Rows> all;
    all.reserve(groups.size());
    for (auto& [name, rows] : groups) all.push_back(std::move(rows));
    return all;
  }

  [[nodiscard]] std::vector<std::string> by_forms() const {
    using Pair = std::pair<std::int64_t, std::int64_t>;
    std::vector<std::string> best;
    std::size_t covered = 0;
    const auto request = [](const Place& p) { return static_cast<std::int64_t>(p.request); };
    const std::array<std::vector<Rows>, 4> partitions{apart([](const Place&) {
                                                        return Pair{0, 0};
                                                      }),
                                                      apart([&](const Place& p) {
                                                        return Pair{request(p), 0};
                                                      }),
                                                      apart([](const Place& p) {
                                                        return Pair{0, p.row.head};
                                                      }),
                                                      apart([&](const Place& p) {
                                                        return Pair{request(p), p.row.head};
                                                      })};
    for (const std::vector<Rows>& groups : partitions) {
      std::map<std::string, std::pair<Match, Rows>> found;
      std::size_t rows = 0;
      for (const Rows& group : groups) {
        const auto m = match(group);
        if (!m) continue;
        // A part of the rows may fit by chance where each of them fits many sets.
        if (group.size() < failing_.size() && open_rows(*m, group) * 2 > group.size()) continue;
        auto& entry =
            found.try_emplace(keys_words(m->order) + " " + m->form.words, *m, Rows{}).first->second;
        entry.second.insert(entry.second.end(), group.begin(), group.end());
        rows += group.size();
      }
      if (rows <= covered) continue;
      covered = rows;
      best.clear();
      for (const auto& [words, entry] : found)
        best.push_back(form_words(entry.first, entry.second));
      if (covered == failing_.size()) break;
    }
    return covered * 2 < failing_.size() ? std::vector<std::string>{} : best;
  }

  // Rows of the order that other sets reproduce as well.
  [[nodiscard]] std::size_t open_rows(const Match& match, const Rows& rows) const {
    return static_cast<std::size_t>(std::ranges::count_if(rows, [&](const Searched* row) {
      const Readings& readings = row->readings[match.order];
      const auto interval = match.form.interval(facts(*row, match.order));
      return readings.crowded || std::ranges::any_of(readings.fits, [&](const Interval& fit) {
               return fit != *interval;
             });
    }));
  }

  [[nodiscard]] std::string form_words(const Match& match, const Rows& rows) const {
    const bool everywhere = rows.size() == failing_.size() && holds_elsewhere(match);
    std::vector<Place> places;
    for (const Searched* row : rows) places.push_back(row->place);
    std::string text =
        filled("{} sees {} {}; {}", everywhere ? "every query" : whose_words(plan_, places),
               keys_words(match.order), match.form.words, covered_words(rows.size()));
    if (const std::size_t open = open_rows(match, rows); open > 0) {
      text += filled(", {} of which other sets reproduce as well", open);
    }
    for (const std::string& same : match.same) text += filled("; in this call the same: {}", same);
    for (const std::string& other : match.others) text += filled("; so does: {}", other);
    return text;
  }

  [[nodiscard]] std::string covered_words(std::size_t rows) const {
    std::string text = rows == failing_.size()
                           ? filled("this reproduces all {} failing rows", rows)
                           : filled("this reproduces {} of {} failing rows", rows, failing_.size());
    if (failing_.size() < all_failing_) {
      text += filled(" that were tried, of {}", all_failing_);
    }
    return text + " (query and head)";
  }

  // Rows of which one interval alone can be the set, more than by chance.
  [[nodiscard]] std::vector<std::string> by_rows() const {
    std::vector<std::string> shown;
    std::size_t solved = 0;
    for (const Searched& row : failing_) {
      if (!has_order(row, 0) || !row.readings[0].complete || row.readings[0].crowded) continue;
      const KeyLine& line = seen_.lines[row.place.request][0];
      const double tried = 2.0 * std::log2(static_cast<double>(line.size()));
      const std::vector<Interval>& fits = row.readings[0].fits;
      if (fits.size() != 1 || fits[0].first == fits[0].last) continue;
      if (static_cast<double>(row.failing) < kChanceBits + tried) continue;
      ++solved;
      if (shown.size() < kShownRows) {
        shown.push_back(interval_words(row.place, line, fits[0], declared(seen_, row.place, line)));
      }
    }
    if (solved * 2 < failing_.size() || solved == 0) return {};
    return {filled(
        "one range of keys, and no other, reproduces each of {} of {} failing rows "
        "that were tried: {}{}",
        solved, failing_.size(), joined(shown, "; "), solved > shown.size() ? " and so on" : "")};
  }

  Plan plan_;
  Observed seen_;
  std::vector<Searched> failing_;
  std::size_t all_failing_ = 0;
  std::vector<JudgedRow> passing_;
};

}  // namespace

verdict::Searched find_visible_sets(const verdict::Judgement& judgement) {
  return {.texts = Finder(judgement).run()};
}

}  // namespace goldenrule::attention

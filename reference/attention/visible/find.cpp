// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/visible/find.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "fixtures/parallel/for_each_index.hpp"
#include "reference/attention/visible/filled.hpp"
#include "reference/attention/visible/forms.hpp"
#include "reference/attention/visible/row_words.hpp"
#include "reference/explain/failures.hpp"

namespace goldenrule::attention {
namespace {

constexpr std::int64_t kRows = 4096;        // failing rows that are searched
constexpr std::int64_t kPassingRows = 256;  // rows that pass on which a form is tried
constexpr std::int64_t kFewestRows = 16;
constexpr std::int64_t kMostKeys = std::int64_t{1} << 16;     // of a request
constexpr std::int64_t kSteps = std::int64_t{1} << 30;        // channels of keys, all rows together
constexpr std::int64_t kPairSteps = std::int64_t{1} << 27;    // pairs of ends, all rows together
constexpr double kDearer = 3.0;  // than the cheapest form: no alternative to it
constexpr double kAsGood = 2.0;  // a form of the same sets that costs no more than this beyond it
constexpr double kChanceBits = 10.0;
constexpr double kTriedForms = 10.0;
constexpr std::size_t kAskedRows = 64;  // for the numbers that forms may take
constexpr std::size_t kShownRows = 3;
constexpr std::size_t kOrders = 2;

struct Searched {
  Place place;
  std::int64_t failing = 0;  // elements
  std::array<Readings, kOrders> readings;
};

// A form of the rows in one order of keys.
struct Match {
  Form form;
  std::size_t order = 0;
  std::vector<std::string> same;    // forms that cost little more and mean the same sets in this call
  std::vector<std::string> others;  // forms that reproduce the rows by other sets
};

class Finder {
 public:
  explicit Finder(const verdict::Judgement& judgement)
      : plan_(make_plan(judgement.record)),
        seen_{&judgement, &plan_, Tensors(judgement.record), {}} {
    collect();
  }

  std::vector<std::string> run() {
    if (failing_.empty()) return {};
    seen_.lines = key_lines(seen_.record(), plan_, kMostKeys);
    search_rows();
    std::vector<std::string> texts = by_forms();
    if (texts.empty()) texts = by_rows();
    return texts;
  }

 private:
  // The failing elements of each row: those of o and its lse.
  void collect() {
    const auto& record = seen_.record();
    if (!record.outputs.contains("o")) return;
    const auto failures =
        explain::find_failures(record, seen_.judgement->contract, seen_.judgement->expected);
    for (std::size_t n = 0; n < plan_.requests.size(); ++n) {
      const Request& request = plan_.requests[n];
      for (std::int64_t i = 0; i < request.valid; ++i) {
        for (std::int64_t j = 0; j < plan_.dims.HV; ++j) {
          const Place place{n, {i, j}};
          const std::int64_t count = failing_elements(failures, place);
          (count > 0 ? failing_ : passing_).push_back({place, count, {}});
        }
      }
    }
  }

  [[nodiscard]] std::int64_t failing_elements(const std::vector<explain::Failures>& failures,
                                              const Place& place) const {
    const Request& request = plan_.requests[place.request];
    std::int64_t count = 0;
    for (const explain::Failures& f : failures) {
      if (f.name == "lse") {
        count += f.failing[lse_index(plan_, request.first_query + place.row.query, place.row.head)];
        continue;
      }
      const std::int64_t first = o_index(plan_, request, place.row);
      for (std::int64_t x = 0; x < plan_.dims.V; ++x) {
        count += f.failing[static_cast<std::size_t>(first + x)];
      }
    }
    return count;
  }

  static void thin(std::vector<Searched>& rows, std::int64_t most) {
    const std::int64_t n = std::ssize(rows);
    if (n <= most) return;
    for (std::int64_t i = 0; i < most; ++i) {
      rows[static_cast<std::size_t>(i)] = rows[static_cast<std::size_t>(i * n / most)];
    }
    rows.resize(static_cast<std::size_t>(most));
  }

  void search_rows() {
    std::int64_t keys = 1;
    for (const auto& lines : seen_.lines) {
      for (const KeyLine& line : lines) keys = std::max(keys, line.size());
    }
    const Dims& d = plan_.dims;
    all_failing_ = failing_;
    thin(failing_, std::clamp(kSteps / (keys * (d.K + d.V)), kFewestRows, kRows));
    thin(passing_, std::min(kPassingRows, std::ssize(failing_)));
    const std::int64_t complete = kPairSteps / (keys * keys);
    parallel::for_each_index(std::ssize(failing_), [&](std::int64_t i) {
      Searched& row = failing_[static_cast<std::size_t>(i)];
      const auto& lines = seen_.lines[row.place.request];
      for (std::size_t order = 0; order < lines.size(); ++order) {
        row.readings[order] = search(seen_, row.place, lines[order], i < complete);
      }
    });
  }

  [[nodiscard]] RowFacts facts(const Searched& row, std::size_t order) const {
    return {&seen_, row.place, order};
  }
  [[nodiscard]] bool has_order(const Searched& row, std::size_t order) const {
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
    for (std::size_t order = 0; order < kOrders; ++order) {
      if (!std::ranges::all_of(rows, [&](const Searched* r) { return has_order(*r, order); })) break;
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

  static void add_words(const Form& form, std::size_t order, const Match& match,
                        std::vector<std::string>& to) {
    constexpr std::size_t kMost = 2;
    const std::string words = keys_words(order) + " " + form.words;
    if (to.size() >= kMost || std::ranges::find(to, words) != to.end()) return;
    const std::string said = keys_words(match.order) + " " + match.form.words;
    if (!words.starts_with(said)) to.push_back(words);
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

  [[nodiscard]] static std::string keys_words(std::size_t order) {
    return order == 0 ? "its keys" : "its cached keys";
  }

  // Whether the rows that pass are as the form says, too.
  [[nodiscard]] bool holds_elsewhere(const Match& match) const {
    return std::ranges::all_of(passing_, [&](const Searched& row) {
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
    for (auto& [name, rows] : groups) all.push_back(std::move(rows));
    return all;
  }

  [[nodiscard]] std::vector<std::string> by_forms() const {
    using Pair = std::pair<std::int64_t, std::int64_t>;
    std::vector<std::string> best;
    std::size_t covered = 0;
    const auto request = [](const Place& p) { return static_cast<std::int64_t>(p.request); };
    const std::array<std::vector<Rows>, 4> partitions{
        apart([](const Place&) { return Pair{0, 0}; }),
        apart([&](const Place& p) { return Pair{request(p), 0}; }),
        apart([](const Place& p) { return Pair{0, p.row.head}; }),
        apart([&](const Place& p) { return Pair{request(p), p.row.head}; })};
    for (const std::vector<Rows>& groups : partitions) {
      std::map<std::string, std::pair<Match, Rows>> found;
      std::size_t rows = 0;
      for (const Rows& group : groups) {
        const auto m = match(group);
        if (!m) continue;
        auto& entry = found.try_emplace(keys_words(m->order) + " " + m->form.words, *m, Rows{})
                          .first->second;
        entry.second.insert(entry.second.end(), group.begin(), group.end());
        rows += group.size();
      }
      if (rows <= covered) continue;
      covered = rows;
      best.clear();
      for (const auto& [words, entry] : found) best.push_back(form_words(entry.first, entry.second));
      if (covered == failing_.size()) break;
    }
    return covered * 2 < failing_.size() ? std::vector<std::string>{} : best;
  }

  [[nodiscard]] std::string form_words(const Match& match, const Rows& rows) const {
    const bool everywhere = rows.size() == failing_.size() && holds_elsewhere(match);
    std::vector<Place> places;
    for (const Searched* row : rows) places.push_back(row->place);
    std::string text =
        filled("{} sees {} {}; {}", everywhere ? "every query" : whose_words(plan_, places),
                    keys_words(match.order), match.form.words, covered_words(rows.size()));
    for (const std::string& same : match.same) text += filled("; in this call the same: {}", same);
    for (const std::string& other : match.others) text += filled("; so does: {}", other);
    return text;
  }

  [[nodiscard]] std::string covered_words(std::size_t rows) const {
    std::string text = rows == failing_.size()
                           ? filled("this reproduces all {} failing rows", rows)
                           : filled("this reproduces {} of {} failing rows", rows,
                                         failing_.size());
    if (failing_.size() < all_failing_.size()) {
      text += filled(" that were tried, of {}", all_failing_.size());
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
        shown.push_back(interval_words(row.place, line, fits[0],
                                       declared(seen_, row.place, line)));
      }
    }
    if (solved * 2 < failing_.size() || solved == 0) return {};
    return {filled("one range of keys, and no other, reproduces each of {} of {} failing rows "
                        "that were tried: {}{}",
                        solved, failing_.size(), joined(shown, "; "),
                        solved > shown.size() ? " and so on" : "")};
  }

  Plan plan_;
  Observed seen_;
  std::vector<Searched> failing_, all_failing_, passing_;
};

}  // namespace

std::vector<std::string> find_visible_sets(const verdict::Judgement& judgement) {
  return Finder(judgement).run();
}

}  // namespace goldenrule::attention

// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/cells.hpp"

#include <array>
#include <cmath>
#include <map>

#include "reference/explain/index_set.hpp"

namespace goldenrule::explain {
namespace {

using CellCounts = std::vector<std::int64_t>;

constexpr std::size_t kMostGroups = 3;

struct IndexComparison {
  const char* words;
  bool (*holds)(std::int64_t b, std::int64_t a);
};
constexpr std::array kComparisons{
    IndexComparison{"=", [](std::int64_t b, std::int64_t a) { return b == a; }},
    IndexComparison{"!=", [](std::int64_t b, std::int64_t a) { return b != a; }},
    IndexComparison{"<", [](std::int64_t b, std::int64_t a) { return b < a; }},
    IndexComparison{"<=", [](std::int64_t b, std::int64_t a) { return b <= a; }},
    IndexComparison{">", [](std::int64_t b, std::int64_t a) { return b > a; }},
    IndexComparison{">=", [](std::int64_t b, std::int64_t a) { return b >= a; }}};

/// The indices of a that have the same failing indices of b, and the failing elements by index.
struct CellGroup {
  CellCounts of_a, of_b;
};

class CellTable {
 public:
  CellTable(const CellAxis& a, const CellAxis& b, std::span<const std::int64_t> hits)
      : a_(a), b_(b), hits_(hits), A_(std::ssize(a.elements)), B_(std::ssize(b.elements)) {
    CellCounts rows(a.elements.size()), columns(b.elements.size());
    for (std::int64_t i = 0; i < A_; ++i) {
      for (std::int64_t j = 0; j < B_; ++j) {
        rows[at(i)] += hit(i, j);
        columns[at(j)] += hit(i, j);
      }
    }
    double box = 0.0, failing = 0.0;
    for (std::int64_t i = 0; i < A_; ++i) {
      for (std::int64_t j = 0; j < B_; ++j) {
        const double size =
            static_cast<double>(a_.elements[at(i)]) * static_cast<double>(b_.elements[at(j)]);
        box += rows[at(i)] > 0 && columns[at(j)] > 0 ? size : 0.0;
        failing += hit(i, j) > 0 ? size : 0.0;
        elements_ += static_cast<double>(hit(i, j));
      }
    }
    share_ = failing / box;
  }

  [[nodiscard]] std::optional<Cells> described() const {
    if (!(share_ < 1.0)) return std::nullopt;
    std::optional<Cells> cells = compared();
    return cells ? cells : grouped();
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] std::int64_t hit(std::int64_t i, std::int64_t j) const {
    return hits_[at(i * B_ + j)];
  }

  [[nodiscard]] std::optional<Cells> said(const std::string& words, double log_choices) const {
    const double log_chance = elements_ * std::log(share_) + log_choices;
    if (log_chance > std::log(kChance)) return std::nullopt;
    return Cells{words, log_chance, share_};
  }

  [[nodiscard]] std::optional<Cells> compared() const {
    for (const IndexComparison& comparison : kComparisons) {
      bool same = true;
      for (std::int64_t i = 0; i < A_ && same; ++i) {
        for (std::int64_t j = 0; j < B_ && same; ++j) {
          same = (hit(i, j) > 0) == comparison.holds(j, i);
        }
      }
      if (!same) continue;
      return said(b_.name.many + " " + b_.name.letter + " " + comparison.words + " " +
                      a_.name.letter + " of each " + a_.name.one + " " + a_.name.letter,
                  std::log(static_cast<double>(kComparisons.size())));
    }
    return std::nullopt;
  }

  /// In the order of their first index of a.
  [[nodiscard]] std::vector<CellGroup> groups() const {
    std::vector<CellGroup> all;
    std::map<std::vector<bool>, std::size_t> places;
    for (std::int64_t i = 0; i < A_; ++i) {
      std::vector<bool> failing(at(B_));
      bool any = false;
      for (std::int64_t j = 0; j < B_; ++j) {
        failing[at(j)] = hit(i, j) > 0;
        any = any || failing[at(j)];
      }
      if (!any) continue;
      const auto [place, is_new] = places.try_emplace(failing, all.size());
      if (is_new && all.size() == kMostGroups) return {};
      if (is_new) all.push_back({CellCounts(at(A_)), CellCounts(at(B_))});
      CellGroup& group = all[place->second];
      for (std::int64_t j = 0; j < B_; ++j) {
        group.of_a[at(i)] += hit(i, j);
        group.of_b[at(j)] += hit(i, j);
      }
    }
    return all;
  }

  [[nodiscard]] std::optional<Cells> grouped() const {
    std::string text;
    double log_choices = 0.0;
    for (const CellGroup& group : groups()) {
      for (const CellCounts* hits : {&group.of_b, &group.of_a}) {
        const AxisName& name = hits == &group.of_b ? b_.name : a_.name;
        const IndexSet set = index_set(*hits);
        if (set.shape == Shape::kAll && set.count < set.size) return std::nullopt;
        if (hits == &group.of_b) {
          text += text.empty() ? "" : " and ";
        } else {
          text += " of ";
        }
        text += set.shape == Shape::kAll   ? "all " + name.many
                : set.shape == Shape::kOne ? name.one + " " + std::to_string(set.first)
                                           : name.many + " " + condition(set, *hits, name.letter);
        log_choices += log_alternatives(set);
      }
    }
    return text.empty() ? std::nullopt : said(text, log_choices);
  }

  const CellAxis& a_;
  const CellAxis& b_;
  std::span<const std::int64_t> hits_;
  std::int64_t A_, B_;
  double share_ = 1.0, elements_ = 0.0;
};

}  // namespace

std::optional<Cells> failing_cells(const CellAxis& a, const CellAxis& b,
                                   std::span<const std::int64_t> hits) {
  if (a.elements.size() < 2 || b.elements.size() < 2) return std::nullopt;
  return CellTable(a, b, hits).described();
}

}  // namespace goldenrule::explain

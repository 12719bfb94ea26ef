// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/search/find.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "fixtures/call/text.hpp"
#include "reference/drafts/search/given.hpp"
#include "reference/drafts/search/read.hpp"
#include "reference/drafts/search/words.hpp"

namespace goldenrule::drafts {
namespace {

constexpr double kChanceBits = 10.0;
constexpr std::size_t kSaid = 3;  // of points that nothing tells from each other

bool is_constant(const CountPoint& p) { return p.is_constant(); }
bool is_constant(const TokenPoint&) { return false; }

template <class Point>
struct Found {
  Point point;
  std::int64_t predicted = 0;  // of the failing rows
  double bits = 0.0;
};

struct Said {
  std::string text;
  bool whole = true;  // every failing row is predicted
};

std::int64_t failing_of(const std::vector<Given>& rows) {
  return std::ranges::count_if(rows, &Given::fails);
}

// Nothing where a row has something else, or less than half of the failing ones are predicted.
template <class Point, class Predict>
std::optional<Found<Point>> fitting(const std::vector<Given>& rows, const Point& point,
                                    const Predict& predict) {
  std::array<double, kModels> bits{};
  double constant_bits = 0.0;
  std::int64_t count = 0;
  for (const Given& row : rows) {
    const std::optional<std::int64_t> value = predict(row, point);
    if (!value) continue;
    if (*value != row.value) return std::nullopt;
    for (std::size_t m = 0; m < kModels; ++m) bits[m] += row.bits[m];
    constant_bits += row.constant_bits;
    count += row.fails ? 1 : 0;
  }
  if (2 * count < failing_of(rows)) return std::nullopt;
  // One count in all rows is what is said itself, and no number that hangs on them.
  const double least = is_constant(point) ? constant_bits : std::ranges::min(bits);
  return Found<Point>{point, count, least};
}

// Those with the fewest wrong parts, where the evidence is enough for one of them: all that predict
// as many of the failing rows, which nothing tells from it.
template <class Point, class Predict>
std::vector<Found<Point>> best(const std::vector<Point>& points, const std::vector<Given>& rows,
                               const Predict& predict) {
  for (int wrong = 1; wrong <= kMostWrong; ++wrong) {
    const auto tried =
        std::ranges::count_if(points, [&](const Point& point) { return point.wrong() <= wrong; });
    const double needed = kChanceBits + std::log2(static_cast<double>(tried));
    std::vector<Found<Point>> found;
    std::int64_t most = 0;
    for (const Point& point : points) {
      if (point.wrong() != wrong) continue;
      if (const auto fits = fitting(rows, point, predict)) {
        found.push_back(*fits);
        if (fits->bits >= needed) most = std::max(most, fits->predicted);
      }
    }
    if (most == 0) continue;
    std::erase_if(found, [&](const Found<Point>& f) { return f.predicted < most; });
    std::ranges::stable_sort(found, std::greater{}, &Found<Point>::bits);
    return found;
  }
  return {};
}

template <class Point, class Predict>
Said said(std::string_view what, const std::vector<Point>& points, const std::vector<Given>& rows,
          const Predict& predict) {
  const std::int64_t failing = failing_of(rows);
  if (failing == 0) return {};
  const auto found = best(points, rows, predict);
  if (found.empty()) return {.text = "", .whole = false};
  std::string text = std::string(what) + ": as of a kernel that " + words(found.front().point);
  for (std::size_t i = 1; i < std::min(found.size(), kSaid); ++i) {
    text += ", or " + words(found[i].point);
  }
  if (found.size() > kSaid) text += ", or " + std::to_string(found.size() - kSaid) + " others";
  text += "; this reproduces " + std::to_string(found.front().predicted) + " of " +
          call::numbered(failing, "failing row") + " and contradicts no row";
  return {text, found.front().predicted == failing};
}

}  // namespace

verdict::Searched find_decisions(const verdict::Judgement& judgement) {
  const Work work(judgement.record);
  const Reading reading(work);
  const Kernel kernel(work, judgement.record.outputs);
  const std::vector<Given> counts = kernel.counts(), tokens = kernel.tokens(counts);
  const Said count =
      said("accepted", count_points(work), counts,
           [&](const Given& row, const CountPoint& p) { return count_of(reading, row.n, p); });
  const Said token = said("the token behind the accepted drafts", token_points(work), tokens,
                          [&](const Given& row, const TokenPoint& p) {
                            return token_of(reading, row.n, row.accepted, p);
                          });
  verdict::Searched searched;
  searched.whole = count.whole && token.whole && kernel.follows(counts);
  for (const Said* s : {&count, &token}) {
    if (!s->text.empty()) searched.texts.push_back(s->text);
  }
  return searched;
}

}  // namespace goldenrule::drafts

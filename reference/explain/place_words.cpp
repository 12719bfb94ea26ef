// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/place_words.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <span>

#include "reference/explain/index_set.hpp"

namespace goldenrule::explain {
namespace {

using Indices = std::vector<std::int64_t>;

// The axes of places, their indices in lines, and where those come from.
struct Columns {
  std::vector<std::string> words, letters;
  std::vector<Indices> of;  // of each axis, an index of each line
};

template <class Place>
Columns columns(std::vector<std::string> words, std::vector<std::string> letters,
                std::span<const MovedLine> moved, const Place& place) {
  Columns all{std::move(words), std::move(letters), {}};
  all.of.resize(all.words.size());
  for (const MovedLine& m : moved) {
    const Indices indices = place(m);
    for (std::size_t a = 0; a < indices.size(); ++a) all.of[a].push_back(indices[a]);
  }
  return all;
}

std::string sum_words(std::int64_t step, const std::string& letter, std::int64_t offset) {
  std::string text;
  if (step == -1) return std::to_string(offset) + " - " + letter;
  if (step != 0) text = step == 1 ? letter : std::to_string(step) + " " + letter;
  if (text.empty()) return std::to_string(offset);
  if (offset > 0) text += " + " + std::to_string(offset);
  if (offset < 0) text += " - " + std::to_string(-offset);
  return text;
}

// y = step x + offset for all, from the first two that differ; a constant y has step 0.
std::optional<std::pair<std::int64_t, std::int64_t>> line_through(const Indices& x,
                                                                  const Indices& y) {
  std::int64_t step = 0;
  for (std::size_t i = 1; i < x.size(); ++i) {
    if (x[i] == x[0]) continue;
    if ((y[i] - y[0]) % (x[i] - x[0]) != 0) return std::nullopt;
    step = (y[i] - y[0]) / (x[i] - x[0]);
    break;
  }
  const std::int64_t offset = y[0] - step * x[0];
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (y[i] != step * x[i] + offset) return std::nullopt;
  }
  return std::pair(step, offset);
}

// Of one axis of the source: by the axis of its own name, as a constant, by any other axis.
std::optional<std::string> axis_relation(const Columns& to, const Columns& from, std::size_t axis) {
  const Indices& y = from.of[axis];
  const std::string& word = from.words[axis];
  const auto own = std::ranges::find(to.words, word) - to.words.begin();
  const bool has_own = own < std::ssize(to.words);
  if (has_own && to.of[static_cast<std::size_t>(own)] == y) return "";
  if (std::ranges::all_of(y, [&](std::int64_t i) { return i == y[0]; })) {
    return word + " " + std::to_string(y[0]);
  }
  std::vector<std::size_t> order;
  if (has_own) order.push_back(static_cast<std::size_t>(own));
  for (std::size_t a = 0; a < to.words.size(); ++a) order.push_back(a);
  for (const std::size_t a : order) {
    if (const auto line = line_through(to.of[a], y)) {
      return word + " " + sum_words(line->first, to.letters[a], line->second);
    }
  }
  return std::nullopt;
}

std::optional<std::string> all_relations(const Columns& to, const Columns& from) {
  std::string text;
  for (std::size_t a = 0; a < from.words.size(); ++a) {
    const auto words = axis_relation(to, from, a);
    if (!words) return std::nullopt;
    if (!words->empty()) text += (text.empty() ? "of " : ", ") + *words;
  }
  return text.empty() ? "in its own place" : text;
}

std::vector<std::string> plain_words(const LineView& view) {
  std::vector<std::string> all;
  for (const LineAxis& axis : view.axes) all.push_back(axis.word);
  return all;
}

std::vector<std::string> plain_letters(const LineView& view) {
  std::vector<std::string> all;
  for (const LineAxis& axis : view.axes) all.push_back(axis.letter);
  return all;
}

// Of lines the box that those with numbers are; nothing where they are no box.
std::optional<std::string> box_words(const Columns& lines,
                                     const std::vector<std::int64_t>& numbers) {
  std::vector<BoxAxis> box;
  for (std::size_t a = 0; a < lines.of.size(); ++a) {
    const Indices& of = lines.of[a];
    box.push_back({lines.words[a], lines.letters[a],
                   Indices(static_cast<std::size_t>(std::ranges::max(of)) + 1)});
    for (std::size_t i = 0; i < of.size(); ++i) {
      box.back().hits[static_cast<std::size_t>(of[i])] += numbers[i];
    }
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    bool in_box = true;
    for (std::size_t a = 0; a < box.size(); ++a) {
      in_box = in_box && box[a].hits[static_cast<std::size_t>(lines.of[a][i])] > 0;
    }
    if (in_box && numbers[i] == 0) return std::nullopt;
  }
  const std::string text = box_in_words(box);
  return text.empty() ? text : " in " + text;
}

}  // namespace

std::string place_words(const LineView& view, std::int64_t line) {
  const std::vector<std::string> words = view.words();
  const Indices place = view.place(line);
  std::string text;
  for (std::size_t a = 0; a < words.size(); ++a) {
    text += (a == 0 ? "" : ", ") + words[a] + " " + std::to_string(place[a]);
  }
  return text;
}

std::string axes_words(const LineView& view) {
  const std::vector<std::string> words = view.words();
  std::string text;
  for (std::size_t a = 0; a < words.size(); ++a) {
    text += (a == 0 ? "" : a + 1 == words.size() ? " and " : ", ") + words[a];
  }
  return text;
}

std::string part_words(const LineView& view, const std::vector<std::int64_t>& lines,
                       std::int64_t numbers) {
  std::vector<MovedLine> all;
  for (std::int64_t i = 0; i < view.count(); ++i) all.push_back({i, 0});
  std::vector<std::int64_t> inside(all.size());
  for (const std::int64_t line : lines) inside[static_cast<std::size_t>(line)] = numbers;
  const auto by_place = box_words(columns(view.words(), view.letters(), all,
                                          [&](const MovedLine& m) { return view.place(m.to); }),
                                  inside);
  if (by_place) return *by_place;
  return box_words(columns(plain_words(view), plain_letters(view), all,
                           [&](const MovedLine& m) { return view.indices(m.to); }),
                   inside)
      .value_or("");
}

std::string relation_words(const LineView& to, const LineView& from,
                           const std::vector<MovedLine>& moved, const AffineMap& map) {
  const auto by_place = all_relations(
      columns(to.words(), to.letters(), moved, [&](const MovedLine& m) { return to.place(m.to); }),
      columns(from.words(), from.letters(), moved,
              [&](const MovedLine& m) { return from.place(m.from); }));
  if (by_place) return *by_place;
  const Columns plain = columns(plain_words(to), plain_letters(to), moved,
                                [&](const MovedLine& m) { return to.indices(m.to); });
  const auto by_index =
      all_relations(plain, columns(plain_words(from), plain_letters(from), moved,
                                   [&](const MovedLine& m) { return from.indices(m.from); }));
  if (by_index) return *by_index;
  const bool by_sequence = map.steps.size() > plain.letters.size();
  const std::vector<std::string> letters = by_sequence ? to.letters() : plain.letters;
  std::string sum;
  for (std::size_t a = 0; a < letters.size(); ++a) {
    if (map.steps[a] == 0) continue;
    if (!sum.empty()) sum += " + ";
    sum += (map.steps[a] == 1 ? "" : std::to_string(map.steps[a]) + " ") + letters[a];
  }
  if (sum.empty()) {
    sum = std::to_string(map.offset);
  } else if (map.offset != 0) {
    sum += (map.offset > 0 ? " + " : " - ") + std::to_string(std::abs(map.offset));
  }
  std::string axes;
  for (const LineAxis& axis : from.axes) axes += (axes.empty() ? "" : ", ") + axis.word;
  return "at flat place " + sum + " of (" + axes + ")";
}

}  // namespace goldenrule::explain

// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/places.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "reference/explain/affine_map.hpp"
#include "reference/explain/line_match.hpp"
#include "reference/explain/line_source.hpp"
#include "reference/explain/place_words.hpp"
#include "reference/explain/unwritten_part.hpp"

namespace goldenrule::explain {
namespace {

constexpr std::int64_t kSearchedLines = 4096;  // failing lines that are looked up in a source
constexpr std::size_t kMaps = 4;               // of one output, before the rest is unexplained
constexpr std::size_t kShownLines = 3;
constexpr std::size_t kAskedLines = 64;  // of a source, for their bits
constexpr double kPlaceBits = 10.0;
// Sources and views that are tried of one output.
constexpr double kTriedSources = 5.0;  // bits

struct FoundMap {
  const LineSource* source = nullptr;
  std::optional<AffineMap> map;  // nothing: lines without a rule
  std::vector<MovedLine> moved;
};

class OutputPlaces {
 public:
  OutputPlaces(const verdict::Judgement& judgement, const Failures& failures)
      : judgement_(judgement),
        failures_(failures),
        output_(judgement.record.outputs.at(failures.name)),
        axes_(call::axes_of(
            judgement.record,
            *call::find_row(judgement.record, call::Group::kOutput, failures.name))) {}

  // States as a whole first; only where that says nothing their rows.
  [[nodiscard]] std::vector<std::string> texts() {
    using enum LineKind;
    std::vector<std::string> found;
    for (const LineKind kind : {kChannels, kState, kStateRow}) {
      found = texts_of(kind);
      if (!found.empty()) break;
    }
    if (auto part = unwritten_part(judgement_, failures_)) {
      found.push_back(std::move(*part));
    } else if (!found.empty() && unwritten_ > 0) {
      found.back() += "; " + std::to_string(unwritten_) +
                      " others hold 0 or what they held before the call, as if nobody wrote them";
    }
    return found;
  }

 private:
  std::vector<std::string> texts_of(LineKind kind) {
    if (!set_wrong_lines(kind)) return {};
    sources_ = line_sources(judgement_, failures_.name, kind, wrong_.view.within.size());
    std::vector<FoundMap> found;
    while (found.size() < kMaps && !wrong_.lines.empty()) {
      std::optional<FoundMap> best;
      for (const LineSource& source : sources_) {
        auto next = search(source);
        if (next && (!best || better(*next, *best))) best = std::move(next);
      }
      if (!best) break;
      remove(best->moved);
      found.push_back(std::move(*best));
    }
    // What stands in a few of many wrong lines is a consequence of what is wrong with the others.
    std::int64_t said = unwritten_;
    for (const FoundMap& f : found) said += std::ssize(f.moved);
    if (2 * said < failing_) return {};
    std::vector<std::string> texts;
    texts.reserve(found.size());
    for (const FoundMap& f : found) texts.push_back(words(f));
    return texts;
  }

  static bool better(const FoundMap& a, const FoundMap& b) {
    return std::pair(a.map.has_value(), a.moved.size()) >
           std::pair(b.map.has_value(), b.moved.size());
  }

  // Whether there are such lines that fail, and that somebody wrote.
  bool set_wrong_lines(LineKind kind) {
    auto view = line_view(judgement_.record, output_.shape(), axes_, kind);
    if (!view) return false;
    kind_ = kind;
    wrong_ = WrongLines{&output_, std::move(*view), {}, {}};
    std::vector<bool> fails(wrong_.view.within.size());
    std::vector<std::int64_t> lines;
    for (std::int64_t line = 0; line < wrong_.view.count(); ++line) {
      const std::int64_t base = wrong_.view.base(line);
      bool any = false;
      for (std::size_t c = 0; c < fails.size(); ++c) {
        if (failures_.failing[static_cast<std::size_t>(base + wrong_.view.within[c])] == 0) {
          continue;
        }
        any = true;
        fails[c] = true;
      }
      if (any) lines.push_back(line);
    }
    for (std::size_t c = 0; c < fails.size(); ++c) {
      if (fails[c]) wrong_.channels.push_back(c);
    }
    failing_ = std::ssize(lines);
    for (const std::int64_t line : lines) {
      if (!is_unwritten(line)) wrong_.lines.push_back(line);
    }
    unwritten_ = failing_ - std::ssize(wrong_.lines);
    return !wrong_.lines.empty();
  }

  [[nodiscard]] bool is_unwritten(std::int64_t line) const {
    const std::int64_t base = wrong_.view.base(line);
    const auto all = [&](const auto& is) {
      return std::ranges::all_of(wrong_.channels,
                                 [&](std::size_t c) { return is(base + wrong_.view.within[c]); });
    };
    const call::Tensor* old = old_content(judgement_.record, failures_.name);
    return all([&](std::int64_t i) { return output_[i] == 0.0; }) ||
           (old != nullptr && all([&](std::int64_t i) { return output_[i] == (*old)[i]; }));
  }

  // The map from `source` that reproduces most of the failing lines that are left, or lines of it
  // that follow no map.
  [[nodiscard]] std::optional<FoundMap> search(const LineSource& source) const {
    const LineMatcher matcher(wrong_, source);
    std::vector<MovedLine> moved;
    const std::int64_t step = std::ssize(wrong_.lines) / kSearchedLines + 1;
    for (std::int64_t i = 0; i < std::ssize(wrong_.lines); i += step) {
      const std::int64_t line = wrong_.lines[static_cast<std::size_t>(i)];
      const auto from = matcher.find(line);
      if (from && *from >= 0) moved.push_back({line, *from});
    }
    if (moved.empty()) return std::nullopt;
    const double of_source = std::log2(static_cast<double>(source.view.count()));
    const auto axes = static_cast<double>(wrong_.view.axes.size());
    std::optional<FoundMap> best;
    for (const bool by_sequence : {false, true}) {
      FoundMap next = mapped(source, matcher, moved, by_sequence);
      if (next.moved.size() * 2 < moved.size()) continue;
      if (bits(matcher, next) < kPlaceBits + kTriedSources + (axes + 1.0) * of_source) continue;
      if (!best || next.moved.size() > best->moved.size()) best = std::move(next);
    }
    if (best) return best;
    const double tried = kTriedSources + of_source + std::log2(static_cast<double>(failing_));
    std::erase_if(moved,
                  [&](const MovedLine& m) { return matcher.bits(m.from) < kPlaceBits + tried; });
    if (moved.empty()) return std::nullopt;
    return FoundMap{&source, std::nullopt, std::move(moved)};
  }

  // Of all lines of the source that the map takes, from some of them.
  [[nodiscard]] static double bits(const LineMatcher& matcher, const FoundMap& found) {
    std::set<std::int64_t> from;
    for (const MovedLine& m : found.moved) from.insert(m.from);
    const std::size_t step = from.size() / kAskedLines + 1;
    double sum = 0.0;
    std::size_t i = 0;
    for (const std::int64_t line : from) {
      if (i++ % step == 0) sum += matcher.bits(line) * static_cast<double>(step);
    }
    return sum;
  }

  [[nodiscard]] FoundMap mapped(const LineSource& source, const LineMatcher& matcher,
                                const std::vector<MovedLine>& anchors, bool by_sequence) const {
    const auto indices = [&](std::int64_t line) {
      return by_sequence ? wrong_.view.place(line) : wrong_.view.indices(line);
    };
    std::vector<PlacePair> pairs;
    pairs.reserve(anchors.size());
    for (const MovedLine& m : anchors) pairs.push_back({indices(m.to), m.from});
    std::vector<std::int64_t> own;
    std::int64_t lines = 1;
    for (auto axis = wrong_.view.axes.rbegin(); axis != wrong_.view.axes.rend(); ++axis) {
      own.insert(own.begin(), lines);
      if (by_sequence && !axis->bounds.empty()) own.insert(own.begin(), 0);
      lines *= axis->extent;
    }
    FoundMap found{&source, fit_affine(pairs, own), {}};
    for (const std::int64_t line : wrong_.lines) {
      const std::int64_t from = (*found.map)(indices(line));
      if (from < 0 || from >= source.view.count() || !matcher.matches(line, from)) continue;
      found.moved.push_back({line, from});
    }
    return found;
  }

  void remove(const std::vector<MovedLine>& moved) {
    std::set<std::int64_t> gone;
    for (const MovedLine& m : moved) gone.insert(m.to);
    std::erase_if(wrong_.lines, [&](std::int64_t line) { return gone.contains(line); });
  }

  [[nodiscard]] std::string unit() const {
    if (wrong_.view.within.size() == 1) return "numbers";
    if (!call::has_states(failures_.name)) return "rows";
    return kind_ == LineKind::kState ? "states" : "rows of states";
  }

  [[nodiscard]] bool reproduces_all_channels(const FoundMap& found) const {
    return std::ranges::all_of(found.moved, [&](const MovedLine& m) {
      for (std::size_t c = 0; c < wrong_.view.within.size(); ++c) {
        if (!found.source->holds(found.source->element(m.from, c), wrong_.value(m.to, c),
                                 output_.dtype())) {
          return false;
        }
      }
      return true;
    });
  }

  [[nodiscard]] std::string words(const FoundMap& found) const {
    std::vector<std::int64_t> lines;
    for (const MovedLine& m : found.moved) lines.push_back(m.to);
    std::string text = failures_.name + part_words(wrong_.view, lines, std::ssize(wrong_.channels));
    text += " holds " + found.source->words + " ";
    if (found.map) {
      text += relation_words(wrong_.view, found.source->view, found.moved, *found.map);
    } else {
      text += "in other places, by no rule that was found: ";
      for (std::size_t i = 0; i < std::min(lines.size(), kShownLines); ++i) {
        const MovedLine& m = found.moved[i];
        text += (i == 0 ? "" : "; ") + place_words(wrong_.view, m.to) + " holds " +
                place_words(found.source->view, m.from);
      }
      if (lines.size() > kShownLines) text += " and so on";
    }
    text += "; this reproduces " + std::to_string(lines.size()) + " of " +
            std::to_string(failing_) + " failing " + unit() + " (" + axes_words(wrong_.view) + ")";
    if (!reproduces_all_channels(found)) {
      text += ", in the " + std::to_string(wrong_.channels.size()) + " of " +
              std::to_string(wrong_.view.within.size()) + " channels where any fails";
    }
    return text;
  }

  const verdict::Judgement& judgement_;
  const Failures& failures_;
  const call::Tensor& output_;
  const std::vector<call::Axis> axes_;
  WrongLines wrong_;
  std::int64_t failing_ = 0, unwritten_ = 0;  // lines
  std::vector<LineSource> sources_;
  LineKind kind_ = LineKind::kChannels;
};

}  // namespace

std::vector<std::string> find_places(const verdict::Judgement& judgement,
                                     std::span<const Failures> failures) {
  std::vector<std::string> all;
  for (const Failures& f : failures) {
    const call::DType type = judgement.record.outputs.at(f.name).dtype();
    if (f.count == 0 || !call::info(type).is_float) continue;
    std::vector<std::string> texts = OutputPlaces(judgement, f).texts();
    std::ranges::move(texts, std::back_inserter(all));
  }
  return all;
}

}  // namespace goldenrule::explain

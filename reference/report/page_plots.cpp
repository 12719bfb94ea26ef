// SPDX-License-Identifier: Apache-2.0
//
// The plots are SVG without text of strangers: only numbers and words of this file go into markup
// unescaped. The cells of a map are drawn a level at a time, as one path of horizontal strokes,
// which takes a tenth of a rectangle for each cell.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "fixtures/call/text.hpp"
#include "reference/report/page_parts.hpp"
#include "reference/verdict/error_map.hpp"

namespace goldenrule::report {
namespace {

using verdict::kMapLevels;
using verdict::kRatioBuckets;
using verdict::kRatioOne;

// Of the distribution, in pixels of its own.
constexpr int kWidth = 360;
constexpr int kHeight = 96;
constexpr int kBase = 76;  // where the bars stand
constexpr int kTop = 8;

// The buckets that are shown: those with elements, and the budget with some room beside it.
std::pair<int, int> shown_buckets(const std::vector<std::int64_t>& counts) {
  int first = kRatioOne - 6;
  int last = kRatioOne + 3;
  for (int b = 1; b < kRatioBuckets; ++b) {
    if (counts[static_cast<std::size_t>(b)] == 0) continue;
    first = std::min(first, b);
    last = std::max(last, b);
  }
  return {first, last};
}

std::string bar(double x, double width, std::int64_t count, double most, int bucket) {
  if (count == 0) return "";
  const double height = (kBase - kTop) * std::log1p(static_cast<double>(count)) / std::log1p(most);
  const std::string range =
      bucket == kRatioBuckets - 1
          ? fmt::format("beyond {:.3g}", std::exp2(kRatioBuckets - 2 - kRatioOne))
          : fmt::format("{:.3g} to {:.3g}", bucket == 1 ? 0.0 : std::exp2(bucket - 1 - kRatioOne),
                        std::exp2(bucket - kRatioOne));
  return fmt::format(
      "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">"
      "<title>{} {}: {} times the budget</title></rect>",
      bucket > kRatioOne ? "out" : "in", x + 0.5, kBase - height, width - 1.0, height,
      counted(count), call::plural(count, "element"), range);
}

// Powers of ten along the axis, as many as have room.
std::string ticks(int first, int last, double width) {
  const double log10_of_2 = std::log10(2.0);
  const double low = (first - 1 - kRatioOne) * log10_of_2;
  const double high = (last - kRatioOne) * log10_of_2;
  const int step = high - low > 9.0 ? 3 : high - low > 4.0 ? 2 : 1;
  std::string text;
  for (int p = -9; p <= 9; ++p) {
    if (p % step != 0 || p < low || p > high) continue;
    const double x = (p / log10_of_2 + kRatioOne - first + 1) * width;
    text += fmt::format(
        "<path class=\"tick\" d=\"M{:.1f} {}v4\"/><text x=\"{:.1f}\" y=\"{}\">{}</text>", x, kBase,
        std::clamp(x, 12.0, kWidth - 14.0), kBase + 16, p == 0 ? "budget" : fmt::format("1e{}", p));
  }
  return text;
}

// The colour of a level is that of its class; an unknown digit is none.
std::string level_paths(const std::vector<std::string>& lines) {
  std::string paths;
  for (const char level : kMapLevels) {
    std::string strokes;
    for (std::size_t y = 0; y < lines.size(); ++y) {
      const std::string& line = lines[y];
      for (std::size_t x = line.find(level); x != std::string::npos; x = line.find(level, x)) {
        const std::size_t end = std::min(line.find_first_not_of(level, x), line.size());
        strokes += fmt::format("M{} {}.5h{}", x, y, end - x);
        x = end;
      }
    }
    if (!strokes.empty()) paths += fmt::format("<path class=\"l{}\" d=\"{}\"/>", level, strokes);
  }
  return paths;
}

// Where an index lies among the cells of its axis.
double cell_of(const ordered_json& axis, std::int64_t index) {
  const auto extent = axis.at("extent").get<double>();
  return extent > 0.0 ? static_cast<double>(index) * axis.at("cells").get<double>() / extent : 0.0;
}

std::string lines_across(const ordered_json& down, const char* key, std::size_t width) {
  std::string path;
  for (const ordered_json& line : down.at(key)) {
    path += fmt::format("M0 {:.2f}h{}", cell_of(down, whole(line)), width);
  }
  return path.empty() ? "" : fmt::format("<path class=\"{}\" d=\"{}\"/>", key, path);
}

// "key 0 to 127, 2 in a cell"
std::string axis_words(const ordered_json& axis) {
  const auto extent = whole(axis.at("extent"));
  const auto cells = whole(axis.at("cells"));
  const auto first = whole(axis.at("first"));
  const std::string range =
      extent == 1 ? std::to_string(first) : fmt::format("{} to {}", first, first + extent - 1);
  return escaped(axis.at("axis").get<std::string>()) + " " + range +
         (extent > cells && cells > 0
              ? fmt::format(" ({:.3g} in a cell)",
                            static_cast<double>(extent) / static_cast<double>(cells))
              : "");
}

std::string map_figure(const ordered_json& map) {
  const auto lines = map.at("levels").get<std::vector<std::string>>();
  std::size_t width = 0;
  for (const std::string& line : lines) width = std::max(width, line.size());
  const ordered_json& down = map.at("down");
  const ordered_json& across = map.at("across");
  // Cells of 12 pixels, smaller where there are many; at least a line of text high.
  const auto pixels = [](std::size_t cells, std::size_t least, std::size_t most) {
    return std::clamp(12 * cells, least, most);
  };
  const double x = std::floor(cell_of(across, whole(across.at("worst"))));
  const double y = std::floor(cell_of(down, whole(down.at("worst"))));
  const auto where = map.at("where").get<std::string>();
  return fmt::format(
      "<figure><figcaption>{} by {}{}</figcaption><div class=\"map\"><span class=\"down\">{}</span>"
      "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" "
      "style=\"width:{}px;height:{}px\">{}{}{}<rect class=\"worst\" x=\"{}\" y=\"{}\" width=\"1\" "
      "height=\"1\"/></svg><span class=\"across\">{}</span></div></figure>",
      escaped(down.at("axis").get<std::string>()), escaped(across.at("axis").get<std::string>()),
      where.empty() ? "" : " at " + escaped(where), axis_words(down), width, lines.size(),
      pixels(width, 120, 288), pixels(lines.size(), 48, 288), level_paths(lines),
      lines_across(down, "chunks", width), lines_across(down, "sequences", width), x, y,
      axis_words(across));
}

std::string legend() {
  constexpr std::array kWords{"1/256", "1/64", "1/16", "1/4",  "1",    "4",
                              "16",    "64",   "256",  "1024", "more", "NaN, Inf"};
  static_assert(kWords.size() == kMapLevels.size());
  std::string text = "<p class=\"legend\">error over budget, at most: ";
  for (std::size_t i = 0; i < kWords.size(); ++i) {
    text += fmt::format("<span><i class=\"l{}\"></i>{}</span>", kMapLevels[i], kWords[i]);
  }
  return text +
         "<br>A cell shows its largest. Framed: the worst element. Lines across: a sequence "
         "begins; dashed: a chunk.</p>";
}

}  // namespace

std::string histogram(const ordered_json& tensor) {
  const auto counts = tensor.at("ratio_histogram").get<std::vector<std::int64_t>>();
  if (std::ssize(counts) != kRatioBuckets) return "";
  const std::int64_t most = *std::ranges::max_element(counts);
  if (most <= 0) return "";
  const auto [first, last] = shown_buckets(counts);
  const double width = static_cast<double>(kWidth) / (last - first + 1);
  std::string bars;
  for (int b = first; b <= last; ++b) {
    bars += bar((b - first) * width, width, counts[static_cast<std::size_t>(b)],
                static_cast<double>(most), b);
  }
  const double one = (kRatioOne - first + 1) * width;
  std::string caption = "error over budget (both axes logarithmic)";
  if (counts[0] > 0)
    caption += fmt::format("; {} {} without error", counted(counts[0]),
                           call::plural(counts[0], "element"));
  const std::int64_t nonfinite = whole(tensor.at("nan")) + whole(tensor.at("inf"));
  if (nonfinite > 0) caption += fmt::format("; {} NaN or Inf", counted(nonfinite));
  return fmt::format(
      "<figure><svg class=\"hist\" viewBox=\"0 0 {} {}\" role=\"img\">{}<path class=\"axis\" "
      "d=\"M0 {}h{}\"/><path class=\"one\" d=\"M{:.1f} {}V{}\"/>{}</svg><figcaption>{}</figcaption>"
      "</figure>",
      kWidth, kHeight, bars, kBase, kWidth, one, kTop - 6, kBase, ticks(first, last, width),
      caption);
}

std::string error_maps(const ordered_json& tensor) {
  if (!tensor.contains("maps")) return "";
  std::string figures;
  for (const ordered_json& map : tensor.at("maps")) figures += map_figure(map);
  return fmt::format("<div class=\"maps\">{}</div>{}", figures, legend());
}

}  // namespace goldenrule::report

// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/line_view.hpp"

#include <algorithm>

namespace goldenrule::explain {
namespace {

bool is_channel(const call::Axis& axis) {
  return axis == call::axis::kKey || axis == call::axis::kValue;
}

std::string letter_of(const std::string& word) {
  if (word == "token" || word == "packed token") return "t";
  if (word == call::axis::kSequenceWord) return "n";
  if (word == "key channel") return "k";
  if (word == "value channel") return "v";
  if (word == "slot" || word == "page") return "p";
  return word.find("head") != std::string::npos ? "j" : "i";
}

std::vector<std::int64_t> steps(const LineAxis& axis) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < axis.extent; ++i) all.push_back(i * axis.stride);
  return all;
}

}  // namespace

std::vector<LineAxis> line_axes(const call::Record& call, const call::Shape& shape,
                                const std::vector<call::Axis>& axes) {
  std::vector<LineAxis> all(axes.size());
  std::int64_t stride = 1;
  for (std::size_t a = axes.size(); a-- > 0;) {
    all[a].word = std::string(axes[a].word) + (is_channel(axes[a]) ? " channel" : "");
    all[a].letter = letter_of(all[a].word);
    all[a].extent = shape[a];
    all[a].stride = stride;
    stride *= shape[a];
    if (axes[a] == call::axis::kPackedToken) {
      all[a].bounds = call.inputs.at(call::bounds_name(call.op)).to_integers();
    }
  }
  return all;
}

std::int64_t LineView::count() const {
  std::int64_t n = 1;
  for (const LineAxis& axis : axes) n *= axis.extent;
  return n;
}

std::vector<std::int64_t> LineView::indices(std::int64_t i) const {
  std::vector<std::int64_t> all(axes.size());
  for (std::size_t a = axes.size(); a-- > 0; i /= axes[a].extent) all[a] = i % axes[a].extent;
  return all;
}

std::int64_t LineView::base(std::int64_t i) const {
  std::int64_t first = 0;
  for (std::size_t a = axes.size(); a-- > 0; i /= axes[a].extent) {
    first += i % axes[a].extent * axes[a].stride;
  }
  return first;
}

std::vector<std::int64_t> LineView::place(std::int64_t i) const {
  std::vector<std::int64_t> all;
  const std::vector<std::int64_t> of = indices(i);
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const std::vector<std::int64_t>& bounds = axes[a].bounds;
    if (bounds.empty()) {
      all.push_back(of[a]);
      continue;
    }
    const auto next = std::ranges::upper_bound(bounds, of[a]);
    const std::int64_t n = std::max<std::int64_t>(next - bounds.begin() - 1, 0);
    all.push_back(n);
    all.push_back(of[a] - bounds[static_cast<std::size_t>(n)]);
  }
  return all;
}

std::vector<std::string> LineView::words() const {
  std::vector<std::string> all;
  for (const LineAxis& axis : axes) {
    if (!axis.bounds.empty()) all.emplace_back(call::axis::kSequenceWord);
    all.push_back(axis.bounds.empty() ? axis.word : "token");
  }
  return all;
}

std::vector<std::string> LineView::letters() const {
  std::vector<std::string> all;
  for (const LineAxis& axis : axes) {
    if (!axis.bounds.empty()) all.emplace_back("n");
    all.push_back(axis.letter);
  }
  return all;
}

std::optional<LineView> line_view(const call::Record& call, const call::Shape& shape,
                                  const std::vector<call::Axis>& axes, LineKind kind) {
  LineView view{.axes = line_axes(call, shape, axes), .within = {0}};
  const std::size_t n = axes.size();
  const bool state = n >= 3 && is_channel(axes[n - 1]) && is_channel(axes[n - 2]);
  if (kind == LineKind::kChannels) {
    if (state || n < 2) return std::nullopt;
    if (!is_channel(axes.back())) return view;
    view.within = steps(view.axes.back());
    view.axes.pop_back();
    return view;
  }
  if (!state) return std::nullopt;
  const LineAxis rows = view.axes[n - 2];
  const LineAxis columns = view.axes[n - 1];
  switch (kind) {
    case LineKind::kState:
    case LineKind::kExchanged:
      view.within.clear();
      for (std::int64_t m = 0; m < rows.extent * columns.extent; ++m) {
        view.within.push_back(
            kind == LineKind::kState ? m : m % rows.extent * columns.extent + m / rows.extent);
      }
      view.axes.resize(n - 2);
      break;
    case LineKind::kStateRow:
      view.within = steps(columns);
      view.axes.pop_back();
      break;
    default:
      view.within = steps(rows);
      view.axes.erase(view.axes.begin() + static_cast<std::ptrdiff_t>(n - 2));
      break;
  }
  return view;
}

}  // namespace goldenrule::explain

// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/permutation.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "fixtures/call/delta_axes.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"

namespace goldenrule::explain {
namespace {

using Indices = std::vector<std::int64_t>;

// Places on an axis that are ordered among themselves: all of it, or those of one sequence.
struct Line {
  std::string name;  // "token"
  std::size_t axis = 0;
  std::vector<Indices> groups;
};

// One of the orders above. `parameter` is n, or of two exchanged places the first, `other` the
// second.
struct Order {
  enum class Kind { kReversed, kRolled, kInTurn, kExchanged } kind;
  std::int64_t parameter = 0, other = 0;

  // Which of `length` places the result at place `i` comes from.
  [[nodiscard]] std::int64_t source(std::int64_t i, std::int64_t length) const {
    switch (kind) {
      case Kind::kReversed:
        return length - 1 - i;
      case Kind::kRolled:
        return ((i - parameter) % length + length) % length;
      case Kind::kInTurn:
        return length % parameter == 0 ? i % parameter * (length / parameter) + i / parameter : i;
      case Kind::kExchanged:
        return i == parameter ? other : i == other ? parameter : i;
    }
    return i;  // unreachable: every value is handled above
  }

  [[nodiscard]] std::string words(const std::string& axis, std::int64_t length) const {
    switch (kind) {
      case Kind::kReversed:
        return "is reversed along " + axis;
      case Kind::kRolled:
        if (2 * parameter == length) return "has its halves exchanged along " + axis;
        return "is rolled by " +
               std::to_string(2 * parameter > length ? parameter - length : parameter) + " along " +
               axis;
      case Kind::kInTurn:
        return "takes its " + std::to_string(parameter) + " parts in turn along " + axis;
      case Kind::kExchanged:
        return "has " + std::to_string(parameter) + " and " + std::to_string(other) +
               " exchanged along " + axis;
    }
    return axis;  // unreachable: every value is handled above
  }
};

Indices counted(std::int64_t begin, std::int64_t end) {
  Indices all;
  for (std::int64_t i = begin; i < end; ++i) all.push_back(i);
  return all;
}

std::vector<Indices> groups_of(const call::Record& call, const char* bounds_name) {
  const Indices bounds = call.inputs.at(bounds_name).to_integers();
  std::vector<Indices> groups;
  for (std::size_t n = 0; n + 1 < bounds.size(); ++n) {
    groups.push_back(counted(bounds[n], bounds[n + 1]));
  }
  return groups;
}

// The slots that rows write, in the order of the rows.
Indices written_slots(const call::Record& call) {
  Indices slots;
  for (const call::Sequence& s : call::make_plan(call, false).sequences) {
    if (!s.snapshots.empty()) slots.push_back(s.snapshots.back().block);
  }
  return slots;
}

// The word of an axis along which all indices are one line.
std::string line_word(const call::Axis& axis) {
  constexpr std::array kOther{std::pair{call::axis::kRow, "row"},
                              std::pair{call::axis::kKeptRow, "row"},
                              std::pair{call::axis::kPlace, "place of the ring"}};
  const auto it = std::ranges::find(kOther, axis, &std::pair<call::Axis, const char*>::first);
  return it == kOther.end() ? std::string(axis.word) : it->second;
}

std::vector<Line> lines_of(const Capture& capture, const std::string& output) {
  const call::Record& call = capture.call;
  const call::Shape& shape = capture.outputs.at(output).shape();
  const auto axes = call::axes_of(call, *call::find_row(call, call::Group::kOutput, output));
  std::vector<Line> lines;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const std::vector<Indices> all{counted(0, shape[a])};
    if (axes[a] == call::axis::kPackedToken) {
      lines.push_back({"token", a, groups_of(call, call::bounds_name(call.op))});
      lines.push_back({"the tokens of the batch", a, all});
    } else if (axes[a] == call::axis::kCheckpoint) {
      lines.push_back({"checkpoint", a, groups_of(call, "cu_checkpoints")});
      lines.push_back({"the checkpoints of the batch", a, all});
    } else {
      if (axes[a] == call::axis::kSlot) {
        lines.push_back({"the slots of the rows", a, {written_slots(call)}});
      }
      lines.push_back({line_word(axes[a]), a, all});
    }
  }
  return lines;
}

// One output that is not reproduced in its own order.
class Output {
 public:
  Output(const Capture& capture, const Matcher& matcher, const std::string& name,
         const PredictedOutput& predicted)
      : capture_(capture), matcher_(matcher), name_(name), predicted_(predicted) {
    constexpr std::size_t kFew = 64;
    const std::size_t size = predicted.value.size();
    for (std::size_t i = 0; i < size; ++i) {
      if (!matcher.reproduces(name, i, predicted, i)) failing_.push_back(i);
    }
    const std::size_t step = std::max<std::size_t>(failing_.size() / kFew, 1);
    for (std::size_t i = 0; i < failing_.size(); i += step) few_.push_back(failing_[i]);
  }

  [[nodiscard]] bool fails() const { return !failing_.empty(); }

  // The source of every element, and what to say of it.
  struct Found {
    std::string words;
    std::vector<std::size_t> sources;
  };
  [[nodiscard]] std::optional<Found> find() {
    for (const Line& line : lines_of(capture_, name_)) {
      const std::int64_t longest = std::ssize(std::ranges::max(line.groups, {}, &Indices::size));
      if (longest < 2) continue;
      set_line(line);
      for (const Order& order : orders(line, longest)) {
        if (auto found = try_order(line, order, longest)) return found;
      }
    }
    return std::nullopt;
  }

 private:
  void set_line(const Line& line) {
    const call::Shape& shape = capture_.outputs.at(name_).shape();
    stride_ = 1;
    for (std::size_t a = line.axis + 1; a < shape.size(); ++a) stride_ *= shape[a];
    extent_ = shape[line.axis];
    place_.assign(static_cast<std::size_t>(extent_), {-1, -1});
    for (std::int64_t g = 0; g < std::ssize(line.groups); ++g) {
      const Indices& group = line.groups[static_cast<std::size_t>(g)];
      for (std::int64_t i = 0; i < std::ssize(group); ++i) {
        place_[static_cast<std::size_t>(group[static_cast<std::size_t>(i)])] = {g, i};
      }
    }
  }

  [[nodiscard]] std::int64_t coordinate(std::size_t i) const {
    return static_cast<std::int64_t>(i) / stride_ % extent_;
  }

  // What is tried on a line of at most `longest` places, the plainest first.
  [[nodiscard]] std::vector<Order> orders(const Line& line, std::int64_t longest) const {
    using enum Order::Kind;
    std::vector<Order> all;
    if (longest > 2) all.push_back({kReversed});
    if (longest % 2 == 0 && longest > 2) all.push_back({kRolled, longest / 2});
    if (line.groups.size() == 1) {
      if (const auto two = only_two()) all.push_back({kExchanged, two->first, two->second});
    } else if (longest == 2) {
      all.push_back({kReversed});
    }
    for (std::int64_t n = 1; n < longest; ++n) all.push_back({kRolled, n});
    for (std::int64_t n = 2; n < longest; ++n) {
      if (longest % n == 0) all.push_back({kInTurn, n});
    }
    return all;
  }

  // The places where elements fail, if they are two.
  [[nodiscard]] std::optional<std::pair<std::int64_t, std::int64_t>> only_two() const {
    Indices places;
    for (const std::size_t i : failing_) {
      const std::int64_t at = place_[static_cast<std::size_t>(coordinate(i))].second;
      if (at < 0) return std::nullopt;
      if (std::ranges::find(places, at) == places.end()) places.push_back(at);
      if (places.size() > 2) return std::nullopt;
    }
    if (places.size() != 2) return std::nullopt;
    std::ranges::sort(places);
    return std::pair(places[0], places[1]);
  }

  [[nodiscard]] std::optional<Found> try_order(const Line& line, const Order& order,
                                               std::int64_t longest) const {
    const auto source = [&](std::size_t i) {
      const std::int64_t at = coordinate(i);
      const auto [g, place] = place_[static_cast<std::size_t>(at)];
      if (g < 0) return i;
      const Indices& group = line.groups[static_cast<std::size_t>(g)];
      const std::int64_t from = order.source(place, std::ssize(group));
      if (from < 0 || from >= std::ssize(group)) return i;
      return i + static_cast<std::size_t>((group[static_cast<std::size_t>(from)] - at) * stride_);
    };
    const auto right = [&](std::size_t i) {
      return matcher_.reproduces(name_, i, predicted_, source(i));
    };
    if (!std::ranges::all_of(few_, right) || !std::ranges::all_of(failing_, right)) {
      return std::nullopt;
    }
    Found found{.words = name_ + " " + order.words(line.name, longest), .sources = {}};
    const std::size_t size = predicted_.value.size();
    found.sources.reserve(size);
    for (std::size_t i = 0; i < size; ++i) {
      if (!right(i)) return std::nullopt;
      found.sources.push_back(source(i));
    }
    return found;
  }

  const Capture& capture_;
  const Matcher& matcher_;
  const std::string& name_;
  const PredictedOutput& predicted_;
  std::vector<std::size_t> failing_, few_;
  std::int64_t stride_ = 1, extent_ = 1;
  std::vector<std::pair<std::int64_t, std::int64_t>> place_;  // group and place in it, by index
};

template <class T>
void reorder(std::vector<T>& x, const std::vector<std::size_t>& sources) {
  if (x.empty()) return;
  std::vector<T> moved(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) moved[i] = x[sources[i]];
  x = std::move(moved);
}

}  // namespace

std::vector<std::string> rearrange(const Capture& capture, const Matcher& matcher,
                                   Prediction& prediction) {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::vector<std::size_t>>> orders;
  for (auto& [name, predicted] : prediction.outputs) {
    Output output(capture, matcher, name, predicted);
    if (!output.fails()) continue;
    auto found = output.find();
    if (!found) return {};
    words.push_back(std::move(found->words));
    orders.emplace_back(name, std::move(found->sources));
  }
  for (const auto& [name, sources] : orders) {
    PredictedOutput& predicted = prediction.outputs.at(name);
    reorder(predicted.value, sources);
    reorder(predicted.spread, sources);
    reorder(predicted.may_overflow, sources);
  }
  return words;
}

}  // namespace goldenrule::explain

// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/pattern.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/text.hpp"
#include "reference/explain/axes.hpp"
#include "reference/explain/index_set.hpp"
#include "reference/explain/nan_words.hpp"
#include "reference/explain/token_words.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/coordinates.hpp"

namespace goldenrule::explain {
namespace {

using Hits = std::vector<std::int64_t>;

// Below this share of the box a description by axes says little: the errors of a mistake are above
// their budget in most of the places that it touches.
constexpr double kDense = 0.05;
constexpr std::int64_t kListed = 3;

std::string axis_words(const AxisName& axis, const Hits& hits) {
  const IndexSet set = index_set(hits);
  if (set.shape == Shape::kAll || set.shape == Shape::kNothing) return "";
  if (set.shape == Shape::kOne) {
    return "only " + axis.one + " " + std::to_string(set.first);
  }
  if (set.shape == Shape::kFrom && set.first == 1) {
    return std::string("every ") + axis.one + " but the first";
  }
  const std::string which = condition(set, hits, axis.letter);
  if (set.shape == Shape::kResidue) {
    return "every " + ordinal(set.modulus) + " " + axis.one + " (" + which + ")";
  }
  return axis.many + " " + which;
}

class TensorPattern {
 public:
  TensorPattern(const call::Record& record, const contract::Contract& contract,
                const verdict::Expectations& evaluation, const call::Dims& dims,
                const Failures& failures)
      : record_(record),
        dims_(dims),
        failures_(failures),
        output_(record.outputs.at(failures.name)),
        expected_(evaluation.outputs.at(failures.name)),
        budget_(failures.name, output_.dtype(), expected_, contract),
        grid_(record, dims, failures.name),
        rows_(grid_.rows.size()),
        heads_(static_cast<std::size_t>(grid_.heads)),
        keys_(static_cast<std::size_t>(grid_.keys)),
        values_(static_cast<std::size_t>(grid_.values)) {
    for (std::int64_t i = 0; i < std::ssize(failures.failing); ++i) {
      if (failures.failing[static_cast<std::size_t>(i)] == 0) continue;
      ++rows_[static_cast<std::size_t>(grid_.row_of(i))];
      ++heads_[static_cast<std::size_t>(grid_.head_of(i))];
      ++keys_[static_cast<std::size_t>(grid_.key_of(i))];
      ++values_[static_cast<std::size_t>(grid_.value_of(i))];
    }
  }

  [[nodiscard]] std::string words() const {
    std::string text = failures_.count <= kListed ? listed() : located();
    const std::string content = content_words();
    return content.empty() ? text : text + ", " + content;
  }

 private:
  [[nodiscard]] std::string listed() const {
    std::string text;
    for (std::int64_t i = 0; i < std::ssize(failures_.failing); ++i) {
      if (failures_.failing[static_cast<std::size_t>(i)] == 0) continue;
      text += (text.empty() ? "only (" : "), (") +
              verdict::to_string(
                  verdict::coordinates(record_, failures_.name, call::unravel(output_.shape(), i)));
    }
    return text + ")";
  }

  [[nodiscard]] std::string located() const {
    if (failures_.count == failures_.compared) return "all elements";
    std::vector<std::string> parts{sequence_words(), head_words(), tokens(),
                                   axis_words(name_of(grid_, kKeyAxis), keys_),
                                   axis_words(name_of(grid_, kValueAxis), values_)};
    const std::optional<DependentAxes> pair = dependent_axes(record_, dims_, grid_, failures_);
    if (pair) {
      parts[pair->a] = pair->cells.words;
      parts[pair->b] = "";
    }
    std::erase(parts, "");
    const std::string share =
        std::to_string(failures_.count) + " of " + call::numbered(failures_.compared, "element");
    const bool scattered = density(pair) < kDense;
    if (parts.empty()) return (scattered ? "scattered, " : "everywhere, ") + share;
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    return scattered ? text + ", scattered there (" + share + ")" : text;
  }

  // The share of the box of failing indices that fails, or of what of it is described by cells.
  [[nodiscard]] double density(const std::optional<DependentAxes>& pair) const {
    double box = pair ? pair->cells.share : 1.0;
    for (const Hits* hits : {&rows_, &heads_, &keys_, &values_}) {
      box *= static_cast<double>(std::ranges::count_if(*hits, [](auto n) { return n > 0; }));
    }
    return static_cast<double>(failures_.count) / box;
  }

  // Sequences that are too short to reach the first failing token say nothing by being right.
  [[nodiscard]] std::string sequence_words() const {
    if (grid_.parameter) return "";
    if (!grid_.by_sequence()) return axis_words(name_of(grid_, kRowAxis), rows_);
    std::vector<TokenMask> masks = token_masks();
    std::int64_t first = std::ssize(rows_);
    for (const TokenMask& mask : masks) {
      const auto failing = std::ranges::find(mask, 1);
      if (failing != mask.end()) first = std::min(first, std::int64_t{failing - mask.begin()});
    }
    Hits hits(masks.size());
    bool everywhere = true;
    for (std::size_t r = 0; r < grid_.rows.size(); ++r) {
      hits[static_cast<std::size_t>(grid_.rows[r].sequence)] += rows_[r];
    }
    for (std::size_t n = 0; n < masks.size(); ++n) {
      everywhere = everywhere && (hits[n] > 0 || std::ssize(masks[n]) <= first);
    }
    return everywhere ? "" : axis_words(name_of(grid_, kRowAxis), hits);
  }

  [[nodiscard]] std::string head_words() const {
    if (grid_.plain) return "";
    std::set<std::int64_t> failing;
    std::set<std::int64_t> groups;
    for (std::int64_t j = 0; j < grid_.heads; ++j) {
      if (heads_[static_cast<std::size_t>(j)] == 0) continue;
      failing.insert(j);
      groups.insert(dims_.qk_head(record_.convention.head_map, j));
    }
    const std::int64_t per_group = dims_.HV / dims_.H;
    if (groups.size() == 1 && dims_.H > 1 && per_group > 1 && std::ssize(failing) == per_group) {
      return "every " + std::string(call::operation(record_.op).heads_of_group) + " " +
             std::to_string(*groups.begin());
    }
    return axis_words(name_of(grid_, kHeadAxis), heads_);
  }

  [[nodiscard]] std::vector<TokenMask> token_masks() const {
    std::vector<TokenMask> masks;
    if (!grid_.by_sequence()) return masks;
    masks.resize(static_cast<std::size_t>(dims_.rows));
    for (std::size_t r = 0; r < grid_.rows.size(); ++r) {
      masks[static_cast<std::size_t>(grid_.rows[r].sequence)].push_back(rows_[r] > 0 ? 1 : 0);
    }
    return masks;
  }

  [[nodiscard]] std::string tokens() const {
    if (grid_.rows.empty() || grid_.rows.front().token < 0) return "";
    return token_words(token_masks());
  }

  template <class F>
  [[nodiscard]] bool every_failing(F&& f) const {
    for (std::int64_t i = 0; i < std::ssize(failures_.failing); ++i) {
      if (failures_.failing[static_cast<std::size_t>(i)] != 0 && !f(i)) return false;
    }
    return true;
  }

  // What stands where the result should be.
  [[nodiscard]] std::string content_words() const {
    std::string nan = nan_words(output_, grid_, failures_);
    if (!nan.empty()) return nan;
    if (every_failing([&](std::int64_t i) { return output_[i] == 0.0; })) return "all zero";
    const call::Tensor* initial = record_.find_input("initial_state");
    if (failures_.name == "final_state" && initial != nullptr &&
        every_failing([&](std::int64_t i) { return output_[i] == (*initial)[i]; })) {
      return "equal to the initial state";
    }
    if (failures_.count <= kListed) return "";
    if (repeats(grid_.row_stride())) return "equal to the previous row";
    if (grid_.heads > 1 && repeats(grid_.head_stride())) return "equal to the previous head";
    if (grid_.values == dims_.V && repeats(grid_.value_stride))
      return "equal to the previous value channel";
    return multiple_words();
  }

  // The neighbour's value as it was captured, or as it should have been.
  [[nodiscard]] bool repeats(std::int64_t stride) const {
    return every_failing([&](std::int64_t i) {
      if (i < stride) return false;
      const auto before = static_cast<std::size_t>(i - stride);
      return output_[i] == output_[i - stride] ||
             verdict::passes(output_[i], expected_, before, budget_(before));
    });
  }

  // "about c times the exact result", by least squares with 1 % of the norm left over.
  [[nodiscard]] std::string multiple_words() const {
    double yg = 0.0;
    double gg = 0.0;
    double yy = 0.0;
    for (std::size_t i = 0; i < failures_.failing.size(); ++i) {
      if (failures_.failing[i] == 0) continue;
      const double y = output_[static_cast<std::int64_t>(i)];
      const double g = expected_.exact.golden[i];
      yg += y * g;
      gg += g * g;
      yy += y * y;
    }
    if (!(gg > 0.0) || !std::isfinite(yy)) return "";
    const double c = yg / gg;
    const double left = yy - c * yg;
    if (left > 1e-4 * yy || std::fabs(c - 1.0) < 0.01) return "";
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), "%.3g", c);
    return std::string("about ") + number.data() + " times the exact result";
  }

  const call::Record& record_;
  const call::Dims& dims_;
  const Failures& failures_;
  const call::Tensor& output_;
  const verdict::Expected& expected_;
  const verdict::Budget budget_;
  const Grid grid_;
  Hits rows_, heads_, keys_, values_;
};

}  // namespace

std::string describe_pattern(const call::Record& record, const contract::Contract& contract,
                             const verdict::Expectations& evaluation,
                             std::span<const Failures> failures) {
  const call::Dims dims = call::validate(record);
  // In the order of the tensors, those with the same words together.
  std::vector<std::pair<std::string, std::string>> named;  // tensors, words
  for (const Failures& f : failures) {
    if (f.count == 0) continue;
    const std::string words = TensorPattern(record, contract, evaluation, dims, f).words();
    const auto same = std::ranges::find(named, words, &std::pair<std::string, std::string>::second);
    if (same == named.end()) {
      named.emplace_back(f.name, words);
    } else {
      same->first += " and " + f.name;
    }
  }
  std::string text;
  for (const auto& [tensors, words] : named) {
    if (!text.empty()) text += "; ";
    text.append(tensors).append(": ").append(words);
  }
  return text;
}

}  // namespace goldenrule::explain

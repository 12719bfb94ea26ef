// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/error_map.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/coordinates.hpp"

namespace goldenrule::verdict {
namespace {

constexpr std::int64_t kLeastGap = 3;  // cells between two lines
constexpr float kNone = -1.0F;
constexpr std::int64_t kMaxRun = 128;  // elements that are read at once

char level_of(float ratio) {
  if (ratio < 0.0F) return '.';
  if (!std::isfinite(ratio)) return kMapLevels.back();
  std::size_t level = 0;
  for (float bound = 0x1p-8F; ratio > bound && level + 2 < kMapLevels.size(); bound *= 4.0F) {
    ++level;
  }
  return kMapLevels[level];
}

// One output of a judgement, as rows of heads of elements.
class MapMaker {
 public:
  MapMaker(const Judgement& judgement, const TensorReport& report)
      : record_(judgement.record),
        report_(report),
        output_(record_.outputs.at(report.name)),
        expected_(judgement.expected.outputs.at(report.name)),
        budget_(report.name, output_.dtype(), expected_, judgement.contract),
        dims_(call::validate(record_)),
        strides_(call::output_strides(record_, dims_, report.name)),
        chunk_(chunk_of(judgement)),
        least_ulp_(least_ulp_of(output_.dtype(), judgement.contract)) {
    std::int64_t worst = 0;
    for (std::size_t i = 0; i < report.shape.size(); ++i) {
      worst = worst * report.shape[i] + report.worst->index[i];
    }
    rows_ = output_.size() / strides_.row;
    row_ = worst / strides_.row;
    head_ = worst % strides_.row / strides_.head;
    key_ = strides_.key == 0 ? 0 : worst / strides_.key % dims_.K;
    value_ = worst / strides_.value % dims_.V;
  }

  /// All rows by heads.
  [[nodiscard]] ErrorMap overview() const {
    ErrorMap map{.where = {},
                 .down = axis(rows_word(), 0, rows_, row_),
                 .across = axis("head", 0, dims_.HV, head_),
                 .levels = {}};
    map.down.sequences = kept_apart(sequence_starts(), map.down);
    map.down.chunks = kept_apart(chunk_starts(0, rows_), map.down);
    fill(map, [&](std::int64_t down, std::int64_t across, auto&& take) {
      take(down * strides_.row + across * strides_.head, strides_.head);
    });
    return map;
  }

  /// The state of the worst element, or the tokens around it.
  [[nodiscard]] ErrorMap nearby() const { return strides_.key > 0 ? state() : tokens(); }

 private:
  static std::int64_t chunk_of(const Judgement& judgement) {
    const contract::Chunked* chunked = judgement.contract.chunked();
    return chunked == nullptr ? 0 : chunked->chunk;
  }

  // Over the value, in whichever type the budget takes an element to be stored.
  static double least_ulp_of(call::DType stored, const contract::Contract& contract) {
    const call::DType other = contract.state_dtype.value_or(stored);
    const int bits =
        std::max(call::info(stored).significand_bits, call::info(other).significand_bits);
    return std::exp2(-(bits + 1));
  }

  static MapAxis axis(std::string word, std::int64_t first, std::int64_t extent,
                      std::int64_t worst) {
    return {.word = std::move(word),
            .first = first,
            .extent = extent,
            .cells = std::min(extent, kMapCells),
            .worst = worst - first};
  }

  [[nodiscard]] std::string rows_word() const {
    const auto axes =
        call::axes_of(record_, *call::find_row(record_, call::Group::kOutput, report_.name));
    return axes.size() > 1 && axes[1] == call::axis::kToken && dims_.T > 1
               ? "token of all sequences"
               : report_.row_word;
  }

  [[nodiscard]] bool is_packed() const {
    return report_.name == "o" &&
           (record_.mode == call::Mode::kPrefill || call::operation(record_.op).always_packed);
  }

  // Where sequences begin among the rows, with their end.
  [[nodiscard]] std::vector<std::int64_t> bounds() const {
    if (is_packed()) return record_.inputs.at(call::bounds_name(record_.op)).to_integers();
    std::vector<std::int64_t> bounds{0};
    const bool by_token = report_.shape.size() > 1 && rows_ == dims_.rows * dims_.T && dims_.T > 1;
    while (bounds.back() < rows_) {
      bounds.push_back(by_token ? bounds.back() + dims_.T : rows_);
    }
    return bounds;
  }

  // But for the first, which is the edge of the map, and those that begin where another does.
  [[nodiscard]] std::vector<std::int64_t> sequence_starts() const {
    std::vector<std::int64_t> starts;
    for (const std::int64_t start : bounds()) {
      if (start > 0 && start < rows_ && (starts.empty() || starts.back() != start)) {
        starts.push_back(start);
      }
    }
    return starts;
  }

  // Of the packed tokens [from, to), counted from `from`.
  [[nodiscard]] std::vector<std::int64_t> chunk_starts(std::int64_t from, std::int64_t to) const {
    std::vector<std::int64_t> starts;
    if (chunk_ == 0 || !is_packed()) return starts;
    const std::vector<std::int64_t> all = bounds();
    for (std::size_t n = 0; n + 1 < all.size(); ++n) {
      for (std::int64_t t = all[n] + chunk_; t < all[n + 1]; t += chunk_) {
        if (t > from && t < to) starts.push_back(t - from);
      }
    }
    return starts;
  }

  static std::vector<std::int64_t> kept_apart(std::vector<std::int64_t> lines,
                                              const MapAxis& axis) {
    if (std::ssize(lines) * kLeastGap > axis.cells) lines.clear();
    return lines;
  }

  [[nodiscard]] ErrorMap state() const {
    Coordinates place = report_.worst->coordinates;
    std::erase_if(place, [](const auto& n) { return n.first == "key" || n.first == "value"; });
    ErrorMap map{.where = to_string(place),
                 .down = axis("key", 0, dims_.K, key_),
                 .across = axis("value", 0, dims_.V, value_),
                 .levels = {}};
    const std::int64_t first = row_ * strides_.row + head_ * strides_.head;
    fill(map, [&](std::int64_t down, std::int64_t across, auto&& take) {
      take(first + down * strides_.key + across * strides_.value, 1);
    });
    return map;
  }

  // At most kMapCells tokens of the worst element's sequence, or rows of a decode call.
  [[nodiscard]] ErrorMap tokens() const {
    std::int64_t begin = 0;
    std::int64_t end = rows_;
    if (is_packed()) {
      const std::vector<std::int64_t> all = bounds();
      const auto after = std::ranges::upper_bound(all, row_);
      begin = *(after - 1);
      end = *after;
    }
    const std::int64_t from = begin + (row_ - begin) / kMapCells * kMapCells;
    const std::int64_t to = std::min(from + kMapCells, end);
    std::string where = "head " + std::to_string(head_);
    if (is_packed()) where = to_string({report_.worst->coordinates.front()}) + ", " + where;
    ErrorMap map{
        .where = where,
        .down = axis(is_packed() ? "token" : rows_word(), from - begin, to - from, row_ - begin),
        .across = axis("value", 0, dims_.V, value_),
        .levels = {}};
    if (!is_packed()) {
      for (const std::int64_t start : sequence_starts()) {
        if (start > from && start < to) map.down.sequences.push_back(start - from);
      }
      map.down.sequences = kept_apart(map.down.sequences, map.down);
    }
    map.down.chunks = kept_apart(chunk_starts(from, to), map.down);
    fill(map, [&](std::int64_t down, std::int64_t across, auto&& take) {
      take((from + down) * strides_.row + head_ * strides_.head + across * strides_.value, 1);
    });
    return map;
  }

  // each(down, across, take) calls take(first, count) for the elements of one index of both axes.
  // Cells of one line belong to one job.
  template <class F>
  void fill(ErrorMap& map, const F& each) const {
    const auto columns = static_cast<std::size_t>(map.across.cells);
    map.levels.resize(static_cast<std::size_t>(map.down.cells));
    const auto first_of = [&](std::int64_t line) {
      return (line * map.down.extent + map.down.cells - 1) / map.down.cells;
    };
    parallel::for_each_index(map.down.cells, [&](std::int64_t line) {
      std::vector<float> ratios(columns, kNone);
      for (std::int64_t down = first_of(line); down < first_of(line + 1); ++down) {
        for (std::int64_t across = 0; across < map.across.extent; ++across) {
          float& cell =
              ratios[static_cast<std::size_t>(across * map.across.cells / map.across.extent)];
          each(down, across,
               [&](std::int64_t first, std::int64_t count) { cell = largest(first, count, cell); });
        }
      }
      std::string& levels = map.levels[static_cast<std::size_t>(line)];
      for (const float ratio : ratios) levels += level_of(ratio);
    });
  }

  // The largest ratio of elements [first, first + count) of one row and head, or `cell` where that
  // is larger. Maps cost a small part of the verdict because most elements are not divided: against
  // the least that their budgets can be they are seen to lie below the cell.
  [[nodiscard]] float largest(std::int64_t first, std::int64_t count, float cell) const {
    std::array<double, kMaxRun> run{};
    for (std::int64_t i = first; i < first + count;) {
      const std::int64_t n = std::min(kMaxRun, first + count - i);
      output_.read(i, n, run.data());
      if (!is_below(i, n, run.data(), cell)) {
        for (std::int64_t j = 0; j < n; ++j) {
          cell = std::max(cell, ratio(i + j, run[static_cast<std::size_t>(j)]));
        }
      }
      i += n;
    }
    return cell;
  }

  // Whether elements [first, first + n) with values y cannot raise the cell. What is not finite
  // may.
  [[nodiscard]] bool is_below(std::int64_t first, std::int64_t n, const double* y,
                              float cell) const {
    if (cell < 0.0F) return false;
    constexpr double kClearly = 0.99;  // whatever is rounded here and in ratio()
    const Exact& exact = expected_.exact;
    const auto at = static_cast<std::size_t>(first);
    const bool kept = !exact.touched.empty() && exact.touched[at / exact.block] == Touch::kKept;
    const double limit = kept ? 0.0 : kClearly * static_cast<double>(cell);
    std::int64_t below = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const std::size_t i = at + static_cast<std::size_t>(j);
      const double beyond =
          std::fabs(y[j] - exact.golden[i]) - static_cast<double>(exact.radius[i]);
      // Half an ulp of x is more than x 2^-(p + 1), p the significand bits.
      const double least = budget_.spread(i) + least_ulp_ * std::fabs(exact.golden[i]);
      below += beyond <= limit * least ? 1 : 0;
    }
    return below == n;
  }

  // As the comparison counts it: above 1 where the element is out of budget, and only there.
  [[nodiscard]] float ratio(std::int64_t i, double y) const {
    constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
    const auto at = static_cast<std::size_t>(i);
    if (!expected_.exact.is_defined(at)) return kNone;
    const double golden = expected_.exact.golden[at];
    const double budget = std::isfinite(golden) ? budget_(at) : 0.0;
    if (!is_bounded(expected_, at, budget)) return kNone;
    if (!std::isfinite(golden)) return std::isfinite(y) ? kFloatInfinity : kNone;
    if (!std::isfinite(y)) return kFloatInfinity;
    const double beyond = std::fabs(y - golden) - static_cast<double>(expected_.exact.radius[at]);
    return shown_ratio(ratio_of(std::max(beyond, 0.0), budget), passes(y, expected_, at, budget));
  }

  const call::Record& record_;
  const TensorReport& report_;
  const call::Tensor& output_;
  const Expected& expected_;
  const Budget budget_;
  const call::Dims dims_;
  const call::Strides strides_;
  const std::int64_t chunk_;
  const double least_ulp_;
  std::int64_t rows_ = 0;
  std::int64_t row_ = 0, head_ = 0, key_ = 0, value_ = 0;  // of the worst element
};

}  // namespace

std::vector<ErrorMap> error_maps(const Judgement& judgement, const TensorReport& report) {
  if (report.verdict != Verdict::kOutOfBudget || !report.worst) return {};
  const call::TensorRow& row = *call::find_row(judgement.record, call::Group::kOutput, report.name);
  if (!has_plane(call::axes_of(judgement.record, row))) return {};
  const MapMaker maker(judgement, report);
  return {maker.overview(), maker.nearby()};
}

}  // namespace goldenrule::verdict

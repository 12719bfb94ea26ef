// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/block_fit.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fixtures/parallel/for_each_index.hpp"
#include "reference/calls/unwritten.hpp"
#include "reference/explain/search.hpp"
#include "reference/scalar/infinity.hpp"

namespace goldenrule::explain {
namespace {

using Element = ComparedOutput::Element;
using Nonfinite = ComparedOutput::Nonfinite;

// One row and head of an output.
class CellFit {
 public:
  CellFit(const ComparedOutput& output, const PredictedOutput& predicted, const Grid& grid)
      : output_(output), predicted_(predicted), grid_(grid) {}

  [[nodiscard]] BlockFit of(std::int64_t row, std::int64_t head) {
    fit_ = {};
    left_ = {};
    exact_left_ = {};
    chances_.assign(static_cast<std::size_t>(grid_.values), 0.0);
    const std::int64_t first = row * grid_.row_stride() + head * grid_.head_stride();
    fit_.fails = fails_any(first);
    for (std::int64_t k = 0; k < grid_.keys; ++k) {
      for (std::int64_t v = 0; v < grid_.values; ++v) {
        const auto i =
            static_cast<std::size_t>(first + k * grid_.key_stride + v * grid_.value_stride);
        if (output_.elements[i] == Element::kUndefined) continue;
        ++fit_.compared;
        add(i, static_cast<std::size_t>(v));
        if (is_settled()) return fit_;
      }
    }
    fit_.assumes = fit_.assumes || left_.count > 0;
    fit_.reproduced = fit_.reproduced && (left_.count == 0 || left_.is_constant());
    fit_.told = fit_.told || (exact_left_.count > 0 && !exact_left_.is_constant());
    for (const double chance : chances_) fit_.log_chance += chance;
    fit_.integers = call::info(output_.type).significand_bits == 0;
    if (fit_.integers && fit_.log_chance < 0.0) fit_.log_chance = -std::numbers::ln2;
    return fit_;
  }

 private:
  [[nodiscard]] bool fails_any(std::int64_t first) const {
    for (std::int64_t k = 0; k < grid_.keys; ++k) {
      for (std::int64_t v = 0; v < grid_.values; ++v) {
        const auto i =
            static_cast<std::size_t>(first + k * grid_.key_stride + v * grid_.value_stride);
        if (output_.elements[i] == Element::kFails) return true;
      }
    }
    return false;
  }

  // A block that is not reproduced is not made where it fails. Where it does not fail and is told,
  // it is right. Nothing else is asked of either.
  [[nodiscard]] bool is_settled() const { return !fit_.reproduced && (fit_.fails || fit_.told); }

  void add(std::size_t i, std::size_t channel) {
    const double y = output_.captured[i];
    const double p = predicted_.value[i];
    const bool fails = output_.elements[i] == Element::kFails;
    const auto spread = static_cast<double>(predicted_.spread[i]);
    bool reproduced = true;
    double distance = 0.0;
    if (!std::isfinite(y) || !std::isfinite(p)) {
      reproduced = add_nonfinite(i, y, p);
    } else if (std::isfinite(spread)) {
      distance = std::fabs(y - p);
      const double budget = output_.budget.around(i, p, spread);
      const double ratio = verdict::ratio_of(distance, budget);
      fit_.ratio = std::max(fit_.ratio, ratio);
      reproduced = ratio <= 1.0;
      const bool counts = fails && reproduced && y != 0.0;
      fit_.has_numbers = fit_.has_numbers || counts;
      add_chance(i, channel, budget, counts);
    }
    const double in_budgets = distance / static_cast<double>(output_.in_budgets[i]);
    fit_.square += in_budgets * in_budgets;
    fit_.reproduced = fit_.reproduced && reproduced;
    if (!fails) return;
    if (std::isfinite(y) && std::isfinite(p) && !std::isfinite(spread)) {
      fit_.share.add_unaccounted();
    } else {
      fit_.share.add(y - output_.expected->exact.golden[i], distance, reproduced);
    }
  }

  // What is predicted and what is exact, apart by more than both budgets.
  void add_chance(std::size_t i, std::size_t channel, double budget, bool counts) {
    const verdict::Exact& exact = output_.expected->exact;
    const double apart = std::fabs(predicted_.value[i] - exact.golden[i]);
    if (!(apart > budget)) return;
    if (!(apart > budget + output_.budget(i) + static_cast<double>(exact.radius[i]))) return;
    fit_.told = true;
    if (counts) chances_[channel] = std::min(chances_[channel], std::log(budget / apart));
  }

  // Whether it is reproduced; what was left is decided for all such elements together.
  bool add_nonfinite(std::size_t i, double y, double p) {
    const double exact = output_.expected->exact.golden[i];
    const bool left = calls::is_unwritten(p);
    if (left && std::isfinite(exact)) exact_left_.add(exact, exact);
    if (!left && !std::isfinite(p) && std::isfinite(exact)) fit_.told = true;
    switch (output_.nonfinite(i, y, p, predicted_)) {
      case Nonfinite::kOther:
        fit_.ratio = kInfinity;
        return false;
      case Nonfinite::kExcused:
        fit_.assumes = true;
        return true;
      case Nonfinite::kLeft:
        left_.add(y, exact);
        return true;
      case Nonfinite::kSame:
        return true;
    }
    return false;
  }

  const ComparedOutput& output_;
  const PredictedOutput& predicted_;
  const Grid& grid_;
  BlockFit fit_;
  Leftover left_, exact_left_;
  std::vector<double> chances_;  // per value channel, of its best element
};

// The blocks of a row and head.
std::vector<std::size_t> blocks_of(const BlockMap& map, const OutputBlocks& output,
                                   std::int64_t row, std::int64_t head) {
  std::vector<std::size_t> blocks;
  for (const std::int64_t unit : output.units[static_cast<std::size_t>(row)]) {
    for (const std::int64_t h : output.heads[static_cast<std::size_t>(head)]) {
      blocks.push_back(map.block(unit, h));
    }
  }
  return blocks;
}

}  // namespace

void BlockFit::add(const BlockFit& other) {
  fails = fails || other.fails;
  reproduced = reproduced && other.reproduced;
  told = told || other.told;
  share.add(other.share);
  has_numbers = has_numbers || other.has_numbers;
  log_chance =
      other.integers ? std::min(log_chance, other.log_chance) : log_chance + other.log_chance;
  ratio = std::max(ratio, other.ratio);
  square += other.square;
  compared += other.compared;
  assumes = assumes || other.assumes;
}

bool BlockFit::is_made() const { return fails && reproduced && share.accounted() >= kAccounted; }

BlockFits fit_blocks(const BlockMap& map, const Matcher& matcher, const Prediction& prediction) {
  BlockFits fits;
  fits.blocks.resize(map.size());
  for (const ComparedOutput& output : matcher.outputs()) {
    const OutputBlocks& blocks = map.output(output.name);
    const Grid& grid = blocks.grid;
    const PredictedOutput& predicted = prediction.outputs.at(output.name);
    const std::int64_t rows = std::ssize(grid.rows);
    std::vector<BlockFit> cells(static_cast<std::size_t>(rows * grid.heads));
    parallel::for_each_index(rows, [&](std::int64_t row) {
      CellFit cell(output, predicted, grid);
      for (std::int64_t head = 0; head < grid.heads; ++head) {
        cells[static_cast<std::size_t>(row * grid.heads + head)] = cell.of(row, head);
      }
    });
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t head = 0; head < grid.heads; ++head) {
        const BlockFit& cell = cells[static_cast<std::size_t>(row * grid.heads + head)];
        std::vector<std::size_t> of = blocks_of(map, blocks, row, head);
        if (of.size() == 1) {
          fits.blocks[of.front()].add(cell);
        } else {
          fits.sums.push_back({std::move(of), cell});
        }
      }
    }
  }
  return fits;
}

bool same_in_blocks(const BlockMap& map, const Matcher& matcher, const Prediction& a,
                    const Prediction& b, const std::vector<Place>& places) {
  for (const ComparedOutput& output : matcher.outputs()) {
    const OutputBlocks& blocks = map.output(output.name);
    const std::vector<double>& x = a.outputs.at(output.name).value;
    const std::vector<double>& y = b.outputs.at(output.name).value;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (output.elements[i] == Element::kUndefined) continue;
      const auto of = blocks_of(map, blocks, blocks.grid.row_of(at), blocks.grid.head_of(at));
      const auto here = [&](std::size_t block) { return places[block] == Place::kHere; };
      if (!std::ranges::any_of(of, here)) continue;
      if (std::isfinite(x[i]) != std::isfinite(y[i])) return false;
      const double allowed = Matcher::kSame * static_cast<double>(output.in_budgets[i]);
      if (std::isfinite(x[i]) && !(std::fabs(x[i] - y[i]) <= allowed)) return false;
    }
  }
  return true;
}

}  // namespace goldenrule::explain

// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/search/read.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fixtures/parallel/for_each_index.hpp"

namespace goldenrule::drafts {
namespace {

std::optional<std::vector<double>> written(std::vector<double> row) {
  const bool all = std::ranges::all_of(row, [](double x) { return std::isfinite(x); });
  return all ? std::optional(std::move(row)) : std::nullopt;
}

}  // namespace

std::optional<At> place(const Work& work, From from, At own, Positions of) {
  const bool target = of == Positions::kTarget;
  const std::int64_t positions = target ? work.target_positions() : work.plan.dims.drafts;
  const std::int64_t last = std::min(work.row(own.n).drafts - (target ? 0 : 1), positions - 1);
  At at = own;
  switch (from) {
    case From::kOwn:
      break;
    case From::kNext:
      if (++at.i == positions) at = {own.n + 1, 0};
      break;
    case From::kBefore:
      if (--at.i < 0) at = {own.n - 1, positions - 1};
      break;
    case From::kNextInside:
      at.i = std::min(own.i + 1, last);
      break;
    case From::kBeforeInside:
      at.i = std::max<std::int64_t>(own.i - 1, 0);
      break;
    case From::kFirst:
      at.i = 0;
      break;
    case From::kLast:
      at.i = last;
      break;
    case From::kFirstRow:
      at.n = 0;
      break;
  }
  const bool there = at.i >= 0 && at.i < positions && at.n >= 0 && at.n < work.plan.dims.rows &&
                     !work.row(at.n).padded();
  return there ? std::optional(at) : std::nullopt;
}

std::optional<std::vector<double>> target_row(const Work& work, At at) {
  if (at.i >= work.target_positions()) return std::nullopt;
  return written(work.decisions.target_row(at.n, at.i));
}

std::optional<std::vector<double>> draft_row(const Work& work, At at) {
  if (work.call.find_input("draft_probs") == nullptr || at.i >= work.plan.dims.drafts) {
    return std::nullopt;
  }
  return written(work.decisions.draft_row(at.n, at.i));
}

std::optional<std::int64_t> largest(std::span<const double> row) {
  const auto first = std::ranges::max_element(row);
  if (first == row.end() || std::ranges::count(row, *first) > 1) return std::nullopt;
  return first - row.begin();
}

Reading::Reading(const Work& of) : work(of) {
  if (work.is_greedy()) return;
  const call::Dims& d = work.plan.dims;
  likeliest.assign(static_cast<std::size_t>(d.rows * d.target_rows), -1);
  parallel::for_each_index(std::ssize(likeliest), [&](std::int64_t i) {
    const At at{i / d.target_rows, i % d.target_rows};
    if (work.row(at.n).padded() || at.i > work.row(at.n).drafts) return;
    const auto row = target_row(work, at);
    if (row) likeliest[static_cast<std::size_t>(i)] = largest(*row).value_or(-1);
  });
}

}  // namespace goldenrule::drafts

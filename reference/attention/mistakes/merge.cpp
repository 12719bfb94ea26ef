// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/mistakes/merge.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>

#include "fixtures/parallel/for_each_index.hpp"
#include "reference/attention/mistakes/mistake.hpp"
#include "reference/attention/mistakes/plain_call.hpp"
#include "reference/attention/rule/evaluate.hpp"
#include "reference/scalar/infinity.hpp"

namespace goldenrule::attention {
namespace {

// Scores are multiplied by it where their maximum is asked for: lse / kSteep = m + log(l) / kSteep,
// and for l <= kMaxKeys the last term is below 2^-20 ln 2^22 < 1.5e-5.
constexpr double kSteep = 0x1p20;

bool takes_other_rows(const Merge& merge) {
  return merge.o == MergeO::kHeadsFirst || merge.o == MergeO::kTokensFirst;
}

bool is_small(const Plan& plan) {
  std::int64_t elements = 0, products = 0;
  for (const Request& request : plan.requests) {
    const std::int64_t of_head = request.key_count() * plan.dims.K;
    elements += of_head * plan.dims.H;
    products += of_head * plan.dims.HV * request.valid;
  }
  return elements <= kMostKeyElements && products <= kMostProducts;
}

// The row whose lse a merge takes for that of a row.
struct RowOfLse {
  std::int64_t token, head;
};
RowOfLse row_of_lse(const Merge& merge, const Dims& d, RowOfLse row) {
  if (merge.o == MergeO::kHeadsFirst) {
    const std::int64_t at = row.token * d.HV + row.head;
    return {at % d.tokens, at / d.tokens};
  }
  if (merge.o == MergeO::kTokensFirst) {
    const std::int64_t at = row.head * d.tokens + row.token;
    return {at / d.HV, at % d.HV};
  }
  return row;
}

// Of a row: lse, the lse that it is weighted by, largest score and o of each part.
struct RowParts {
  std::vector<double> lse, taken, maximum;
  std::vector<std::vector<double>> o;
  [[nodiscard]] bool sees(std::size_t p) const { return lse[p] != -kInfinity; }
  // Part 0 where none has a visible key.
  [[nodiscard]] std::size_t last_seen() const {
    std::size_t p = lse.size() - 1;
    while (p > 0 && !sees(p)) --p;
    return p;
  }
};

struct Merged {
  std::vector<double> o;
  double lse = -kInfinity;
};

double log_sum(std::span<const double> a, double top) {
  double sum = 0.0;
  for (const double x : a) sum += std::exp(x - top);
  return top + std::log(sum);
}

class Merger {
 public:
  explicit Merger(const Merge& merge) : merge_(merge) {}

  [[nodiscard]] Merged merged(const RowParts& row) const {
    const std::vector<double> a = exponents(row);
    Merged result;
    result.o.assign(row.o.front().size(), 0.0);
    const double top = std::ranges::max(a);
    if (top != -kInfinity) {
      const double divided = is_weighted() ? log_sum(a, top) : 0.0;
      for (std::size_t p = 0; p < a.size(); ++p) {
        const double w = std::exp(a[p] - divided);
        for (std::size_t x = 0; w != 0.0 && x < result.o.size(); ++x)
          result.o[x] += w * row.o[p][x];
      }
    }
    result.lse = lse(row, a, top);
    return result;
  }

 private:
  [[nodiscard]] bool is_weighted() const {
    return merge_.o != MergeO::kMean && merge_.o != MergeO::kMeanOfSeen && merge_.o != MergeO::kSum;
  }
  // What a part's lse is multiplied by.
  [[nodiscard]] double base() const {
    if (merge_.o == MergeO::kBaseEOf2) return std::numbers::log2e;
    return merge_.o == MergeO::kBase2OfE ? std::numbers::ln2 : 1.0;
  }

  // a_p
  [[nodiscard]] std::vector<double> exponents(const RowParts& row) const {
    std::vector<double> a = row.taken;
    if (takes_other_rows(merge_)) return a;
    const auto parts = static_cast<double>(a.size());
    const double seen = parts - static_cast<double>(std::ranges::count(a, -kInfinity));
    const std::size_t chosen =
        merge_.part == kLastPart ? a.size() - 1 : static_cast<std::size_t>(merge_.part);
    const std::size_t last = row.last_seen();
    for (std::size_t p = 0; p < a.size(); ++p) {
      a[p] *= base();
      if (!row.sees(p)) {
        if (merge_.o == MergeO::kEmptyIsOne) a[p] = 0.0;
        continue;
      }
      if (merge_.o == MergeO::kMean) a[p] = -std::log(parts);
      if (merge_.o == MergeO::kMeanOfSeen) a[p] = -std::log(seen);
      if (merge_.o == MergeO::kSum) a[p] = 0.0;
      if (merge_.o == MergeO::kOwnMaximum) a[p] -= row.maximum[p];
      if (p == chosen && merge_.o == MergeO::kLost) a[p] = -kInfinity;
      if (p != last && merge_.o == MergeO::kLastWriter) a[p] = -kInfinity;
      if (p == chosen && merge_.o == MergeO::kTwice) a[p] += std::numbers::ln2;
    }
    return a;
  }

  [[nodiscard]] double lse(const RowParts& row, const std::vector<double>& a, double top) const {
    const double largest = std::ranges::max(row.lse);
    switch (merge_.lse) {
      case MergeLse::kRight:
        return largest == -kInfinity ? largest : log_sum(row.lse, largest);
      case MergeLse::kMaximum:
        return largest;
      case MergeLse::kLast:
        return row.lse[row.last_seen()];
      case MergeLse::kSum:
        return largest == -kInfinity ? largest : sum(row, std::vector<double>(a.size(), 0.0));
      case MergeLse::kOtherBase:
        return top == -kInfinity ? top : log_sum(a, top);
      case MergeLse::kAsO:
        break;
    }
    if (top == -kInfinity) return top;
    if (!is_weighted()) return sum(row, a);
    const double shift = merge_.o == MergeO::kOwnMaximum ? std::ranges::max(row.maximum) : 0.0;
    return log_sum(a, top) / base() + shift;
  }

  // Of the lse that there are, with weights exp(a).
  [[nodiscard]] static double sum(const RowParts& row, const std::vector<double>& a) {
    double total = 0.0;
    for (std::size_t p = 0; p < a.size(); ++p) {
      if (row.sees(p)) total += std::exp(a[p]) * row.lse[p];
    }
    return total;
  }

  const Merge& merge_;
};

// What a kernel returns of each part.
struct PartOutputs {
  std::vector<call::TensorMap> parts, steep;
};

PartOutputs outputs_of_parts(const Merge& merge, const call::Record& record, const Plan& plan,
                             const calls::Kernel& kernel) {
  PartOutputs outputs;
  std::vector<PartEnds> ends;
  for (const Request& r : plan.requests) ends.push_back(ends_of(r, merge.partition));
  const std::int64_t count = count_of(plan, merge.partition);
  for (std::int64_t p = 0; p < count; ++p) {
    Plan part = plan;
    for (std::size_t n = 0; n < part.requests.size(); ++n) {
      part.requests[n] = part_of(plan.requests[n], ends[n], p);
    }
    outputs.parts.push_back(kernel(call_of(record, part)));
    if (merge.o != MergeO::kOwnMaximum) continue;
    part.scale *= kSteep;
    part.soft_cap *= kSteep;
    outputs.steep.push_back(kernel(call_of(record, part)));
  }
  return outputs;
}

}  // namespace

bool shows(const Merge& merge, const call::Record& record) {
  const Plan plan = make_plan(record);
  if (!is_small(plan)) return false;
  const auto too_many = [&](const Request& request) {
    return merge.partition.by == Partition::By::kSize &&
           request.key_count() > kMostParts * merge.partition.number;
  };
  if (std::ranges::any_of(plan.requests, too_many)) return false;
  if (takes_other_rows(merge) && (plan.dims.tokens < 2 || plan.dims.HV < 2)) return false;
  const std::int64_t count = count_of(plan, merge.partition);
  const std::int64_t chosen = merge.part == kLastPart ? count - 1 : merge.part;
  if (count < 2 || chosen >= count || (merge.part > 0 && chosen == count - 1)) return false;
  const bool is_chosen = merge.o == MergeO::kLost || merge.o == MergeO::kTwice;
  const auto in_query = [&](const SeenParts& seen) {
    if (merge.o == MergeO::kEmptyIsOne) return seen.count() > 0 && seen.count() < count;
    return seen.count() > 1 && (!is_chosen || seen.contains(chosen));
  };
  return std::ranges::any_of(plan.requests, [&](const Request& request) {
    return std::ranges::any_of(seen_parts(request, ends_of(request, merge.partition)), in_query);
  });
}

call::TensorMap commit_merge(const Merge& merge, const call::Record& record,
                             const calls::Kernel& kernel) {
  const Plan plan = make_plan(record);
  const PartOutputs outputs = outputs_of_parts(merge, record, plan, kernel);
  const std::size_t count = outputs.parts.size();
  call::TensorMap result = outputs.parts.front();
  call::Tensor& o = result.at("o");
  call::Tensor& lse = result.at("lse");
  const double unit = plan.lse_base == LseBase::kE ? 1.0 : std::numbers::log2e;
  const Merger merger(merge);
  const std::vector<RowJob> jobs = row_jobs(plan);
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const RowJob& job = jobs[static_cast<std::size_t>(i)];
    RowParts row{.lse = std::vector<double>(count),
                 .taken = std::vector<double>(count),
                 .maximum = std::vector<double>(count, -kInfinity),
                 .o = std::vector<std::vector<double>>(
                     count, std::vector<double>(static_cast<std::size_t>(plan.dims.V)))};
    for (const RowPlace& place : job.rows) {
      const std::int64_t first = o_index(plan, *job.request, place);
      const auto index_of = [&](const RowOfLse& of) {
        return static_cast<std::int64_t>(lse_index(plan, of.token, of.head));
      };
      const RowOfLse own{job.request->first_query + place.query, place.head};
      const std::int64_t at = index_of(own);
      const std::int64_t taken = index_of(row_of_lse(merge, plan.dims, own));
      for (std::size_t p = 0; p < count; ++p) {
        row.lse[p] = outputs.parts[p].at("lse")[at] / unit;
        row.taken[p] = outputs.parts[p].at("lse")[taken] / unit;
        if (!outputs.steep.empty()) {
          row.maximum[p] = outputs.steep[p].at("lse")[at] / (unit * kSteep);
        }
        outputs.parts[p].at("o").read(first, plan.dims.V, row.o[p].data());
      }
      const Merged merged = merger.merged(row);
      for (std::int64_t x = 0; x < plan.dims.V; ++x) {
        o.set(first + x, merged.o[static_cast<std::size_t>(x)]);
      }
      lse.set(at, merged.lse * unit);
    }
  });
  return result;
}

}  // namespace goldenrule::attention

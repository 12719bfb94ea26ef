// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/flushing.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "fixtures/call/f32_bound.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"

namespace goldenrule::delta {
namespace {

constexpr double kSmallest = 0x1p-126;  // normal fp32

double of_largest(double largest, std::int64_t K) {
  constexpr double kLargest = 0x1p60;
  if (largest == 0.0) return 0.0;
  return static_cast<double>(K + 1) * kSmallest * std::clamp(largest, 1.0, kLargest);
}

double finite_size(double x) { return std::isfinite(x) ? std::fabs(x) : 0.0; }

// Of one lane, to where its outputs are.
class LaneFlushing {
 public:
  LaneFlushing(const call::Record& record, const call::Plan& plan, verdict::Expectations& expected)
      : plan_(plan), inputs_(record), index_(record, plan.dims), outputs_(expected.outputs) {}

  void run(const LaneJob& job) {
    const call::Dims& d = plan_.dims;
    const call::Sequence& s = *job.sequence;
    const Matrix<double> lost = flushed_of_lane(lane_values(inputs_, d, index_, s, job.head),
                                                lane_start(inputs_, d, index_, s, job.head));
    const std::int64_t replayed = s.replay.count;
    for (std::int64_t t = 0; t < s.token_count; ++t) {
      store("o", index_.o(s.first_token + t, job.head, 0), lost, replayed + t + 1);
    }
    for (std::int64_t t = replayed; s.replay.ring >= 0 && t < s.lane_tokens(); ++t) {
      store("ring_d", index_.d(s, t, job.head, 0), lost, t + 1);
    }
    for (const call::Snapshot& snapshot : s.snapshots) {
      const std::int64_t block = snapshot.block * d.HV + job.head;
      store(call::name_of(snapshot.target), static_cast<std::size_t>(block * d.V), lost,
            snapshot.after);
    }
  }

 private:
  void store(std::string_view name, std::size_t first, const Matrix<double>& lost, std::int64_t t) {
    const auto found = outputs_.find(std::string(name));
    if (found == outputs_.end()) return;
    store_flushed(lost, t, first, found->second.grant);
  }

  const call::Plan& plan_;
  const CallInputs inputs_;
  const OutputIndex index_;
  std::map<std::string, verdict::Expected>& outputs_;
};

}  // namespace

void store_flushed(const Matrix<double>& lost, std::int64_t t, std::size_t first,
                   verdict::Grant& to) {
  for (Eigen::Index x = 0; x < lost.cols(); ++x) {
    to.flushed[first + static_cast<std::size_t>(x)] = call::f32_not_below(lost(t, x));
  }
}

double flushed_beside_values(std::int64_t K) { return of_largest(1.0, K); }

Matrix<double> flushed_of_lane(const Matrix<double>& v, const Matrix<double>& start) {
  Matrix<double> lost(v.rows() + 1, v.cols());
  for (Eigen::Index x = 0; x < v.cols(); ++x) {
    double largest = 0.0;
    for (Eigen::Index i = 0; i < start.rows(); ++i) {
      largest = std::max(largest, finite_size(start(i, x)));
    }
    lost(0, x) = of_largest(largest, start.rows());
    for (Eigen::Index t = 0; t < v.rows(); ++t) {
      largest = std::max(largest, finite_size(v(t, x)));
      lost(t + 1, x) = of_largest(largest, start.rows());
    }
  }
  return lost;
}

void grant_flushing(const call::Record& record, const call::Plan& plan,
                    verdict::Expectations& expected) {
  for (auto& [name, e] : expected.outputs) {
    const bool has_values = name != "ring_k" && name != "ring_g";
    e.grant.flushed.assign(
        e.exact.touched.size() * e.exact.channels,
        has_values ? 0.0F : call::f32_not_below(flushed_beside_values(plan.dims.K)));
  }
  LaneFlushing flushing(record, plan, expected);
  const std::vector<LaneJob> jobs = lanes_of(plan, kAlsoEmpty);
  parallel::for_each_index(
      std::ssize(jobs), [&](std::int64_t i) { flushing.run(jobs[static_cast<std::size_t>(i)]); });
}

}  // namespace goldenrule::delta

// SPDX-License-Identifier: Apache-2.0
//
// Lanes of suite cases, as the forms take them: a (sequence, head) of a call, a few of its value
// columns, and the first tokens of a long sequence. Columns never mix and a prefix of a sequence is
// a sequence, so what is cut is cost and nothing else. The widest tier takes a second for a lane;
// of the cases of a suite a test takes a third, and all where GOLDENRULE_ALL_LANES is set, as in
// `ctest -L measurement`.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "fixtures/cases/suite.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/delta/rule/forms.hpp"
#include "reference/delta/rule/recurrent.hpp"

namespace goldenrule::delta::test {

/// At most this many value columns: one tile of the widest tier.
inline constexpr std::int64_t kColumns = kTileColumns<scalar::Multi>;

/// A cost that no lane exceeds.
inline constexpr std::int64_t kWhole = std::int64_t{1} << 60;

struct LaneJob {
  cases::Case origin;
  std::int64_t sequence = 0, head = 0;
};

/// The record of a job with its lane cut out.
struct LaneInputs {
  call::Record record;
  call::Dims dims;
  std::int64_t first = 0, count = 0, head = 0;
  Matrix<double> v, initial;

  template <class S>
  [[nodiscard]] Lane<S> prepare() const {
    return prepare_lane<S>(record, dims, CallInputs(record), first, count, head);
  }
};

/// Columns 0 .. V-1 spread over the whole width.
inline std::vector<std::int64_t> spread_columns(std::int64_t V) {
  std::set<std::int64_t> columns;
  for (std::int64_t i = 0; i < kColumns; ++i) columns.insert(i * (V - 1) / (kColumns - 1));
  return {columns.begin(), columns.end()};
}

/// Tokens of a lane of K channels whose closed form visits at most `cost` state elements.
inline std::int64_t affordable_tokens(std::int64_t tokens, std::int64_t K, std::int64_t cost) {
  while (tokens > 1 && tokens * K * (tokens + K) > cost) --tokens;
  return tokens;
}

/// Whether a case is of the third that is always taken: by its text, since suites are in order.
inline bool is_taken(const cases::Case& c) {
  constexpr std::uint64_t kShare = 3;
  static const bool all = std::getenv("GOLDENRULE_ALL_LANES") != nullptr;
  return all || random::Stream(1, cases::canonical(c)).bits(0) % kShare == 0;
}

/// One lane of every case that is taken, in turn the longest sequence with head 0 and the last
/// sequence with the last head: both ends of every index computation.
inline std::vector<LaneJob> lane_jobs(const std::string& suite) {
  std::vector<LaneJob> jobs;
  for (const cases::Case& c : cases::load_suite(suite).cases) {
    if (cases::token_count(c) == 0 || !is_taken(c)) continue;
    std::int64_t longest = 0, last = cases::row_count(c) - 1;
    if (c.mode == call::Mode::kPrefill) {
      std::vector<std::int64_t> lengths;
      for (const auto& run : c.lens) {
        lengths.insert(lengths.end(), static_cast<std::size_t>(run.count), run.length);
      }
      longest = std::max_element(lengths.begin(), lengths.end()) - lengths.begin();
      while (lengths[static_cast<std::size_t>(last)] == 0) --last;
    }
    const bool from_the_end = jobs.size() % 2 == 1;
    jobs.push_back({c, from_the_end ? last : longest, from_the_end ? c.HV - 1 : 0});
  }
  return jobs;
}

inline LaneInputs lane_inputs(const LaneJob& job, std::int64_t cost) {
  LaneInputs in;
  in.record = cases::make_record(job.origin);
  const call::Plan plan = call::make_plan(in.record, false);
  in.dims = plan.dims;
  const call::Sequence& s = plan.sequences[static_cast<std::size_t>(job.sequence)];
  in.first = s.first_token;
  in.count = affordable_tokens(s.token_count, in.dims.K, cost);
  in.head = job.head;
  const auto columns = spread_columns(in.dims.V);
  const auto width = std::ssize(columns);
  in.v.resize(in.count, width);
  in.initial = Matrix<double>::Zero(in.dims.K, width);
  const call::Tensor& v = in.record.inputs.at("v");
  const call::Tensor* state = in.record.find_input("initial_state");
  const bool vk = in.record.convention.state_layout == call::StateLayout::kVK;
  for (std::int64_t c = 0; c < width; ++c) {
    const std::int64_t column = columns[static_cast<std::size_t>(c)];
    for (std::int64_t t = 0; t < in.count; ++t) {
      in.v(t, c) = v[((in.first + t) * in.dims.HV + in.head) * in.dims.V + column];
    }
    if (state == nullptr || s.start_block < 0) continue;
    for (std::int64_t i = 0; i < in.dims.K; ++i) {
      const std::int64_t base = (s.start_block * in.dims.HV + in.head) * in.dims.state_size();
      in.initial(i, c) = (*state)[base + (vk ? column * in.dims.K + i : i * in.dims.V + column)];
    }
  }
  return in;
}

}  // namespace goldenrule::delta::test

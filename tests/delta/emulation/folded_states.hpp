// SPDX-License-Identifier: Apache-2.0
//
// The relation between the two ways to keep the states of an MTP call: a state that is folded
// from a ring is the one that would have been kept, as far as the budgets of both reach. For
// emulated kernels (test_rings.cpp) and for those of gpu/ (tests/gpu/replay_test.cpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "fixtures/call/plan.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::test {

/// The call with empty rings, and the same one without any.
struct RingPair {
  call::Record ringed, plain;
};
inline RingPair pair_of(const std::string& line) {
  RingPair pair{.ringed = cases::make_record(cases::parse(line)), .plain = {}};
  for (const char* name : {"ring_count", "ring_flush"}) {
    call::Tensor& t = pair.ringed.inputs.at(name);
    for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, 0.0);
  }
  pair.plain = pair.ringed;
  for (const char* name : {"initial_ring_d", "initial_ring_k", "initial_ring_g", "ring_indices",
                           "ring_start", "ring_count", "ring_flush"}) {
    pair.plain.inputs.erase(name);
  }
  return pair;
}

/// What is wrong with the fold of a ring whose entries are right within their budgets:
///
///   S = A_n S_0 + sum_j (A_n / A_j) k_j d_j^T,    |A_n / A_j - exact| <= A_n / A_j (e^E_j - 1),
///
/// with E_j the sum of the errors of the gates behind j, k and d by the product rule.
class FoldError {
 public:
  FoldError(const call::Record& record, const verdict::Expectations& e,
            const contract::Contract& contract)
      : record_(record),
        expected_(e),
        contract_(contract),
        d_(call::validate(record)),
        index_(record, d_) {}

  [[nodiscard]] double at(const call::Sequence& s, std::int64_t tokens, std::int64_t head,
                          std::int64_t i, std::int64_t v, double start) const {
    double error = 0.0;
    double log = 0.0;  // log A_n / A_j
    double of_log = 0.0;
    for (std::int64_t t = tokens - 1; t >= 0; --t) {
      const std::int64_t place = s.replay.place(t);
      const std::int64_t qk_head = d_.qk_head(record_.convention.head_map, head);
      const Entry k = entry("ring_k", index_.k(s.replay.ring, qk_head, place) + i);
      const Entry d = entry("ring_d", index_.d(s.replay.ring, head, place) + v);
      const Entry g =
          entry("ring_g", index_.g(s.replay.ring, head, place) + (index_.gates == 1 ? 0 : i));
      const double changed =
          std::fabs(k.value) * d.error + k.error * std::fabs(d.value) + k.error * d.error;
      error += std::exp(log + of_log) * changed +
               std::exp(log) * std::expm1(of_log) * std::fabs(k.value * d.value);
      log += g.value;
      of_log += g.error;
    }
    return error + std::exp(log) * std::expm1(of_log) * std::fabs(start);
  }

 private:
  struct Entry {
    double value, error;
  };
  [[nodiscard]] Entry entry(const std::string& name, std::int64_t at) const {
    const verdict::Expected& e = expected_.outputs.at(name);
    const auto i = static_cast<std::size_t>(at);
    const verdict::Budget budget(name, record_.inputs.at("initial_" + name).dtype(), e, contract_);
    return {e.exact.golden[i], budget(i) + static_cast<double>(e.exact.radius[i])};
  }

  const call::Record& record_;
  const verdict::Expectations& expected_;
  const contract::Contract& contract_;
  const call::Dims d_;
  const delta::RingIndex index_;
};

/// The next call: the rings that the first one left, of whose tokens `accepted` are pending in
/// every row, to be flushed.
inline call::Record next_call(const call::Record& first, const call::TensorMap& rings,
                              std::int64_t accepted) {
  call::Record next = first;
  next.outputs.clear();
  for (const char* name : {"ring_d", "ring_k", "ring_g"}) {
    next.inputs["initial_" + std::string(name)] = rings.at(name);
  }
  const call::Plan plan = call::make_plan(first, false);
  for (std::size_t b = 0; b < plan.sequences.size(); ++b) {
    const auto row = static_cast<std::int64_t>(b);
    const std::int64_t most = std::min(plan.sequences[b].token_count,
                                       plan.dims.ring_places - plan.sequences[b].token_count);
    next.inputs.at("ring_count").set(row, static_cast<double>(std::min(accepted, most)));
    next.inputs.at("ring_flush").set(row, 1.0);
  }
  return next;
}

/// A kernel: the outputs of a record. `run` says which of several runs it is.
using RunKernel = std::function<call::TensorMap(const call::Record&, std::uint64_t run)>;

struct FoldComparison {
  double largest = 0.0;  ///< error / what is allowed
  std::int64_t compared = 0;
};

/// Compares the states that a kernel folds of `accepted` tokens of each row with those that it
/// keeps without rings.
inline FoldComparison compare_folded(const RingPair& pair, const contract::Contract& contract,
                                     std::int64_t accepted, std::uint64_t run,
                                     const RunKernel& kernel) {
  const auto expected = [&](const call::Record& record) {
    return verdict::expect(delta::slice(), record, contract, scalar::Precision::kDouble);
  };
  const auto mtp = expected(pair.ringed);
  const auto kept = expected(pair.plain);
  const FoldError fold_error(pair.ringed, mtp, contract);
  const call::Dims d = call::validate(pair.ringed);
  const delta::OutputIndex index(pair.ringed, d);
  const call::TensorMap states = kernel(pair.plain, run);
  const call::Record next = next_call(pair.ringed, kernel(pair.ringed, run), accepted);
  const call::TensorMap folded = kernel(next, run + 10);
  const auto fold = expected(next);
  const call::Tensor& start_states = pair.ringed.inputs.at("initial_state");
  const auto budget = [&](const char* name, const verdict::Expectations& e) {
    return verdict::Budget(name, start_states.dtype(), e.outputs.at(name), contract);
  };
  const verdict::Budget of_fold = budget("final_state", fold);
  const verdict::Budget of_kept = budget("intermediate_states", kept);
  FoldComparison result;
  for (const call::Sequence& s : call::make_plan(next, false).sequences) {
    const std::int64_t n = s.replay.count;
    if (s.padded || n == 0) continue;
    for (std::int64_t head = 0; head < d.HV; ++head) {
      for (std::int64_t i = 0; i < d.K; ++i) {
        for (std::int64_t v = 0; v < d.V; ++v) {
          const std::size_t to = index(s.start_block, head, i, v);
          const std::size_t from = index(s.first_token + n - 1, head, i, v);
          const double start = start_states[static_cast<std::int64_t>(to)];
          const float radius = fold.outputs.at("final_state").exact.radius[to] +
                               kept.outputs.at("intermediate_states").exact.radius[from];
          const double allowed = of_fold(to) + of_kept(from) + static_cast<double>(radius) +
                                 fold_error.at(s, n, head, i, v, start);
          const double error =
              std::fabs(folded.at("final_state")[static_cast<std::int64_t>(to)] -
                        states.at("intermediate_states")[static_cast<std::int64_t>(from)]);
          const double ratio = error == 0.0 ? 0.0 : error / allowed;
          result.largest = !(ratio <= result.largest) ? ratio : result.largest;
          ++result.compared;
        }
      }
    }
  }
  return result;
}

}  // namespace goldenrule::test

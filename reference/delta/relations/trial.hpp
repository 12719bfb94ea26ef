// SPDX-License-Identifier: Apache-2.0
//
// One kernel, one call and what a relation claims of its outputs, for any family of operations.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "fixtures/call/take.hpp"
#include "reference/delta/relations/relation.hpp"
#include "reference/verdict/slice.hpp"

namespace goldenrule::relations {

/// A call that was made, with its outputs as they are stored.
struct Run {
  call::Record record;
  call::Plan plan;
  call::TensorMap outputs;
};

/// How far an honest kernel may store an element from the exact result.
struct Grant {
  double bound = -1.0;   ///< budget and radius; negative: the contract gives no budget
  double random2 = 0.0;  ///< square of its part that differs from call to call at random, and ...
  double sure = 0.0;     ///< ... its part that may be the same in every call
};
using Grants = std::map<std::string, std::vector<Grant>>;
inline constexpr double kNotGranted = -1.0;

/// Equal as numbers: the sign of a zero and the payload of a NaN do not count.
[[nodiscard]] inline bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

/// The sum of two bounds, kNotGranted if either is not granted.
[[nodiscard]] inline double sum_of(double a, double b) {
  return a < 0.0 || b < 0.0 ? kNotGranted : a + b;
}

/// Element `base` of an output of the original call is element `other` of the same output of
/// another call.
struct Pair {
  std::size_t base = 0, other = 0;
  std::int64_t after = 0;  ///< tokens of its sequence that it depends on
};
using Pairs = std::map<std::string, std::vector<Pair>>;

/// The family of operations of the kernel.
struct Subject {
  const verdict::Slice* slice;
  std::span<const std::string_view> outputs;  ///< those that every call must have
};

class Trial {
 public:
  /// Of the delta rule.
  Trial(const call::Record& record, const Kernel& kernel, const contract::Contract& contract,
        Options options);
  Trial(const Subject& subject, const call::Record& record, const Kernel& kernel,
        const contract::Contract& contract, Options options);

  /// Claims nothing any more; the original call is not made again.
  void begin(const Relation& relation);
  [[nodiscard]] Outcome judge() const;

  [[nodiscard]] const Run& base() const { return base_; }
  [[nodiscard]] const contract::Contract& contract() const { return *contract_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] const verdict::Slice& slice() const { return *subject_.slice; }
  [[nodiscard]] Run run(call::Record record) const { return run(std::move(record), *kernel_); }
  /// By another kernel.
  [[nodiscard]] Run run(call::Record record, const Kernel& kernel) const;
  /// Half an ulp of storage is taken where the run's own value lies if that is finite and larger
  /// than the exact one: a kernel that is wrong by a factor must not look as if it rounded
  /// coarsely.
  [[nodiscard]] Grants granted(const Run& run) const;
  [[nodiscard]] const Grants& base_granted();

  /// |actual - expected| <= bound for element `at` of output `tensor` of the original call.
  /// A bound of kNotGranted claims nothing, one of 0 demands the same bits.
  void claim(const std::string& tensor, std::size_t at, double expected, double actual,
             double bound);
  /// The pairs are equal, as the demand of the relation has it.
  void claim_pairs(const Run& other, const Pairs& pairs);

 private:
  struct Claims {
    std::vector<double> expected, actual, bound;
  };
  [[nodiscard]] std::optional<Finding> finding(const std::string& tensor,
                                               const Claims& claims) const;

  Subject subject_;
  const Kernel* kernel_;
  const contract::Contract* contract_;
  Options options_;
  Run base_;
  std::optional<Grants> base_granted_;
  const Relation* relation_ = nullptr;
  std::map<std::string, Claims> claims_;
};

/// An output of a run; the original has it. Throws Error(kSchema) where the run has not.
[[nodiscard]] const call::Tensor& output_of(const Run& run, const std::string& name);

/// Claims that the outputs add up of two calls: one with `tokens` ([.., HV, V]) of even tokens and
/// no `states`, one with those of odd tokens and `states`. Granted are the budgets of all three
/// calls.
void claim_halves(Trial& trial, const std::string& tokens, const std::string& states);

/// What becomes of a relation that applies.
[[nodiscard]] Outcome tried(const Relation& relation, Trial& trial);

/// What sequence `n` of `base` computes, paired with what sequence `m` of `other` does; value head
/// j of `base` is head heads[j] of `other`. The sequences have equally many tokens and snapshots.
void pair_sequences(const Run& base, std::int64_t n, const Run& other, std::int64_t m,
                    const std::vector<std::int64_t>& heads, Pairs& pairs);

}  // namespace goldenrule::relations

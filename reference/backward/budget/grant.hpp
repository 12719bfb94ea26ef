// SPDX-License-Identifier: Apache-2.0
//
// What a contract grants a gradient beyond the exact result, by emulation: each group of lanes is
// run R times as the contract declares its kernel, half of the runs with random roundings and half
// to nearest in other units of the value channels (why both: delta/budget/spread.hpp). What the
// runs leave in the tensors of the call, behind sums over heads, norm, gate and sigmoid, is their
// error e; of the two kinds the larger sigma counts.
//
// sigma of an element is its own mean square of the runs and what its neighbours say of it, half
// and half. Neighbours have errors of other sizes: rows (tokens, key channels) by how long q, do
// and the state are, channels by how large they are in all rows. So of a matrix e2 of mean squares,
// rows of 64 tokens of one lane by its channels, with a_t the sums of rows and c_x the shares of
// the channels,
//
//   sigma_tx^2 = e2_tx / 2 + a_t c_x / 2,     a_t = sum_x e2_tx,   c_x = sum_t e2_tx / sum e2.
//
// A channel that is 2^n times larger has 2^n times the budget, and the others keep theirs. A
// gradient with one number a token (dbeta, dg of one gate per head) has the tokens of its chunk for
// neighbours, in units of the size s that the sum has for terms of random signs
// (verdict::Exact::unit): sigma^2 = e2 / 2 + s^2 mean (e2 / s^2) / 2. A kernel takes dg_t as the
// sum of what the tokens from t to the end of the chunk leave, where what does not reach over t
// cancels but for its rounding: there s^2 is the sum of those of these tokens. So have dA_log and
// ddt_bias, whose neighbours are the other heads (and channels), s the root of the sum of the
// squares of what is added up. Their errors are those of whole runs: dg of the tokens of a chunk
// are sums over the same later tokens, so that adding up variances would be too small by up to
// sqrt(C).
//
// The number of sigmas follows from the runs as in delta/budget/spread.hpp. Errors of functions are
// put into every run in full, with a sign of its own for each function: as the multiple is above 8,
// they are covered.
//
// Where alpha itself is given, nothing is granted for its gradient: a contract does not say whether
// its kernel divides by alpha.
//
// Overflow and inputs that are no numbers. Where a run leaves no number an honest kernel may leave
// none either (verdict::Grant::overflows). Where none of the runs leaves one, nothing is known of
// what it may be (verdict::Grant::anything). Subnormal numbers: kernels flush what is below 2^-126
// on the way, each of the (K + V) C terms that a gradient is a sum of, in units of its factors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/record.hpp"
#include "reference/backward/emulation/kernel_group.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::backward {

/// Runs of both kinds together: as many as give kSamples numbers of a row, as long as they take
/// kUsualSeconds of one core, and never fewer than kFewestRuns.
inline constexpr int kFewestRuns = 4;
inline constexpr int kUsualRuns = 24;
inline constexpr int kMostRuns = 48;
inline constexpr double kUsualSeconds = 48.0;

/// How many runs a call has; those of one kind; the seed of the n-th of a kind.
[[nodiscard]] int runs_of(const call::Dims& dims, const contract::Contract& contract);
[[nodiscard]] int runs_of_kind(int runs, bool random);
[[nodiscard]] std::uint64_t seed_of_run(int run, bool random);
/// Fills in Grant::anything: where none of the runs has left a number.
void admit_anything(verdict::Expected& e);
/// The bound on what flushing costs an element of a group: no other's numbers reach it.
[[nodiscard]] double flushing_of(const Group& group, const contract::Contract& contract);
inline constexpr std::int64_t kPooledRow = 2;  ///< a row of several numbers (delta::multiple_for)

/// What reads the runs of a group: of each kind first what each of them left, then how many they
/// were.
struct RunReader {
  bool stages = false;  ///< whether the runs keep them
  std::function<void(const GroupOutputs& run)> take = nullptr;
  std::function<void(int runs)> end = nullptr;
};
/// Runs a group `runs` times, half of them of each kind.
void run_kinds(const call::Record& record, const Group& group, const contract::Contract& contract,
               int runs, const RunReader& reader);

/// The core-seconds that the runs of a call take.
[[nodiscard]] double grant_seconds(const call::Record& record, const contract::Contract& contract);

/// Fills in what `contract` grants the outputs in `expected`, the evaluation of this record. An
/// ideal contract grants nothing beside half an ulp of storage.
void grant(const call::Record& record, const contract::Contract& contract,
           verdict::GrantDetail detail, verdict::Expectations& expected);

/// The same, group by group, for those who read its runs as well.
class GroupGrant {
 public:
  /// Refers to all of these. Of a contract of the backward pass.
  GroupGrant(const call::Record& record, const call::Dims& dims, const contract::Contract& contract,
             verdict::Expectations& expected);
  ~GroupGrant();
  GroupGrant(const GroupGrant&) = delete;
  GroupGrant& operator=(const GroupGrant&) = delete;

  /// Each group once, side by side. The runs go to `reader` too.
  void run(const Group& group, const RunReader& reader);
  /// Behind the last group.
  void finish();

 private:
  class Granting;
  int runs_;
  std::unique_ptr<Granting> granting_;

  friend void grant(const call::Record& record, const contract::Contract& contract,
                    verdict::GrantDetail detail, verdict::Expectations& expected);
  friend void confirm_groups(const call::Record& record, const contract::Contract& contract,
                             const call::TensorMap& outputs, verdict::Expectations& expected);
};

/// Slice::confirm. Gradients by parameters are sums over all groups, and keep what they have.
void confirm(const call::Record& record, const contract::Contract& contract,
             const call::TensorMap& outputs, verdict::Expectations& expected);
/// The same, however many runs there were. It takes kUsualSeconds of one core and as long as the
/// fewest runs of the whole call.
void confirm_groups(const call::Record& record, const contract::Contract& contract,
                    const call::TensorMap& outputs, verdict::Expectations& expected);

}  // namespace goldenrule::backward

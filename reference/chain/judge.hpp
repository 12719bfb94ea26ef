// SPDX-License-Identifier: Apache-2.0
//
// The judge of chains: hands calls over one by one and is told at each where a request leaves its
// own trajectory. What is judged (call.hpp says what a chain is):
//
//   call        each call by itself, as `check` does (left out by Options::only_chain)
//   continuity  a request starts a call from what its last call left, after an MTP call from the
//   state
//               after the tokens that were kept: bit for bit, or rounded once more where the pool
//               is narrower than what it was left in
//   ledger      every stored state (start, final, after a token, checkpoint) is the rule applied to
//               the request's own tokens since its start, within a budget that adds up (ledger.hpp)
//   frame       a slot that a call does not name keeps its bits in it. Between calls a server
//               may do what it likes with slots; what it did shows when a request goes on from one.
//   freshness   a new request starts from zero
//   parameters  one server has one rule (layer_rule.hpp); A_log and dt_bias are not rounded in some
//               calls and kept in others
//   outputs     o of a call without states, which cannot be judged by itself, is what the ledgers
//               of its requests make of its tokens (step.hpp). A request whose o is wrong is said
//               once, until a state of it is stored again.
//   range       o is finite where the exact o is: an infinity that its type makes of a right result
//               is said of the request, once (MISTRUSTED; the call by itself is refused)
//
// After a finding the request goes on from the state that is stored, so that each departure is said
// once. What is not stored is not judged, and Summary says how much that was. Memory depends on the
// number of live requests and on the pool, not on the number of calls: ledgers and checkpoints
// beyond Options::most_bytes are forgotten, the longest unused first, and counted.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reference/chain/call.hpp"
#include "reference/chain/finding.hpp"
#include "reference/verdict/slice.hpp"

namespace goldenrule::chain {

struct Options {
  std::optional<contract::Contract> contract{};       ///< absent: what each call implies
  bool only_chain = false;                            ///< calls are not judged by themselves
  bool strict = false;                                ///< what is taken for right is no pass
  std::uint64_t most_bytes = std::uint64_t{1} << 30;  ///< of ledgers of requests that rest
  /// That the ledgers of one call may take: a call that needs more is a finding of Check::kInput.
  double call_bytes = HUGE_VAL;
};

struct Summary {
  verdict::Verdict verdict = verdict::Verdict::kSkipped;
  std::string reason;  ///< for verdicts that are no pass and not out of budget
  std::int64_t calls = 0, requests = 0, tokens = 0;
  std::int64_t states = 0;          ///< that the rows of the calls start from and leave
  std::int64_t judged = 0;          ///< of these: stored, and the request's history is known
  std::int64_t vacuous = 0;         ///< judged states whose ledger budget is as large as the state
  std::int64_t blind_starts = 0;    ///< of these: starts that nothing but that ledger says
  std::int64_t outputs = 0;         ///< o of rows in calls without states
  std::int64_t outputs_judged = 0;  ///< of these: the request's history is known
  std::int64_t outputs_blind = 0;   ///< calls in which that says nothing of some channel
  std::int64_t slots_compared = 0;  ///< slots that calls did not name
  std::int64_t rows = 0;            ///< of caches that attention reads and the call does not bring
  std::int64_t rows_judged = 0;     ///< of these: an earlier call of the dump says what they are
  std::int64_t acceptances = 0;     ///< rows of draft acceptances
  std::int64_t acceptances_followed = 0;  ///< of these: what the server then did is known
  std::int64_t taken = 0;     ///< start states taken for right: of a request that began before
                              ///< the chain, or is restored from one that it does not know
  std::int64_t restarts = 0;  ///< requests at position 0 again, taken to be preempted
  std::int64_t parameter_changes = 0;  ///< of the layer, taken for other weights
  std::int64_t forgotten = 0;          ///< ledgers that were given up for their memory
  std::int64_t mistrusted = 0;         ///< calls that are MISTRUSTED by themselves
  std::int64_t findings = 0;
  std::optional<Finding> first;  ///< the first that is out of budget, else the first
};

/// Throws Error(kArgument) for a contract that the calls of a chain which have states cannot
/// declare: those of the delta rule. Its other calls are judged by their own.
void require_contract(const contract::Contract& contract);

using SliceOf = const verdict::Slice& (*)(call::Op);

class Judge {
 public:
  /// slice_of: what serves an operation (suites::slice_of; of a chain of one family, its own).
  explicit Judge(SliceOf slice_of, Options options = {});
  Judge(Judge&&) noexcept;
  Judge& operator=(Judge&&) noexcept;
  ~Judge();

  /// What is wrong with this call and with its place in the chain. Never throws for what a call
  /// says: what makes no sense is a finding of Check::kInput.
  [[nodiscard]] std::vector<Finding> add(const Call& call);
  /// A call that cannot be had, because its file cannot be read for instance.
  [[nodiscard]] std::vector<Finding> lost(const std::string& reason);
  [[nodiscard]] Summary finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace goldenrule::chain

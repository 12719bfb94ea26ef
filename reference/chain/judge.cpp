// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/judge.hpp"

#include <algorithm>
#include <new>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/text.hpp"
#include "fixtures/call/widening.hpp"
#include "reference/chain/acceptances.hpp"
#include "reference/chain/admission.hpp"
#include "reference/chain/caches.hpp"
#include "reference/chain/walk.hpp"
#include "reference/contract/family.hpp"

namespace goldenrule::chain {
namespace {

using verdict::Verdict;

// What of a chain has nothing that was judged; empty: everything that it has.
std::string unjudged(const Summary& s) {
  if (s.rows > 0 && s.rows_judged == 0) {
    return "no row of a cache is one that an earlier call of the dump has shown";
  }
  if (s.acceptances > 0 && s.acceptances_followed == 0) {
    return "of no draft acceptance is known what the server then did";
  }
  if (s.judged > 0 || (s.states == 0 && s.rows + s.acceptances > 0)) return {};
  return "no state of a request whose history is known is stored";
}

}  // namespace

struct Judge::State {
  explicit State(SliceOf of) : slice_of(of) {}

  SliceOf slice_of;
  Memory memory;
  Acceptances acceptances{memory};
  Caches caches{memory, acceptances};
  std::string chain{};
  std::optional<std::int64_t> last{};  ///< index of the call before
  std::vector<Verdict> verdicts{};
  std::string mistrusted{};  ///< of the first call that is MISTRUSTED by itself: why

  std::vector<Finding> say(std::vector<Finding> findings) {
    Summary& summary = memory.summary;
    for (const Finding& f : findings) {
      ++summary.findings;
      verdicts.push_back(f.verdict);
      const bool first = !summary.first || (summary.first->verdict != Verdict::kOutOfBudget &&
                                            f.verdict == Verdict::kOutOfBudget);
      if (first) summary.first = f;
    }
    return findings;
  }

  // Whether the call has its place in this chain.
  bool follows(const Call& call, std::vector<Finding>& findings) {
    if (!last) {
      chain = call.chain;
    } else if (call.chain != chain) {
      findings.push_back(input_finding(
          call.index, "expected a call of chain '" + chain + "', actual '" + call.chain + "'"));
      return false;
    } else if (call.index <= *last) {
      findings.push_back(input_finding(call.index, "out of order: expected call " +
                                                       std::to_string(*last + 1) + ", actual " +
                                                       std::to_string(call.index)));
      return false;
    } else if (call.index != *last + 1) {
      findings.push_back(input_finding(call.index, "a gap: expected call " +
                                                       std::to_string(*last + 1) + ", actual " +
                                                       std::to_string(call.index)));
      memory.gap = call.index;
    }
    last = call.index;
    return true;
  }

  // A call is missing: what it did to caches and counts nobody knows.
  void lose() {
    acceptances.forget_all();
    caches.forget_all();
  }

  // The call by itself. A call of which nothing is stored is not judged.
  void judge_alone(const Call& call, const call::Record& record, std::vector<Finding>& findings) {
    if (memory.options.only_chain || !has_states(record) || record.outputs.empty()) return;
    verdict::Question question;
    if (call::operation(record.op).has_states) question.contract = memory.options.contract;
    const verdict::CaseReport report = verdict::judge_record(slice_of(record.op), record, question);
    if (report.verdict != Verdict::kSkipped) verdicts.push_back(report.verdict);
    if (report.verdict == Verdict::kMistrusted && memory.summary.mistrusted++ == 0) {
      const auto tensor =
          std::ranges::find(report.tensors, Verdict::kMistrusted, &verdict::TensorReport::verdict);
      mistrusted = "call " + std::to_string(call.index);
      if (tensor != report.tensors.end()) mistrusted += ", " + tensor->name + ": " + tensor->reason;
    }
    for (const verdict::TensorReport& tensor : report.tensors) {
      if (tensor.verdict != Verdict::kOutOfBudget && tensor.verdict != Verdict::kError) continue;
      Finding finding = input_finding(call.index, "");
      finding.check = Check::kCall;
      finding.verdict = tensor.verdict;
      const auto coordinates = [&] {
        return tensor.worst ? verdict::to_string(tensor.worst->coordinates) : tensor.reason;
      };
      finding.text = tensor.name +
                     " by itself: " + call::numbered(tensor.out_of_budget, "element") +
                     std::string(call::agreeing(tensor.out_of_budget, " is", " are")) +
                     " out of budget, worst at " + coordinates();
      findings.push_back(std::move(finding));
    }
  }

  // Requests that begin again, or from another state, are not what their last draft acceptance and
  // their caches say.
  void turn(const call::Record& record, const call::Dims& dims) {
    for (const call::ChainRow& row : call::chain_rows(record, dims)) {
      if (row.request == call::kNoRequest) continue;
      if (row.position != 0 && !row.restored_from) continue;
      acceptances.forget(row.request);
      if (!call::operation(record.op).has_states) continue;
      const auto known = memory.requests.find(row.request);
      if (known == memory.requests.end()) continue;
      const bool own = row.restored_from == row.request;
      caches.turn(row.request, known->second.call, own ? row.position.value_or(0) : 0);
    }
  }

  bool walk_states(const Call& call, const call::Record& record, const call::Dims& dims,
                   std::vector<Finding>& findings) {
    const verdict::Slice& slice = slice_of(record.op);
    if (!admit(call, record, dims, memory, findings)) return false;
    judge_alone(call, record, findings);
    const contract::Contract& contract =
        memory.options.contract ? *memory.options.contract : slice.default_contract(record);
    const contract::Contract& kept =
        memory.contracts.insert_or_assign(contract.name, contract).first->second;
    turn(record, dims);
    acceptances.follow(call, record, dims, findings);
    std::vector<Finding> more = CallWalk(slice, memory, call, record, dims, kept).run();
    std::ranges::move(more, std::back_inserter(findings));
    return true;
  }

  // Whether the tokens of the call have come to their requests. Throws Error for a call that makes
  // no sense.
  bool walk(const Call& call, std::vector<Finding>& findings) {
    call::Record record = call.record;
    call::undo_widening(record);
    const call::Dims dims = call::validate(record);
    if (record.find_input("request_ids") == nullptr) {
      findings.push_back(
          input_finding(call.index, "/inputs/request_ids: expected the request of each row"));
      judge_alone(call, record, findings);
      return false;
    }
    if (call::operation(record.op).has_states) return walk_states(call, record, dims, findings);
    if (call::operation(record.op).has_cache) {
      const bool admitted = caches.admit(call, record, dims, findings);
      judge_alone(call, record, findings);
      if (!admitted) return true;  // of another layer: nothing of this one is missing
      turn(record, dims);
      caches.add(call, record, findings);
      return true;
    }
    judge_alone(call, record, findings);
    turn(record, dims);
    acceptances.add(slice_of(memory.kind.op), call, record, findings);
    caches.agree(call, findings);
    return true;
  }
};

void require_contract(const contract::Contract& contract) {
  contract::require_family(contract, call::Family::kDelta);
}

Judge::Judge(SliceOf slice_of, Options options) : state_(std::make_unique<State>(slice_of)) {
  state_->memory.options = std::move(options);
}
Judge::Judge(Judge&&) noexcept = default;
Judge& Judge::operator=(Judge&&) noexcept = default;
Judge::~Judge() = default;

std::vector<Finding> Judge::add(const Call& call) {
  ++state_->memory.summary.calls;
  std::vector<Finding> findings;
  const std::optional<std::int64_t> gap = state_->memory.gap;
  bool walked = false;
  try {
    const bool follows = state_->follows(call, findings);
    if (state_->memory.gap != gap) state_->lose();
    walked = follows && state_->walk(call, findings);
  } catch (const Error& error) {
    findings.push_back(input_finding(call.index, error.what()));
  } catch (const std::bad_alloc&) {
    findings.push_back(input_finding(call.index, "expected memory for this call"));
  }
  if (!walked) {
    state_->memory.gap = state_->last.value_or(call.index) + 1;
    state_->lose();
  }
  return state_->say(std::move(findings));
}

std::vector<Finding> Judge::lost(const std::string& reason) {
  ++state_->memory.summary.calls;
  state_->lose();
  return state_->say({input_finding(state_->last.value_or(-1) + 1, reason)});
}

Summary Judge::finish() const {
  Summary summary = state_->memory.summary;
  std::vector<Verdict> verdicts = state_->verdicts;
  summary.reason = unjudged(summary);
  verdicts.push_back(summary.reason.empty() ? Verdict::kWithinBudget : Verdict::kSkipped);
  if (summary.blind_starts > 0 || summary.outputs_blind > 0) {
    verdicts.push_back(Verdict::kMistrusted);
    summary.reason = call::numbered(summary.blind_starts, "start state") + " and o of " +
                     call::numbered(summary.outputs_blind, "call") +
                     " are judged by their ledgers alone, with a budget as large as "
                     "themselves";
  } else if (state_->memory.options.only_chain && summary.vacuous > 0) {
    verdicts.push_back(Verdict::kMistrusted);
    summary.reason = call::numbered(summary.vacuous, "state") +
                     " with a budget as large as the state, and no call was judged alone";
  }
  const std::int64_t taken = summary.taken + summary.restarts + summary.parameter_changes;
  if (state_->memory.options.strict && taken > 0) {
    verdicts.push_back(Verdict::kMistrusted);
    if (summary.reason.empty()) {
      summary.reason = "taken for right, which strict judgement is not: " +
                       call::numbered(summary.taken, "start state") + ", " +
                       call::numbered(summary.restarts, "request") + " at position 0 again, " +
                       call::numbered(summary.parameter_changes, "change") + " of parameters";
    }
  }
  if (summary.mistrusted > 0 && summary.reason.empty()) {
    summary.reason = "by themselves " + call::numbered(summary.mistrusted, "call") +
                     std::string(call::agreeing(summary.mistrusted, " is", " are")) +
                     " MISTRUSTED, first " + state_->mistrusted;
  }
  summary.verdict = verdict::combine(verdicts);
  if (summary.first && summary.reason.empty()) summary.reason = summary.first->text;
  return summary;
}

}  // namespace goldenrule::chain

// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/judge.hpp"

#include <algorithm>
#include <new>
#include <set>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/widening.hpp"
#include "reference/chain/walk.hpp"

namespace goldenrule::chain {
namespace {

using verdict::Verdict;

}  // namespace

struct Judge::State {
  const verdict::Slice& slice;
  Memory memory{};
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

  static Finding input(std::int64_t index, std::string text) {
    Finding finding;
    finding.verdict = Verdict::kError;
    finding.call = index;
    finding.text = std::move(text);
    return finding;
  }

  // Whether the call has its place in this chain.
  bool follows(const Call& call, std::vector<Finding>& findings) {
    if (!last) {
      chain = call.chain;
    } else if (call.chain != chain) {
      findings.push_back(input(
          call.index, "expected a call of chain '" + chain + "', actual '" + call.chain + "'"));
      return false;
    } else if (call.index <= *last) {
      findings.push_back(input(call.index, "out of order: expected call " +
                                               std::to_string(*last + 1) + ", actual " +
                                               std::to_string(call.index)));
      return false;
    } else if (call.index != *last + 1) {
      findings.push_back(input(call.index, "a gap: expected call " + std::to_string(*last + 1) +
                                               ", actual " + std::to_string(call.index)));
      memory.gap = call.index;
    }
    last = call.index;
    return true;
  }

  // A pool has one type, and a call that stores none of it says which, as a recorder has it that
  // may widen (widening.hpp). What the pool itself is counts where such a call came first. Returns
  // what forbids the call to go on.
  std::string other_pool(const Call& call, const call::Record& record,
                         std::vector<Finding>& findings) {
    const call::Tensor* pool = record.find_input("initial_state");
    if (pool == nullptr) return {};
    const PoolType now{.declared = call.record.inputs.at("initial_state").dtype(),
                       .call = call.index,
                       .held = has_states(record)};
    const std::optional<PoolType> before = memory.pool_type;
    const call::DType expected = memory.layout->pool;
    if (!before || (now.held && !before->held)) {
      memory.pool_type = now;
      memory.layout->pool = pool->dtype();
    }
    if (!before || pool->dtype() == expected) return {};
    const bool both = before->held && now.held;
    if (!both && before->declared == now.declared) return {};
    std::string differs =
        "/inputs/initial_state: expected " + std::string(call::info(expected).name) +
        ", the type of the pool" + (before->held ? "" : " of no slots") + " in call " +
        std::to_string(before->call) + ", actual " + std::string(call::info(pool->dtype()).name);
    if (before->held || !now.held) return differs;
    findings.push_back(input(call.index, std::move(differs)));
    return {};
  }

  bool is_same_kind(const Call& call, const call::Record& record, const call::Dims& dims,
                    std::vector<Finding>& findings) {
    if (!memory.layout) {
      memory.kind.op = record.op;
      memory.kind.convention = record.convention;
      memory.dims = dims;
      memory.layout.emplace(record, dims);
    }
    std::string differs;
    const auto compare = [&](const char* what, std::int64_t expected, std::int64_t actual) {
      if (expected == actual || !differs.empty()) return;
      differs = std::string(what) + ": expected " + std::to_string(expected) + ", actual " +
                std::to_string(actual);
    };
    compare("HV", memory.dims.HV, dims.HV);
    compare("H", memory.dims.H, dims.H);
    compare("K", memory.dims.K, dims.K);
    compare("V", memory.dims.V, dims.V);
    if (record.op != memory.kind.op) differs = "op: another than that of the first call";
    if (record.convention.state_layout != memory.kind.convention.state_layout) {
      differs = "state_layout: another than that of the first call";
    }
    if (differs.empty()) differs = other_pool(call, record, findings);
    if (differs.empty()) return true;
    findings.push_back(input(call.index, differs + "; the call is left out of the chain"));
    return false;
  }

  // Two requests in one slot, each with its row; the plan would only name the slot.
  static void shared_slots(const Call& call, const call::Record& record, const call::Dims& dims,
                           std::vector<Finding>& findings) {
    const call::Tensor* slots = record.find_input("state_indices");
    if (slots == nullptr) return;
    const std::vector<call::ChainRow> rows = call::chain_rows(record, dims);
    std::map<std::int64_t, std::size_t> users;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto slot = static_cast<std::int64_t>((*slots)[static_cast<std::int64_t>(i)]);
      if (slot == record.convention.pad_slot || rows[i].request == call::kNoRequest) continue;
      const auto [user, is_new] = users.emplace(slot, i);
      if (is_new) continue;
      Finding finding =
          input(call.index, "requests " + std::to_string(rows[user->second].request) + " and " +
                                std::to_string(rows[i].request) + " share the slot");
      finding.request = rows[i].request;
      finding.slot = slot;
      finding.row = static_cast<std::int64_t>(i);
      findings.push_back(std::move(finding));
    }
  }

  // The call by itself. A call of which nothing is stored is not judged.
  void judge_alone(const Call& call, const call::Record& record, std::vector<Finding>& findings) {
    if (memory.options.only_chain || !has_states(record) || record.outputs.empty()) return;
    const verdict::CaseReport report =
        verdict::judge_record(slice, record, {.contract = memory.options.contract});
    if (report.verdict != Verdict::kSkipped) verdicts.push_back(report.verdict);
    if (report.verdict == Verdict::kMistrusted && memory.summary.mistrusted++ == 0) {
      const auto tensor =
          std::ranges::find(report.tensors, Verdict::kMistrusted, &verdict::TensorReport::verdict);
      mistrusted = "call " + std::to_string(call.index);
      if (tensor != report.tensors.end()) mistrusted += ", " + tensor->name + ": " + tensor->reason;
    }
    for (const verdict::TensorReport& tensor : report.tensors) {
      if (tensor.verdict != Verdict::kOutOfBudget && tensor.verdict != Verdict::kError) continue;
      Finding finding = input(call.index, "");
      finding.check = Check::kCall;
      finding.verdict = tensor.verdict;
      const auto coordinates = [&] {
        return tensor.worst ? verdict::to_string(tensor.worst->coordinates) : tensor.reason;
      };
      finding.text = tensor.name + " by itself: " + std::to_string(tensor.out_of_budget) +
                     " elements are out of budget, worst at " + coordinates();
      findings.push_back(std::move(finding));
    }
  }

  // Whether the tokens of the call have come to their requests. Throws Error for a call that makes
  // no sense.
  bool walk(const Call& call, std::vector<Finding>& findings) {
    call::Record record = call.record;
    call::undo_widening(record);
    const call::Dims dims = call::validate(record);
    if (record.find_input("request_ids") == nullptr) {
      findings.push_back(
          input(call.index, "/inputs/request_ids: expected the request of each row"));
      judge_alone(call, record, findings);
      return false;
    }
    if (!call::has_pool(record)) {
      findings.push_back(input(call.index,
                               "/inputs/state_indices: expected the slot of each "
                               "sequence; a chain goes on in a pool"));
      return false;
    }
    if (!is_same_kind(call, record, dims, findings)) return false;
    memory.refuse_beyond(record, dims);
    shared_slots(call, record, dims, findings);
    judge_alone(call, record, findings);
    const contract::Contract& contract =
        memory.options.contract ? *memory.options.contract : slice.default_contract(record);
    const contract::Contract& kept =
        memory.contracts.insert_or_assign(contract.name, contract).first->second;
    std::vector<Finding> more = CallWalk(slice, memory, call, record, dims, kept).run();
    std::ranges::move(more, std::back_inserter(findings));
    return true;
  }
};

Judge::Judge(const verdict::Slice& slice, Options options)
    : state_(std::make_unique<State>(State{.slice = slice})) {
  state_->memory.options = std::move(options);
}
Judge::Judge(Judge&&) noexcept = default;
Judge& Judge::operator=(Judge&&) noexcept = default;
Judge::~Judge() = default;

std::vector<Finding> Judge::add(const Call& call) {
  ++state_->memory.summary.calls;
  std::vector<Finding> findings;
  bool walked = false;
  try {
    walked = state_->follows(call, findings) && state_->walk(call, findings);
  } catch (const Error& error) {
    findings.push_back(State::input(call.index, error.what()));
  } catch (const std::bad_alloc&) {
    findings.push_back(State::input(call.index, "expected memory for this call"));
  }
  if (!walked) state_->memory.gap = state_->last.value_or(call.index) + 1;
  return state_->say(std::move(findings));
}

std::vector<Finding> Judge::lost(const std::string& reason) {
  ++state_->memory.summary.calls;
  return state_->say({State::input(state_->last.value_or(-1) + 1, reason)});
}

Summary Judge::finish() const {
  Summary summary = state_->memory.summary;
  std::vector<Verdict> verdicts = state_->verdicts;
  if (summary.judged == 0) {
    verdicts.push_back(Verdict::kSkipped);
    summary.reason = "no state of a request whose history is known is stored";
  } else {
    verdicts.push_back(Verdict::kWithinBudget);
  }
  if (summary.blind_starts > 0 || summary.outputs_blind > 0) {
    verdicts.push_back(Verdict::kMistrusted);
    summary.reason = std::to_string(summary.blind_starts) + " start states and o of " +
                     std::to_string(summary.outputs_blind) +
                     " calls are judged by their ledgers alone, with a budget as large as "
                     "themselves";
  } else if (state_->memory.options.only_chain && summary.vacuous > 0) {
    verdicts.push_back(Verdict::kMistrusted);
    summary.reason = std::to_string(summary.vacuous) +
                     " states have a budget as large as themselves, and no call was judged alone";
  }
  const std::int64_t taken = summary.taken + summary.restarts + summary.parameter_changes;
  if (state_->memory.options.strict && taken > 0) {
    verdicts.push_back(Verdict::kMistrusted);
    if (summary.reason.empty()) {
      summary.reason =
          "taken for right, which strict judgement is not: " + std::to_string(summary.taken) +
          " start states, " + std::to_string(summary.restarts) + " requests at position 0 again, " +
          std::to_string(summary.parameter_changes) + " changes of parameters";
    }
  }
  if (summary.mistrusted > 0 && summary.reason.empty()) {
    summary.reason = "by themselves " + std::to_string(summary.mistrusted) +
                     " calls are MISTRUSTED, first " + state_->mistrusted;
  }
  summary.verdict = verdict::combine(verdicts);
  if (summary.first && summary.reason.empty()) summary.reason = summary.first->text;
  return summary;
}

}  // namespace goldenrule::chain

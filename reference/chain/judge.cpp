// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/judge.hpp"

#include <algorithm>
#include <set>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/widening.hpp"
#include "reference/chain/walk.hpp"

namespace goldenrule::chain {
namespace {

using verdict::Verdict;

// With its share of the tokens of its last call, which all rows of that call hold together.
std::uint64_t bytes_of(const Layout& layout, const Request& request) {
  constexpr std::uint64_t kSmall = 1024;  // what is not a state
  const auto ledgers = static_cast<std::uint64_t>(request.before != nullptr) +
                       static_cast<std::uint64_t>(request.now != nullptr);
  const std::uint64_t each = (1 + static_cast<std::uint64_t>(layout.runs)) * layout.size();
  std::uint64_t tokens = 0;
  if (request.tokens != nullptr && request.counts != nullptr && !request.counts->empty()) {
    for (const auto& [name, tensor] : request.tokens->inputs) tokens += tensor.bytes().size();
    tokens /= request.counts->size();
  }
  return kSmall + request.been.size() * sizeof(request.been.front()) + tokens +
         (ledgers * each + request.left.size() * layout.size()) * sizeof(double);
}

}  // namespace

void Memory::keep(std::int64_t id, Request request) {
  request.bytes = bytes_of(*layout, request);
  bytes += request.bytes;
  const auto old = requests.find(id);
  if (old != requests.end()) bytes -= old->second.bytes;
  requests.insert_or_assign(id, std::move(request));
}

// Where there is too much, an eighth more than that is given up, so that a call in which nothing is
// costs nothing, whatever rests.
void Memory::trim(std::int64_t index) {
  const std::uint64_t anchor = (2 + static_cast<std::uint64_t>(layout->runs)) * layout->size() * 8;
  while (bytes + anchors.size() * anchor > options.most_bytes && !anchors.empty()) {
    const auto [id, position] = anchors.front();
    anchors.pop_front();
    const auto found = requests.find(id);
    if (found != requests.end()) found->second.anchors.erase(position);
    ++summary.forgotten;
  }
  if (bytes <= options.most_bytes) return;
  std::vector<std::pair<std::int64_t, std::int64_t>> oldest;  // call, request
  for (const auto& [id, request] : requests) {
    if (request.call != index) oldest.emplace_back(request.call, id);
  }
  std::ranges::sort(oldest);
  for (const auto& [call, id] : oldest) {
    if (bytes <= options.most_bytes - options.most_bytes / 8) return;
    const auto found = requests.find(id);
    bytes -= found->second.bytes;
    requests.erase(found);
    ++summary.forgotten;
  }
}

struct Judge::State {
  const verdict::Slice& slice;
  Memory memory{};
  std::string chain{};
  std::optional<std::int64_t> last{};  ///< index of the call before
  std::vector<Verdict> verdicts{};

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
    }
    last = call.index;
    return true;
  }

  bool is_same_kind(const Call& call, const call::Record& record, const call::Dims& dims,
                    std::vector<Finding>& findings) {
    if (!memory.layout) {
      memory.kind.op = record.op;
      memory.kind.convention = record.convention;
      memory.dims = dims;
      memory.layout.emplace(record, dims);
      return true;
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

  // Throws Error for a call that makes no sense.
  void walk(const Call& call, std::vector<Finding>& findings) {
    call::Record record = call.record;
    call::undo_widening(record);
    const call::Dims dims = call::validate(record);
    if (record.find_input("request_ids") == nullptr) {
      findings.push_back(
          input(call.index, "/inputs/request_ids: expected the request of each row"));
      judge_alone(call, record, findings);
      return;
    }
    if (!call::has_pool(record)) {
      findings.push_back(input(call.index,
                               "/inputs/state_indices: expected the slot of each "
                               "sequence; a chain goes on in a pool"));
      return;
    }
    if (!is_same_kind(call, record, dims, findings)) return;
    shared_slots(call, record, dims, findings);
    judge_alone(call, record, findings);
    const contract::Contract& contract =
        memory.options.contract ? *memory.options.contract : slice.default_contract(record);
    const contract::Contract& kept =
        memory.contracts.insert_or_assign(contract.name, contract).first->second;
    std::vector<Finding> more = CallWalk(slice, memory, call, record, dims, kept).run();
    std::ranges::move(more, std::back_inserter(findings));
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
  try {
    if (state_->follows(call, findings)) state_->walk(call, findings);
  } catch (const Error& error) {
    findings.push_back(State::input(call.index, error.what()));
  }
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
  if (state_->memory.options.only_chain && summary.vacuous > 0) {
    verdicts.push_back(Verdict::kMistrusted);
    summary.reason = std::to_string(summary.vacuous) +
                     " states have a budget as large as themselves, and no call was judged alone";
  }
  summary.verdict = verdict::combine(verdicts);
  if (summary.first && summary.reason.empty()) summary.reason = summary.first->text;
  return summary;
}

}  // namespace goldenrule::chain

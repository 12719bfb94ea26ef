// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/capture_mistakes.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/slice.hpp"
#include "reference/explain/failures.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::delta {
namespace {

using call::Gate;
using call::Record;
using calls::CaptureMistake;
using explain::Failures;
using Slots = std::vector<std::int64_t>;

// The failures of the captured outputs in the call `changed`.
std::vector<Failures> failures_of(const Record& changed, const contract::Contract& contract) {
  return explain::find_failures(
      changed, contract, verdict::expect(slice(), changed, contract, scalar::Precision::kDouble));
}

// Whether the captured outputs are right in the call `changed`; it need not be one.
bool is_right(const Record& changed, const contract::Contract& contract) {
  try {
    const std::vector<Failures> all = failures_of(changed, contract);
    return std::ranges::all_of(all, [](const Failures& f) { return f.count == 0; });
  } catch (const Error&) {
    return false;
  }
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  }
  return text;
}

std::string joined(const Slots& slots) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < slots.size() && i < kShown; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(slots[i]);
  }
  return slots.size() > kShown ? text + ", .." : text;
}

// Whether the initial states are those after the call.
class AfterCall {
 public:
  AfterCall(const Record& record, const contract::Contract& contract,
            const verdict::Expectations& evaluation, const std::vector<Failures>& failures)
      : record_(record), plan_(call::make_plan(record, true)) {
    const auto o = record.outputs.find("o");
    if (o == record.outputs.end() || record.find_input("initial_state") == nullptr) return;
    const auto failing = std::ranges::find(failures, "o", &Failures::name);
    if (failing == failures.end()) return;
    const verdict::Budget budget("o", o->second.dtype(), evaluation.outputs.at("o"), contract);
    found_ = reads_initial_state(o->second, *failing, budget) && keeps_initial_state();
  }

  [[nodiscard]] bool found() const { return found_; }

 private:
  // o of the token before each final state, from the captured initial state; some of them fail.
  [[nodiscard]] bool reads_initial_state(const call::Tensor& o, const Failures& failing,
                                         const verdict::Budget& budget) const {
    const call::Dims& d = plan_.dims;
    const CallInputs inputs(record_);
    const OutputIndex index(record_, d);
    bool fails = false;
    for (const call::Sequence& sequence : plan_.sequences) {
      for (const call::Snapshot& s : sequence.snapshots) {
        const std::int64_t replayed = sequence.replay.count;  // which have no o
        if (s.target != call::Target::kFinalState || s.after <= replayed || sequence.padded)
          continue;
        const std::int64_t token = sequence.first_token + s.after - replayed - 1;
        for (std::int64_t head = 0; head < d.HV; ++head) {
          const auto lane = prepare_lane<double>(record_, d, inputs, token, 1, head);
          for (std::int64_t v = 0; v < d.V; ++v) {
            double read = 0.0;
            for (std::int64_t i = 0; i < d.K; ++i) {
              read += lane.q_row(0)[i] * inputs.initial_state[index(s.block, head, i, v)];
            }
            const std::size_t at = index.o(token, head, v);
            const double y = o[static_cast<std::int64_t>(at)];
            if (!(std::fabs(y - read) <= budget.around(at, read, budget.spread(at)))) return false;
            fails = fails || failing.failing[at] != 0;
          }
        }
      }
    }
    return fails;
  }

  // Bit for bit, where it is written. Without a captured final state a kernel that reads o before
  // the update would look the same.
  [[nodiscard]] bool keeps_initial_state() const {
    const auto final = record_.outputs.find("final_state");
    if (final == record_.outputs.end()) return false;
    const call::Tensor& before = record_.inputs.at("initial_state");
    const std::int64_t block = plan_.dims.HV * plan_.dims.state_size();
    for (const call::Sequence& sequence : plan_.sequences) {
      for (const call::Snapshot& s : sequence.snapshots) {
        if (s.target != call::Target::kFinalState || s.after == 0) continue;
        for (std::int64_t i = s.block * block; i < (s.block + 1) * block; ++i) {
          if (final->second[i] != before[i]) return false;
        }
      }
    }
    return true;
  }

  const Record& record_;
  const call::Plan plan_;
  bool found_ = false;
};

// Inputs that the conventions do not read, and the conventions that read them.
struct Unread {
  std::vector<std::string> inputs;
  std::string because;           // "gate is log"
  std::vector<Record> readers;   // the call with another convention
  std::vector<std::string> how;  // "gate=log2", one for each
};

void add_if_given(const Record& record, const char* name, std::vector<std::string>& names) {
  if (record.find_input(name) != nullptr) names.emplace_back(name);
}

Unread unread_by_gate(const Record& record) {
  Unread found;
  const Gate gate = record.convention.gate;
  const bool logits = call::has_logit_gate(record.convention);
  if (!logits) {
    for (const char* name : {"A_log", "dt_bias", "a"}) add_if_given(record, name, found.inputs);
  }
  if (logits || gate == Gate::kNone) add_if_given(record, "g", found.inputs);
  found.because = "gate is " + std::string(call::name_of(gate));
  const bool has_g = record.find_input("g") != nullptr;
  const bool has_a = record.find_input("a") != nullptr;
  for (const Gate other :
       {Gate::kLog, Gate::kLog2, Gate::kLinear, Gate::kSoftplus, Gate::kBounded}) {
    const bool reads_g = other != Gate::kSoftplus && other != Gate::kBounded;
    // Another gate that reads what is read already is a mistake of the kernel (gate_log2, ..).
    if (reads_g ? !has_g || (!logits && gate != Gate::kNone) : !has_a || logits) continue;
    found.readers.push_back(record);
    found.readers.back().convention.gate = other;
    found.how.push_back("gate=" + std::string(call::name_of(other)));
  }
  return found;
}

Unread unread_by_beta(const Record& record) {
  using call::BetaForm;
  Unread found;
  const bool direct = record.convention.beta == BetaForm::kDirect;
  add_if_given(record, direct ? "b" : "beta", found.inputs);
  found.because = "beta is " + std::string(call::name_of(record.convention.beta));
  if (found.inputs.empty()) return found;
  const auto add = [&](BetaForm form) {
    found.readers.push_back(record);
    found.readers.back().convention.beta = form;
    found.how.push_back("beta=" + std::string(call::name_of(form)));
  };
  if (direct) {
    add(BetaForm::kSigmoid);
    add(BetaForm::kSigmoid2);
  } else {
    add(BetaForm::kDirect);
  }
  return found;
}

std::optional<CaptureMistake> unread(const Unread& found, const contract::Contract& contract) {
  if (found.inputs.empty()) return std::nullopt;
  const std::string given = joined(found.inputs) + (found.inputs.size() == 1 ? " is" : " are") +
                            " given and not read, because " + found.because;
  for (std::size_t i = 0; i < found.readers.size(); ++i) {
    if (!is_right(found.readers[i], contract)) continue;
    return CaptureMistake{"convention_forgotten",
                          given + "; with " + found.how[i] + " every output is right", true};
  }
  return CaptureMistake{"inputs_not_read", given, false};
}

// The slot with which each row of o is right; -1 for none.
Slots slots_of_rows(const Record& record, const contract::Contract& contract, const call::Dims& d) {
  const call::Tensor& o = record.outputs.at("o");
  const call::Plan plan = call::make_plan(record, false);
  Slots found(static_cast<std::size_t>(d.rows), -1);
  for (std::int64_t shift = 0; shift < d.slots; ++shift) {
    Slots tried(static_cast<std::size_t>(d.rows));
    for (std::int64_t b = 0; b < d.rows; ++b) {
      tried[static_cast<std::size_t>(b)] = (b + shift) % d.slots;
    }
    Record changed = record;
    changed.outputs = {{"o", o}};
    changed.inputs["state_indices"] =
        call::Tensor(call::DType::kI64, {d.rows}, std::vector<double>(tried.begin(), tried.end()));
    const std::vector<Failures> all = failures_of(changed, contract);
    if (all.empty()) return found;
    for (std::int64_t b = 0; b < d.rows; ++b) {
      const call::Sequence& row = plan.sequences[static_cast<std::size_t>(b)];
      const auto first = all.front().failing.begin() + row.first_token * d.HV * d.V;
      const bool right = std::none_of(first, first + row.token_count * d.HV * d.V,
                                      [](auto fails) { return fails != 0; });
      std::int64_t& slot = found[static_cast<std::size_t>(b)];
      if (right && slot < 0) slot = tried[static_cast<std::size_t>(b)];
    }
  }
  return found;
}

std::optional<CaptureMistake> forgotten_slots(const Record& record,
                                              const contract::Contract& contract) {
  // Visits of state elements that trying every slot may take: a second or so.
  constexpr std::int64_t kSteps = std::int64_t{1} << 26;
  if (record.mode == call::Mode::kPrefill || record.find_input("state_indices") != nullptr ||
      record.find_input("ssm_state_indices") != nullptr ||
      record.find_input("checkpoint_state_indices") != nullptr ||
      record.convention.pad_slot >= 0) {  // slot 0 may be the pad slot
    return std::nullopt;
  }
  const call::Dims d = call::validate(record);
  const std::int64_t steps = d.tokens * d.HV * d.state_size();
  if (d.slots > 1 && record.outputs.contains("o") && steps <= kSteps / d.slots) {
    const Slots slots = slots_of_rows(record, contract, d);
    Record changed = record;
    changed.inputs["state_indices"] =
        call::Tensor(call::DType::kI64, {d.rows}, std::vector<double>(slots.begin(), slots.end()));
    const bool all = std::ranges::none_of(slots, [](std::int64_t s) { return s < 0; });
    if (all && is_right(changed, contract)) {
      return CaptureMistake{"state_indices_forgotten",
                            "state_indices is not given, so that row b uses slot b; with slots " +
                                joined(slots) + " every output is right",
                            true};
    }
  }
  if (d.slots <= d.rows) return std::nullopt;
  return CaptureMistake{"larger_pool",
                        "the pool has " + std::to_string(d.slots) + " slots for " +
                            std::to_string(d.rows) +
                            " rows and state_indices is not given: row b is taken to use slot b",
                        false};
}

}  // namespace

std::vector<CaptureMistake> capture_mistakes(const verdict::Judgement& judgement) {
  const Record& record = judgement.record;
  const contract::Contract& contract = judgement.contract;
  const std::vector<Failures> failures =
      explain::find_failures(record, contract, judgement.expected);
  std::vector<CaptureMistake> found;
  if (AfterCall(record, contract, judgement.expected, failures).found()) {
    found.push_back({"initial_state_after_call",
                     "is initial_state the state before the call? o of the last token is what it "
                     "gives as the state after the call, so a kernel that updates it in place was "
                     "captured afterwards: clone it first",
                     true});
  }
  for (const Unread& inputs : {unread_by_gate(record), unread_by_beta(record)}) {
    if (auto mistake = unread(inputs, contract)) found.push_back(*std::move(mistake));
  }
  if (auto mistake = forgotten_slots(record, contract)) found.push_back(*std::move(mistake));
  std::ranges::stable_sort(found, std::greater<>{}, &CaptureMistake::accounts);
  return found;
}

}  // namespace goldenrule::delta

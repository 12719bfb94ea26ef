// SPDX-License-Identifier: Apache-2.0
//
// Length: every verdict and its reason.
#include "reference/verdict/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/text.hpp"
#include "fixtures/call/widening.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/contract/family.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/comparison.hpp"
#include "reference/verdict/stage_judging.hpp"

namespace goldenrule::verdict {
namespace {

void set(TensorReport& report, Verdict verdict, std::string reason) {
  report.verdict = verdict;
  report.reason = std::move(reason);
}

// Failures first: they are certain whatever else could not be judged.
void decide(TensorReport& report, const Sums& sums) {
  if (report.out_of_budget > 0) {
    report.verdict = Verdict::kOutOfBudget;
  } else if (report.unbounded > 0) {
    set(report, Verdict::kError,
        call::numbered(report.unbounded, "element") +
            " without a finite expectation, radius or budget, though the inputs are finite: the "
            "oracle cannot bound them");
  } else if (report.compared == 0) {
    set(report, Verdict::kSkipped,
        report.nonfinite > 0 ? "no expectation is finite: there is nothing to compare"
                             : "no element to compare");
  } else if (sums.has_rule && !sums.rule_judged) {
    set(report, Verdict::kSkipped, "no element that the rule computes has one right value");
  } else if (report.undecided > 0) {
    set(report, Verdict::kMistrusted,
        call::numbered(report.undecided, "element") + " within the oracle's own radius only");
  } else if (sums.all_zero && !sums.golden_zero) {
    set(report, Verdict::kMistrusted, "every output is zero, the exact result is not");
  } else if (sums.computed && sums.computed_zero) {
    set(report, Verdict::kMistrusted,
        "every exact value that the rule computes is 0: a kernel that does nothing passes as well");
  } else if (report.vacuous > 0) {
    set(report, Verdict::kMistrusted,
        "what the contract grants is as large as the signal in " +
            call::numbered(report.vacuous, "channel") +
            std::string(
                call::agreeing(report.vacuous, " of a row and head", " of rows and heads")));
  } else if (sums.computed && sums.budget2 >= sums.signal2) {
    set(report, Verdict::kMistrusted, "the budget is as large as the signal");
  } else {
    report.verdict = sums.all_exact ? Verdict::kExact : Verdict::kWithinBudget;
  }
}

// Errors stay in the report; whatever was measured against a budget is taken out of it.
void withhold_verdict(TensorReport& report, const contract::Contract& contract) {
  if (report.compared > 0) {
    report.reason = "contract " + contract.name +
                    " gives no budget for this tensor: errors are reported, no verdict is given";
  }
  report.verdict = Verdict::kSkipped;
  report.out_of_budget = report.undecided = 0;
  report.unbounded = 0;
  report.vacuous = 0;
  report.first_unjudged.clear();
  report.failing_rows.clear();
  report.max_ratio = std::numeric_limits<double>::quiet_NaN();
  report.median_ratio = std::numeric_limits<double>::quiet_NaN();
  if (report.worst) report.worst->budget = std::numeric_limits<double>::quiet_NaN();
}

std::int64_t count_nonfinite(const call::Record& record) {
  const parallel::Phase phase("inputs");
  std::int64_t count = 0;
  for (const auto& input : record.inputs) {
    const call::Tensor& tensor = input.second;
    if (!call::info(tensor.dtype()).is_float) continue;
    std::vector<std::int64_t> counts(parallel::range_count(tensor.size()));
    parallel::for_each_range(tensor.size(),
                             [&](std::size_t part, std::int64_t first, std::int64_t last) {
                               for (std::int64_t i = first; i < last; ++i)
                                 counts[part] += std::isfinite(tensor[i]) ? 0 : 1;
                             });
    count = std::accumulate(counts.begin(), counts.end(), count);
  }
  return count;
}

EvaluationOptions outputs_of(const call::Record& record) {
  return {.final_state = record.outputs.contains("final_state"),
          .kept_states = call::has_kept_states(record.outputs)};
}

CaseReport judge_all(const call::Record& record, const contract::Contract& contract,
                     const Expectations& expected) {
  CaseReport report;
  report.op = call::name_of(record.op);
  report.mode = call::name_of(record.mode);
  report.source = record.source;
  report.case_line = record.case_line;
  report.contract = contract.name;
  report.precision_bits = scalar::bits_of(expected.precision);
  std::vector<Verdict> verdicts;
  for (const auto& [name, tensor] : record.outputs) {
    report.tensors.push_back(judge(name, tensor, expected.outputs.at(name), contract));
    // States on the way of a call that leaves none say nothing, for or against.
    const TensorReport& judged = report.tensors.back();
    const bool is_kept = name == call::name_of(call::Target::kIntermediateStates) ||
                         name == call::name_of(call::Target::kCheckpoints);
    if (tensor.size() > 0 && !(is_kept && judged.undefined == tensor.size())) {
      verdicts.push_back(judged.verdict);
    }
  }
  report.verdict = combine(verdicts);
  return report;
}

// Coordinates of what the report points at, and what its rows count.
void name_places(const call::Record& record, TensorReport& report) {
  const call::TensorRow& row = *call::find_row(record, call::Group::kOutput, report.name);
  report.row_word = call::axes_of(record, row).front().row_word;
  if (report.worst) {
    report.worst->coordinates = coordinates(record, report.name, report.worst->index);
  }
  if (!report.first_unjudged.empty()) {
    report.first_unjudged_at = coordinates(record, report.name, report.first_unjudged);
  }
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The outputs that a call of this operation may have, or those that this one produces.
std::vector<std::string> output_names(const call::Record& record, call::Presence least) {
  std::vector<std::string> names;
  for (const call::TensorRow& row : call::operation(record.op).tensors) {
    if (row.group == call::Group::kOutput && row.presence(record) >= least) {
      names.emplace_back(row.name);
    }
  }
  return names;
}

// The outputs that are asked for.
void keep_only(const std::vector<std::string>& only, call::Record& record) {
  for (const std::string& name : only) {
    if (call::find_row(record, call::Group::kOutput, name) == nullptr) {
      throw Error(ErrorKind::kArgument, "--only",
                  listed(output_names(record, call::Presence::kAbsent)), "'" + name + "'");
    }
  }
  if (only.empty()) return;
  std::erase_if(record.outputs, [&](const auto& item) {
    return std::ranges::find(only, item.first) == only.end();
  });
}

// How the contract was chosen, where the call implies it.
std::string origin_of(const call::Record& record, const contract::Contract& chosen) {
  if (record.contract == chosen.name) return "claimed by the file";
  if (record.contract.empty()) return "by mode and types";
  return "by mode and types; the file claims " + record.contract + ", which is not tighter";
}

bool applies_rule(const Expectations& expected) {
  return std::ranges::any_of(expected.outputs, [](const auto& item) {
    const std::vector<Touch>& touched = item.second.exact.touched;
    return std::ranges::find(touched, Touch::kComputed) != touched.end();
  });
}

// What the call says of the whole, and the file's reason: that of its first tensor with the file's
// verdict.
void conclude(const Slice& slice, CaseReport& report, const call::Record& record,
              const Expectations& expected, const std::vector<std::string>& wanted) {
  report.nonfinite_inputs = count_nonfinite(record);
  for (TensorReport& tensor : report.tensors) name_places(record, tensor);
  for (const std::string& name :
       wanted.empty() ? output_names(record, call::Presence::kRequired) : wanted) {
    if (!record.outputs.contains(name)) report.absent.push_back(name);
  }
  const bool passes = is_pass(report.verdict);
  if (record.outputs.empty()) {
    report.reason = "no tensor under /outputs";
  } else if ((passes || report.verdict == Verdict::kSkipped) && !applies_rule(expected)) {
    report.verdict = Verdict::kSkipped;
    report.reason = "the call applies the rule to no token";
  } else if (passes && !report.absent.empty()) {
    report.verdict = Verdict::kSkipped;
    report.reason = "not among the outputs: " + listed(report.absent) +
                    " (if nothing more is wanted, name what is: --only, in Python only=)";
  }
  for (const TensorReport& t : report.tensors) {
    if (t.verdict == report.verdict && !t.reason.empty() && report.reason.empty()) {
      report.reason = t.name + ": " + t.reason;
    }
  }
  const bool is_blind = std::ranges::any_of(
      report.tensors, [](const TensorReport& t) { return t.unbounded > 0 || t.vacuous > 0; });
  if (is_blind && slice.likely_cause != nullptr) report.likely_cause = slice.likely_cause(record);
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kExact:
      return "EXACT";
    case Verdict::kWithinBudget:
      return "WITHIN_BUDGET";
    case Verdict::kOutOfBudget:
      return "OUT_OF_BUDGET";
    case Verdict::kMistrusted:
      return "MISTRUSTED";
    case Verdict::kSkipped:
      return "SKIPPED";
    case Verdict::kError:
      return "ERROR";
  }
  return "";
}

void finish(const Sums& sums, double median_ratio, bool given, const contract::Contract& contract,
            TensorReport& report) {
  if (sums.golden2 > 0.0) report.rms_rel = std::sqrt(sums.error2 / sums.golden2);
  if (sums.absolute_error > 0.0) report.bias = sums.signed_error / sums.absolute_error;
  report.median_ratio = median_ratio;
  decide(report, sums);
  if (!given) withhold_verdict(report, contract);
}

TensorReport judge(const std::string& name, const call::Tensor& output, const Expected& expected,
                   const contract::Contract& contract) {
  if (output.shape() != expected.exact.shape) {
    throw Error(ErrorKind::kShape, "/outputs/" + name, call::to_string(expected.exact.shape),
                call::to_string(output.shape()));
  }
  TensorReport report;
  report.name = name;
  report.dtype = output.dtype();
  report.shape = output.shape();
  const Budget budget(name, output.dtype(), expected, contract);
  Comparison compared = compare(output, expected, budget, report);
  finish(compared.sums, median_of(compared.ratios), budget.given(), contract, report);
  return report;
}

namespace {

// What is expected of the outputs in a tier. The stages are judged beside it, where they share its
// runs.
Expectations expect_beside(const Judgement& of, scalar::Precision tier, StageJudging* stages) {
  if (stages == nullptr || !stages->shares_runs()) {
    return expect(*of.slice, of.record, of.contract, tier, outputs_of(of.record));
  }
  Expectations expected = of.slice->evaluate(of.record, tier, outputs_of(of.record));
  stages->judge(&expected);
  admit_infinities(of.record, of.contract, expected);
  return expected;
}

Judgement judge_with(const Slice& slice, call::Record record, const Question& question,
                     const KernelStages* kernel, StagesReport* report) {
  using scalar::Precision;
  call::undo_widening(record);
  keep_only(question.only, record);
  Judgement result{.slice = &slice,
                   .record = std::move(record),
                   .contract = {},
                   .contract_origin = "given",
                   .report = {},
                   .expected = {}};
  if (question.contract) {
    result.contract = *question.contract;
  } else {
    result.contract = slice.default_contract(result.record);
    result.contract_origin = origin_of(result.record, result.contract);
  }
  contract::require_family(result.contract, call::family_of(result.record.op));
  std::optional<StageJudging> stages;
  if (kernel != nullptr) stages.emplace(slice, result.record, result.contract, *kernel);
  for (const Precision tier : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    if (question.precision && tier != *question.precision) continue;
    result.expected = {};  // before the next takes its memory
    result.expected = expect_beside(result, tier, stages ? &*stages : nullptr);
    settle(slice, result.record, result.record.outputs, result.expected);
    result.report = judge_all(result.record, result.contract, result.expected);
    if (slice.confirm != nullptr && result.report.verdict == Verdict::kOutOfBudget) {
      slice.confirm(result.record, result.contract, result.record.outputs, result.expected);
      admit_infinities(result.record, result.contract, result.expected);
      result.report = judge_all(result.record, result.contract, result.expected);
    }
    const bool decided = std::ranges::all_of(result.report.tensors, [](const TensorReport& t) {
      return t.undecided == 0 && t.unbounded == 0;
    });
    if (decided) break;
  }
  conclude(slice, result.report, result.record, result.expected,
           question.only.empty() ? question.wanted : question.only);
  while (stages && stages->is_open()) stages->judge(nullptr);
  if (stages) *report = stages->report();
  return result;
}

}  // namespace

Judgement judgement(const Slice& slice, call::Record record, const Question& question) {
  return judge_with(slice, std::move(record), question, nullptr, nullptr);
}

Judgement judgement(const Slice& slice, call::Record record, const Question& question,
                    const KernelStages& kernel, StagesReport& stages) {
  return judge_with(slice, std::move(record), question, &kernel, &stages);
}

CaseReport judge_record(const Slice& slice, call::Record record, const Question& question) {
  return judgement(slice, std::move(record), question).report;
}

Verdict combine(const std::vector<Verdict>& parts) {
  for (const Verdict dominant : {Verdict::kOutOfBudget, Verdict::kError, Verdict::kMistrusted,
                                 Verdict::kSkipped, Verdict::kWithinBudget, Verdict::kExact}) {
    if (std::ranges::find(parts, dominant) != parts.end()) return dominant;
  }
  return Verdict::kSkipped;
}

}  // namespace goldenrule::verdict

// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/judge.hpp"

#include <cstdio>

#include "fixtures/call/error.hpp"
#include "reference/attention/slice.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/verdict.hpp"
#include "tools/gpu_run/record_call.hpp"

namespace goldenrule::test {
namespace {

using verdict::Verdict;

/// The same arithmetic with functions as accurate as those of these kernels (their gates.cuh: expf,
/// log1pf within 2 ulp = 4 u relative, +, x, / and sqrt u). softplus is max(y, 0) + log1p(e^-|y|):
/// 4 u of the exponential, 4 u of log1p, two operations: relative, like the rate exp(A_log) 4 u and
/// its product u beside it, so 15 u of log alpha and nothing absolute. The argument of the bounded
/// gate's sigmoid has those 4 u, product, sum and threshold: 7 u.
contract::Contract with_own_functions(contract::Contract contract) {
  constexpr double u = 0x1p-24;
  contract.name += ", functions of these kernels";
  contract.functions.softplus = 0.0;
  contract.functions.log_alpha = 15 * u;
  contract.functions.logit = 7 * u;
  return contract;
}

bool passes(const call::Record& record, const verdict::TensorReport& t, bool exact) {
  // With a scale of 0 every o is 0. That is right, and the judge says truly that it shows nothing.
  const bool is_zero = record.convention.scale == 0.0 && t.name == "o" &&
                       t.verdict == Verdict::kMistrusted && t.max_ratio == 0.0;
  // Nor is there anything in a ring of a call without gates.
  const bool no_gates = record.convention.gate == call::Gate::kNone && t.name == "ring_g" &&
                        t.verdict == Verdict::kMistrusted && t.max_ratio == 0.0;
  // A row that sees one key of score 0 has lse 0, within what any other score is granted; its o
  // shows which key that was.
  const bool one_key = t.name == "lse" && t.verdict == Verdict::kMistrusted && t.out_of_budget == 0;
  return t.verdict == Verdict::kExact || is_zero || no_gates || one_key ||
         (t.verdict == Verdict::kWithinBudget && !exact) || t.compared == 0;
}

contract::Contract contract_of(const call::Record& record) {
  contract::Contract contract =
      contract::find_contract(record.contract.empty() ? gpu::contract_of(record) : record.contract);
#ifdef GOLDENRULE_GPU_LEAST_SPLIT
  // The kernels of this program cut shorter sequences, into segments of one chunk and more.
  auto* chunked = std::get_if<contract::Chunked>(&contract.model);
  if (chunked != nullptr && chunked->segment > 0) chunked->segment = 64;
#endif
  return contract;
}

std::string describe(const verdict::TensorReport& t) {
  return t.name + ": " + std::string(verdict::name_of(t.verdict)) + " " + t.reason + ": " +
         std::to_string(t.out_of_budget) + " of " + std::to_string(t.compared) +
         " elements beyond their budget, worst " + std::to_string(t.max_ratio);
}

}  // namespace

std::string judge(const call::Record& record, bool exact, Tally& tally) {
  const contract::Contract contract = contract_of(record);
  const bool attention = record.op == call::Op::kAttention;
  verdict::CaseReport report = verdict::judge_record(
      attention ? attention::slice() : delta::slice(), record, {.contract = contract});
  if (report.verdict == Verdict::kMistrusted && !attention) {
    // At logits of -17 the contract grants an absolute error that is more than softplus itself.
    report =
        verdict::judge_record(delta::slice(), record, {.contract = with_own_functions(contract)});
    ++tally.judged_again;
  }
  ++tally.cases;
  std::string complaint;
  for (const verdict::TensorReport& t : report.tensors) {
    tally.elements += t.compared;
    ++tally.verdicts[std::string(verdict::name_of(t.verdict))];
    if (t.compared > 0) {
      const auto [worst, first] = tally.worst.try_emplace(t.name, 0.0);
      if (first || !(t.max_ratio <= worst->second)) {
        worst->second = t.max_ratio;
        tally.worst_case[t.name] = record.case_line;
      }
    }
    if (complaint.empty() && !passes(record, t, exact)) complaint = describe(t);
  }
  return complaint;
}

std::string run_case(const LiveCase& c, Tallies& tallies, Memory memory, const Kernel& kernel) {
  try {
    call::Record record = make_record(c);
    LiveCall live(record, c.placement, memory);
    record.contract = live.contract();
    record.outputs = outputs_of(live, record.case_line, kernel);
    // Only the recurrent kernels round nothing in an exact world.
    const bool exact = c.call.pattern == "K" && record.op != call::Op::kAttention &&
                       record.contract == gpu::contract_of(record);
    return judge(record, exact, tallies[record.contract]);
  } catch (const Error& e) {
    return e.what();
  }
}

std::string complaint_of(std::string_view line) {
  Tallies tallies;
  const LiveCase c = parse_live(line);
  const std::string complaint = run_case(c, tallies);
  return complaint.empty() ? "" : canonical(c) + ": " + complaint;
}

void print(const std::string& name, const Tallies& tallies) {
  for (const auto& [contract, tally] : tallies) {
    std::printf("%s under %s: %d cases, %lld elements;", name.c_str(), contract.c_str(),
                tally.cases, static_cast<long long>(tally.elements));
    for (const auto& [v, count] : tally.verdicts) std::printf(" %s %d", v.c_str(), count);
    std::printf(" tensors; %d cases under a narrower contract\n", tally.judged_again);
    for (const auto& [output, ratio] : tally.worst) {
      std::printf("  worst error/budget of %s: %.3f (%s)\n", output.c_str(), ratio,
                  tally.worst_case.at(output).c_str());
    }
  }
}

}  // namespace goldenrule::test

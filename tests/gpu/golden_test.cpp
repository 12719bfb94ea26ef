// SPDX-License-Identifier: Apache-2.0
//
// The kernels against the oracle: every decode and MTP case of the suites, in guarded memory,
// judged element by element under the contract that its state type declares. What the kernels
// refuse is counted and printed with the reason. The host's part, from case to arguments to
// validation, runs without a GPU too.
#include <algorithm>
#include <map>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/record_run.hpp"

namespace goldenrule::test {
namespace {

using verdict::Verdict;

const char* const kNoF16State = "state.dtype: expected f32 or bf16, actual f16";

/// What happened to the cases under one contract.
struct Tally {
  int cases = 0;
  int judged_again = 0;  ///< a pass under the contract said nothing
  std::int64_t elements = 0;
  std::map<std::string, int> verdicts;
  std::map<std::string, double> worst;  ///< error / budget of each output
  std::map<std::string, std::string> worst_case;
};

std::string differing_output(const call::TensorMap& a, const call::TensorMap& b) {
  for (const auto& [name, tensor] : a) {
    std::string text = first_difference(name, tensor.bytes(), b.at(name).bytes());
    if (!text.empty()) return text;
  }
  return "";
}

/// The same arithmetic with functions as accurate as those of these kernels (gpu/common/gates.cuh:
/// expf, log1pf within 2 ulp = 4 u relative, +, x, / and sqrt u). softplus is max(y, 0) +
/// log1p(e^-|y|): 4 u of the exponential, 4 u of log1p, two operations: relative, like the rate
/// exp(A_log) 4 u and its product u beside it, so 15 u of log alpha and nothing absolute. The
/// argument of the bounded gate's sigmoid has those 4 u, product, sum and threshold: 7 u.
bounds::Contract with_own_functions(bounds::Contract contract) {
  constexpr double u = 0x1p-24;
  contract.name += ", functions of these kernels";
  contract.functions.softplus = 0.0;
  contract.functions.log_alpha = 15 * u;
  contract.functions.logit = 7 * u;
  return contract;
}

/// "" or what is wrong with a case that the kernels accept.
std::string judge(call::Record record, bool exact, Tally& tally) {
  RecordRun run = run_record(record, gpu::Update::kInPlace);
  if (run.status != GOLDENRULE_GPU_OK) return run.message;
  if (!run.stray_write.empty()) return run.stray_write;
  const RecordRun separate = run_record(record, gpu::Update::kSeparate);
  if (!separate.stray_write.empty()) return separate.stray_write;
  std::string difference = differing_output(run.outputs, separate.outputs);
  if (!difference.empty()) return "in place and separate differ: " + difference;
  record.outputs = std::move(run.outputs);
  const bounds::Contract& contract = bounds::find_contract(gpu::contract_of(record));
  verdict::CaseReport report = verdict::judge_record(record, contract, std::nullopt);
  if (report.verdict == Verdict::kMistrusted) {
    // At logits of -17 the contract grants an absolute error that is more than softplus itself.
    report = verdict::judge_record(record, with_own_functions(contract), std::nullopt);
    ++tally.judged_again;
  }
  ++tally.cases;
  std::string complaint;
  for (const verdict::TensorReport& t : report.tensors) {
    tally.elements += t.compared;
    ++tally.verdicts[std::string(verdict::name_of(t.verdict))];
    if (t.compared > 0 && !(t.max_ratio <= tally.worst[t.name])) {
      tally.worst[t.name] = t.max_ratio;
      tally.worst_case[t.name] = record.case_line;
    }
    // With a scale of 0 every o is 0. That is right, and the judge says truly that it shows
    // nothing.
    const bool is_zero = record.convention.scale == 0.0 && t.name == "o" &&
                         t.verdict == Verdict::kMistrusted && t.max_ratio == 0.0;
    const bool passes = t.verdict == Verdict::kExact || is_zero ||
                        (t.verdict == Verdict::kWithinBudget && !exact) || t.compared == 0;
    if (!passes && complaint.empty()) {
      complaint = t.name + ": " + std::string(verdict::name_of(t.verdict)) + " " + t.reason + ": " +
                  std::to_string(t.out_of_budget) + " of " + std::to_string(t.compared) +
                  " elements beyond their budget, worst " + std::to_string(t.max_ratio);
    }
  }
  return complaint;
}

void judge_cases(const std::string& name, const std::vector<cases::Case>& suite) {
  std::map<std::string, Tally> tallies;
  std::map<std::string, int> left_out;
  int failures = 0;
  for (const cases::Case& c : suite) {
    if (c.mode == call::Mode::kPrefill) {
      ++left_out["prefill: not a mode of these kernels"];
      continue;
    }
    const call::Record record = cases::make_record(c);
    if (c.state == DType::kF16) {
      const RecordRun run = run_record(record, gpu::Update::kInPlace);
      CHECK(run.status == GOLDENRULE_GPU_UNSUPPORTED);
      CHECK(run.message == kNoF16State);
      ++left_out["refused: " + run.message];
      continue;
    }
    // In an exact world no operation of an fp32 kernel rounds.
    const std::string complaint = judge(record, c.family == "K", tallies[gpu::contract_of(record)]);
    if (!complaint.empty() && ++failures <= 10) MESSAGE(record.case_line << ": " << complaint);
  }
  std::int64_t judged = 0;
  for (const auto& [contract, tally] : tallies) {
    std::printf("%s under %s: %d cases, %lld elements;", name.c_str(), contract.c_str(),
                tally.cases, static_cast<long long>(tally.elements));
    for (const auto& [v, count] : tally.verdicts) std::printf(" %s %d", v.c_str(), count);
    std::printf(" tensors; %d cases under a narrower contract\n", tally.judged_again);
    for (const auto& [output, ratio] : tally.worst) {
      std::printf("  worst error/budget of %s: %.3f (%s)\n", output.c_str(), ratio,
                  tally.worst_case.at(output).c_str());
    }
    judged += tally.elements;
  }
  for (const auto& [reason, count] : left_out)
    std::printf("  %d cases %s\n", count, reason.c_str());
  CHECK(failures == 0);
  CHECK(judged > 0);
}

TEST_CASE("boundary: every element within its budget") {
  REQUIRE_GPU();
  judge_cases("boundary", cases::load_suite("boundary").cases);
}

TEST_CASE("stress: every element within its budget") {
  REQUIRE_GPU();
  judge_cases("stress", cases::load_suite("stress").cases);
}

/// The suites keep to small shapes; these are what the tuned kernels take: K = 128, whole tiles of
/// V, bf16 tokens. Every family of values, every T of the matrix kernel, every way to keep a state.
constexpr const char* kTunedShapes = R"(
op=gdn mode=mtp B=3 T=8 H=1 HV=2 K=128 V=64 state_layout={vk,kv} slots=permuted family={A,B75,B95,B999,B16,B64,C000,C050,C0999,C100,Dslow,Dprod,Dbound,Dzero,Dmixed,Derase,E,F,G,H,I,J17,J20p,J20m,J100,production}
op=gdn mode=mtp B=3 T=5 H=1 HV=2 K=128 V=64 state_layout={vk,kv} state=bf16 slots=permuted family={A,B95,C050,C100,Dslow,Dzero,Derase,E,G,I,J17,J20p,J100,production}
op=gdn mode=mtp B=2 T={2,3,4,5,6,7,8,9,16} H=1 HV=2 K=128 V={32,64} state_layout={vk,kv} state={f32,bf16} slots=permuted
op=gdn mode=mtp B=4 T={2,4,8} H=1 HV=2 K=128 V=64 state_layout={vk,kv} slots=scatter
op=gdn mode=mtp B=5 T=4 H=1 HV=2 K=128 V=64 slots=scatter_padded pad_slot={-1,0}
op=gdn mode=mtp B=5 T={2,8} H=1 HV=2 K=128 V=64 state_layout={vk,kv} state={f32,bf16} slots={none,padded} accepted=mixed
op=gdn mode=mtp B=4 T=4 H=1 HV=2 K=128 V=64 slots={identity,separate,separate_padded} accepted={none,mixed}
op=gdn mode=mtp B=3 T=4 H=1 HV=2 K=128 V=64 slots={none,permuted,padded} disable_state_update=1
op=gdn mode=mtp B=2 T=4 H=1 HV=2 K=128 V=64 gate={softplus,bounded,log,log2,linear,none} seed=2
op=gdn mode=mtp B=2 T=4 H=2 HV=8 K=128 V=128 head_map={grouped,tiled} seed=3
op=gdn mode=mtp B=2 T=8 H=1 HV=2 K=128 V=64 state_layout={vk,kv} slots=permuted gate={linear,none} beta=direct qk_l2norm=none scale=1 family=K
op={gdn,kda} mode=decode B=3 H=1 HV=2 K=128 V={32,64} state_layout={vk,kv} state={f32,bf16} slots=permuted family={A,E,I,J17,J20p,J100,production}
op=kda mode=mtp B=2 T={4,8} H=1 HV=2 K=128 V=64 state_layout={vk,kv} state={f32,bf16} slots=permuted family={A,Dzero,E,J100}
)";

TEST_CASE("tuned shapes: every element within its budget") {
  REQUIRE_GPU();
  judge_cases("tuned shapes", cases::parse_suite("tuned shapes", kTunedShapes).cases);
}

TEST_CASE("tuned shapes are cases") {  // runs without a GPU
  CHECK(cases::parse_suite("tuned shapes", kTunedShapes).cases.size() > 300);
}

TEST_CASE(
    "the judge fails a kernel that rounds k to bf16, and one whose state is bf16 each token") {
  REQUIRE_GPU();
  const std::string line = "op=gdn mode=mtp B=3 T=8 H=1 HV=2 K=128 V=32 io=f32 slots=permuted";
  call::Record record = cases::make_record(cases::parse(line));
  call::Record rounded = record;
  call::Tensor& k = rounded.inputs.at("k");
  for (std::int64_t i = 0; i < k.size(); ++i) k.set(i, call::round_to(DType::kBF16, k[i]));
  const bounds::Contract& contract = bounds::find_contract("recurrent_f32");
  record.outputs = outputs_of(rounded, gpu::Update::kInPlace);
  CHECK(verdict::judge_record(record, contract, std::nullopt).verdict == Verdict::kOutOfBudget);
  record.outputs = outputs_of(record, gpu::Update::kInPlace);
  CHECK(verdict::judge_record(record, contract, std::nullopt).verdict == Verdict::kWithinBudget);
  call::Tensor& state = record.outputs.at("final_state");
  for (std::int64_t i = 0; i < state.size(); ++i) {
    state.set(i, call::round_to(DType::kBF16, state[i]));
  }
  CHECK(verdict::judge_record(record, contract, std::nullopt).verdict == Verdict::kOutOfBudget);
}

}  // namespace
}  // namespace goldenrule::test

// SPDX-License-Identifier: Apache-2.0
//
// The kernels against the oracle: every decode and MTP case of the suites and every list of
// case_lists.hpp, in guarded memory, judged element by element under the contract that its state
// type declares. What the kernels refuse is counted and printed with the reason.
//
// One line again: GOLDENRULE_GPU_CASE='op=gdn mode=decode ..' test_gpu --test-case="one line"
#include <cstdlib>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/gpu/case_lists.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/judge.hpp"

namespace goldenrule::test {
namespace {

const char* const kNoF16State =
    "goldenrule_gpu_recurrent: expected ok, actual unsupported: state.dtype: expected f32 or bf16, "
    "actual f16";

void check_cases(const std::string& name, const std::vector<LiveCase>& list) {
  Tallies tallies;
  int failures = 0;
  for (const LiveCase& c : list) {
    const std::string complaint = run_case(c, tallies);
    if (!complaint.empty() && ++failures <= 10) MESSAGE(canonical(c) << ": " << complaint);
  }
  print(name, tallies);
  CHECK(failures == 0);
  CHECK(!tallies.empty());
}

void check_list(const char* name) {
  REQUIRE_GPU();
  check_cases(name, parse_list(case_list(name).lines));
}

TEST_CASE("every K") { check_list("every K"); }
TEST_CASE("every V") { check_list("every V"); }
TEST_CASE("every T and head group") { check_list("every T and head group"); }
TEST_CASE("every gate, beta and norm") { check_list("every gate, beta and norm"); }
TEST_CASE("exact worlds") { check_list("exact worlds"); }
TEST_CASE("every type") { check_list("every type of q, k, v, o and gates"); }
TEST_CASE("strides and alignment") { check_list("strides with gaps and misaligned data"); }
TEST_CASE("correlated keys, batches") {
  check_list("correlated keys, batches on both sides of the choice of the kernel");
}
TEST_CASE("slots of one token") { check_list("slots of one token"); }
TEST_CASE("slots of several tokens") { check_list("slots of several tokens"); }
TEST_CASE("intermediate states, accepted counts, disabled updates") {
  check_list("intermediate states, accepted counts, disabled updates");
}
TEST_CASE("tuned shapes") { check_list("tuned shapes"); }
TEST_CASE("the sanitizer matrix, judged") { check_list("sanitizer"); }

/// In place, as a server runs the kernels, and into another pool, bit for bit the same.
void check_suite(const std::string& name) {
  REQUIRE_GPU();
  std::vector<LiveCase> taken;
  std::map<std::string, int> left_out;
  for (const cases::Case& call : cases::load_suite(name).cases) {
    const LiveCase c{.call = call, .change = "", .placement = {}};
    if (call.mode == call::Mode::kPrefill) {
      ++left_out["prefill: not a mode of these kernels"];
    } else if (call.state == call::DType::kF16) {
      CHECK_THROWS_WITH_AS(static_cast<void>(outputs_of(make_record(c))), kNoF16State, Error);
      ++left_out["refused: f16 states"];
    } else {
      const call::Record record = make_record(c);
      CHECK_MESSAGE(difference(outputs_of(record), outputs_of(record, {.separate = 1})) == "",
                    record.case_line);
      taken.push_back(c);
    }
  }
  check_cases(name, taken);
  for (const auto& [reason, count] : left_out) {
    std::printf("  %d cases %s\n", count, reason.c_str());
  }
}

TEST_CASE("boundary: every element within its budget") { check_suite("boundary"); }
TEST_CASE("stress: every element within its budget") { check_suite("stress"); }

TEST_CASE("one line") {
  REQUIRE_GPU();
  const char* line = std::getenv("GOLDENRULE_GPU_CASE");
  if (line == nullptr) return;
  check_cases(line, parse_list(line));
}

TEST_CASE(
    "the judge fails a kernel that rounds k to bf16, and one whose state is bf16 each token") {
  REQUIRE_GPU();
  call::Record record =
      record_of("op=gdn mode=mtp B=3 T=8 H=1 HV=2 K=128 V=32 io=f32 slots=permuted");
  call::Record rounded = record;
  call::Tensor& k = rounded.inputs.at("k");
  for (std::int64_t i = 0; i < k.size(); ++i) k.set(i, call::round_to(call::DType::kBF16, k[i]));
  Tally tally;
  record.outputs = outputs_of(rounded);
  CHECK(judge(record, false, tally).find("OUT_OF_BUDGET") != std::string::npos);
  record.outputs = outputs_of(record);
  CHECK(judge(record, false, tally) == "");
  call::Tensor& state = record.outputs.at("final_state");
  for (std::int64_t i = 0; i < state.size(); ++i) {
    state.set(i, call::round_to(call::DType::kBF16, state[i]));
  }
  CHECK(judge(record, false, tally).find("OUT_OF_BUDGET") != std::string::npos);
}

}  // namespace
}  // namespace goldenrule::test

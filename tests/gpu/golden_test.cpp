// SPDX-License-Identifier: Apache-2.0
//
// The decode and MTP kernels against the oracle: their cases of the suites and lists of
// case_lists.hpp, judged element by element under the contract that the state type declares.
//
// One line again: GOLDENRULE_GPU_CASE='op=gdn mode=decode ..' test_gpu --test-case="one line"
#include <cstdlib>
#include <vector>

#include "fixtures/call/error.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/gpu/check_cases.hpp"

namespace goldenrule::test {
namespace {

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

bool is_recurrent(call::Mode mode) { return mode != call::Mode::kPrefill; }

TEST_CASE("boundary: every element within its budget") { check_suite("boundary", is_recurrent); }
TEST_CASE("stress: every element within its budget") { check_suite("stress", is_recurrent); }

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

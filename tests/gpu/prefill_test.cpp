// SPDX-License-Identifier: Apache-2.0
//
// The prefill kernels against the oracle: their cases of the suites and of case_lists.hpp, judged
// element by element under the contract of the kernel that serves the call.
#include "tests/gpu/check_cases.hpp"

namespace goldenrule::test {
namespace {

bool is_prefill(call::Mode mode) { return mode == call::Mode::kPrefill; }

TEST_CASE("prefill boundary: every element within its budget") {
  check_suite("boundary", is_prefill);
}
TEST_CASE("prefill stress: every element within its budget") { check_suite("stress", is_prefill); }
TEST_CASE("prefill every K and V") { check_list("prefill: every K and V"); }
TEST_CASE("prefill every length and head group") { check_list("prefill: every length, heads"); }
TEST_CASE("prefill every gate, beta and norm") { check_list("prefill: every gate, beta and norm"); }
TEST_CASE("prefill slots and checkpoints of records") {
  check_list("prefill: slots and checkpoints");
}
TEST_CASE("prefill every type, strides and alignment") {
  check_list("prefill: types, strides and alignment");
}

}  // namespace
}  // namespace goldenrule::test

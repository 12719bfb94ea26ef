// SPDX-License-Identifier: Apache-2.0
//
// Attention against the oracle, element by element under flash_bf16: the cases of its suites and
// what they leave out (widths, tiles of rows and shares of the keys of the tuned kernels, strides,
// alignments).
#include "tests/gpu/check_cases.hpp"

namespace goldenrule::test {
namespace {

/// Whether the kernels refuse the case, by the words of the refusal; nullptr: they do not.
const char* refusal_of(const call::Record& record) {
  if (record.convention.soft_cap != 0.0) return "/convention@soft_cap";
  if (record.inputs.at("q").dtype() == call::DType::kF32) {
    return "q.dtype: expected f16 or bf16, actual f32";
  }
  return nullptr;
}

void check_attention_suite(const std::string& name) {
  REQUIRE_GPU();
  std::vector<LiveCase> taken;
  int refused = 0;
  for (const cases::Case& call : cases::load_suite(name).cases) {
    const LiveCase c{.call = call, .change = "", .placement = {}};
    const call::Record record = make_record(c);
    if (const char* words = refusal_of(record)) {
      CHECK_THROWS_WITH_AS(static_cast<void>(outputs_of(record)), doctest::Contains(words), Error);
      ++refused;
      continue;
    }
    taken.push_back(c);
  }
  check_cases(name, taken);
  std::printf("  %d cases refused: soft caps, f32\n", refused);
}

TEST_CASE("attention: every case of its suites") {
  check_attention_suite("attention_smoke");
  check_attention_suite("attention_boundary");
}

TEST_CASE("attention: tuned shapes, every family of values") { check_list("attention tuned"); }
TEST_CASE("attention: masks, tables and layouts") { check_list("attention calls"); }
TEST_CASE("attention: strides and alignments") { check_list("attention strides"); }

}  // namespace
}  // namespace goldenrule::test

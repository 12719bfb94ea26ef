// SPDX-License-Identifier: Apache-2.0
//
// Right kernels keep every relation: the CPU reference with the same bits wherever a
// batch-invariant kernel must have them, and the emulated kernels of all contracts, whose order of
// summation follows the place in the batch, within their budgets.
#include <algorithm>
#include <cmath>
#include <set>

#include "fixtures/call/error.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/delta/relations/support.hpp"

using namespace goldenrule;
using namespace goldenrule::relations;
using namespace goldenrule::relations::test;

namespace {

// Every relation that applies holds and says something.
void check_holds(const call::Record& record, const Kernel& kernel,
                 const contract::Contract& contract, const Options& options,
                 std::set<std::string_view>& tried) {
  CAPTURE(contract.name);
  for (const Outcome& outcome : check_all(record, kernel, contract, options)) {
    CHECK_MESSAGE(outcome.findings.empty(), to_text(outcome));
    CHECK_MESSAGE(outcome.compared > 0, outcome.relation);
    // A log alpha in bf16 is off by 2^-9 of itself at every token: over a long sequence all is
    // lost.
    if (!contract.at(contract::Activation::kGate)) {
      CHECK_MESSAGE(outcome.bound_to_signal < 1.0, outcome.relation);
    }
    tried.insert(outcome.relation);
  }
}

const Relation& relation(std::string_view name) {
  for (const Relation& r : table()) {
    if (r.name == name) return r;
  }
  FAIL("no relation " << name);
  return table().front();
}

}  // namespace

TEST_CASE("the CPU reference keeps every relation under every contract") {
  std::set<std::string_view> tried;
  for_each_call([&](const char* line) {
    CAPTURE(line);
    for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
      check_holds(record_of(line), verdict::exact_kernel(delta::slice()), contract,
                  {.batch_invariant = true}, tried);
    }
  });
  CHECK(tried.size() == table().size());
}

TEST_CASE("the emulated kernel of every contract keeps every relation") {
  for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
    std::set<std::string_view> tried;
    for_each_call([&](const char* line) {
      CAPTURE(line);
      check_holds(record_of(line), verdict::emulated_kernel(delta::slice(), contract, 3), contract,
                  {.batch_invariant = false}, tried);
    });
    const bool has_fp16 = std::ranges::any_of(contract.roundings(), [](const auto& rounding) {
      return rounding == contract::Format::kF16 || rounding == contract::Format::kAny16;
    });
    CAPTURE(contract.name);
    CHECK(tried.contains("power_of_two") != has_fp16);
    CHECK(tried.size() + (has_fp16 ? 1 : 0) == table().size());
  }
}

TEST_CASE("a kernel is given no calls of modes that it does not serve") {
  const Kernel decode_only = [](const call::Record& r) {
    REQUIRE(r.mode == call::Mode::kDecode);
    return verdict::exact_outputs(delta::slice(), r);
  };
  const auto outcomes =
      check_all(record_of(kPools[0]), decode_only, contract::find_contract("ideal"),
                {.modes = {call::Mode::kDecode}});
  CHECK(outcomes.size() == 10);  // all but split, as_decode (it is one), the futures of one token
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.relation != "as_prefill");
    CHECK(outcome.relation != "as_mtp");
  }
}

TEST_CASE("one element that is off is found, with its place and both values") {
  const call::Record record = record_of(kPools[0]);
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  // Wrong in the original call only: the one with five rows.
  const Kernel wrong = [](const call::Record& r) {
    call::TensorMap outputs = verdict::exact_outputs(delta::slice(), r);
    call::Tensor& o = outputs.at("o");
    if (o.shape()[0] == 5) o.set(37, o[37] + 0.25);
    return outputs;
  };
  const Outcome outcome = check(relation("rows_alone"), record, wrong, contract);
  REQUIRE(outcome.findings.size() == 1);
  const Finding& f = outcome.findings.front();
  CHECK(f.tensor == "o");
  CHECK(f.violations == 1);
  CHECK(f.first == call::Shape{1, 0, 0, 5});  // 37 = 32 + 5 in [5,1,4,8]
  CHECK(f.worst.index == f.first);
  CHECK(f.worst.error == doctest::Approx(0.25).epsilon(0.01));  // o is stored in bf16
  CHECK(f.worst.value - f.worst.golden == f.worst.error);
  CHECK(f.worst.budget == 0.0);
  CHECK(verdict::to_string(f.coordinates) == "sequence 1, token 0, head 0, value 5");
}

TEST_CASE("a call with rings of pending tokens is refused") {
  const call::Record record = record_of("op=gdn mode=mtp B=2 T=2 H=1 HV=1 K=8 V=4 ring=f32");
  const Kernel exact = [](const call::Record& r) {
    return verdict::exact_outputs(delta::slice(), r);
  };
  CHECK_THROWS_WITH_AS((void)check_all(record, exact, contract::find_contract("ideal")),
                       "/inputs/initial_ring_d: expected no dataset: relations follow no rings of "
                       "pending tokens, actual a dataset",
                       Error);
}

TEST_CASE("a kernel without an output, or with one of another shape, is refused") {
  const call::Record record = record_of(kPools[0]);
  const contract::Contract& contract = contract::find_contract("ideal");
  const Kernel silent = [](const call::Record& r) {
    call::TensorMap outputs = verdict::exact_outputs(delta::slice(), r);
    outputs.erase("final_state");
    return outputs;
  };
  CHECK_THROWS_WITH_AS((void)check_all(record, silent, contract),
                       "/outputs/final_state: expected an output of the kernel, actual none",
                       Error);
  const Kernel narrow = [](const call::Record& r) {
    call::TensorMap outputs = verdict::exact_outputs(delta::slice(), r);
    outputs["o"] = call::Tensor(call::DType::kF64, {5, 1, 4, 7});
    return outputs;
  };
  CHECK_THROWS_WITH_AS((void)check_all(record, narrow, contract),
                       "/outputs/o: expected [5,1,4,8], actual [5,1,4,7]", Error);
}

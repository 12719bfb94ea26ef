// SPDX-License-Identifier: Apache-2.0
//
// What was captured wrongly is said before any mistake of the kernel.
#include <doctest/doctest.h>

#include "reference/delta/mistakes/table.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

Diagnosis diagnosis(const Record& record) { return diagnosis_of(record, delta::mistakes()); }

bool names(const Diagnosis& d, const std::string& name, bool accounts) {
  return !d.of_capture.empty() && d.of_capture.front().name == name &&
         d.of_capture.front().accounts == accounts;
}

const std::string kIdentity = "op=gdn mode=decode B=3 H=2 HV=4 K=32 V=16 slots=identity gate=log";

TEST_CASE("an initial state that was captured after the call") {
  for (const std::string& line : {kIdentity, kDecode, kMtp,
                                  std::string("op=gdn mode=mtp B=3 T=5 H=2 HV=4 K=32 V=16 "
                                              "slots=permuted accepted=mixed")}) {
    Record record = capture_of(line, {});
    record.inputs["initial_state"] = record.outputs.at("final_state");
    const Diagnosis d = diagnosis(record);
    INFO(line, ": ", d.pattern);
    CHECK(names(d, "initial_state_after_call", true));
    CHECK(d.explanations.empty());  // no kernel is blamed
  }
}

TEST_CASE("a state that was not written is a mistake of the kernel") {
  Record record = capture_of(kIdentity, {});
  record.outputs["final_state"] = record.inputs.at("initial_state");
  SUBCASE("o is right") {}
  SUBCASE("o is wrong") {
    call::Tensor& o = record.outputs.at("o");
    for (std::int64_t i = 0; i < o.size(); ++i) o.set(i, 2.0 * o[i]);
  }
  const Diagnosis d = diagnosis(record);
  CHECK(d.of_capture.empty());
  REQUIRE(!d.explanations.empty());
}

TEST_CASE("inputs that the conventions do not read are named, with the convention that does") {
  const std::string rest = "op=gdn mode=decode B=2 H=1 HV=2 K=16 V=8 gate=";
  Record record = capture_of(rest + "softplus", {});
  const Record given_logs = make_call(rest + "log");
  SUBCASE("a, A_log and dt_bias beside a gate that is given") {
    record.convention.gate = call::Gate::kLog;
    record.inputs["g"] = given_logs.inputs.at("g");
    CHECK(names(diagnosis(record), "convention_forgotten", true));
    CHECK(diagnosis(record).of_capture[0].meaning ==
          "A_log, dt_bias and a are given and not read, because gate is log; with gate=softplus "
          "every output is right");
  }
  SUBCASE("a gate that is given, but not read") {
    record = capture_of(rest + "log2", {});
    record.convention.gate = call::Gate::kNone;
    const Diagnosis d = diagnosis(record);
    CHECK(names(d, "convention_forgotten", true));
    CHECK(d.of_capture[0].meaning.ends_with("with gate=log2 every output is right"));
  }
  SUBCASE("without evidence it is a note") {
    record.inputs["g"] = given_logs.inputs.at("g");
    call::Tensor& o = record.outputs.at("o");
    for (std::int64_t i = 0; i < o.size(); ++i) o.set(i, 4.0 * o[i]);
    const Diagnosis d = diagnosis(record);
    CHECK(names(d, "inputs_not_read", false));
    CHECK(d.of_capture[0].meaning == "g is given and not read, because gate is softplus");
    REQUIRE(!d.explanations.empty());
    CHECK(d.explanations[0].name() == "scale_missing");
  }
}

TEST_CASE("slots that were not written down") {
  Record record = capture_of("op=gdn mode=decode B=3 H=2 HV=4 K=32 V=16 slots=permuted P=5", {});
  const auto slots = record.inputs.at("state_indices").to_integers();
  record.inputs.erase("state_indices");
  const Diagnosis d = diagnosis(record);
  CHECK(names(d, "state_indices_forgotten", true));
  std::string list;
  for (const std::int64_t s : slots) list += (list.empty() ? "" : ", ") + std::to_string(s);
  CHECK(d.of_capture[0].meaning.find("with slots " + list + " every") != std::string::npos);
  // Another mistake beside it: a note about the pool is all that can be said.
  call::Tensor& o = record.outputs.at("o");
  for (std::int64_t i = 0; i < o.size(); ++i) o.set(i, 3.0 * o[i]);
  CHECK(names(diagnosis(record), "larger_pool", false));
}

TEST_CASE("a right capture has no mistakes, whatever it holds") {
  Record record = capture_of("op=gdn mode=decode B=2 H=1 HV=2 K=16 V=8 gate=log", {});
  record.inputs["a"] = record.inputs.at("g");
  CHECK(diagnosis(record).of_capture.empty());
}

}  // namespace
}  // namespace goldenrule::explain::test

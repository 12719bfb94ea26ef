// SPDX-License-Identifier: Apache-2.0
//
// goldenrule_emulate_backward CASE_LINE FILE [STAGE ...]: a capture of an honest kernel of
// gradients as large as the case says, to measure what `check` takes for it. The kernel is emulated
// under the contract that the call implies; the stages that are named are in the capture, in the
// type of q.
//
// Captures of exact outputs may not show all of it: an element that is out of budget by chance is
// asked again (reference/verdict/confirm.hpp), and no exact one is.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/suite.hpp"
#include "fixtures/schema/write.hpp"
#include "reference/backward/emulation/emulate.hpp"
#include "reference/backward/slice.hpp"
#include "reference/calls/kernel.hpp"

namespace {

using namespace goldenrule;

constexpr std::uint64_t kSeed = 7;

schema::Fixture capture(const std::string& line, const std::vector<std::string>& stages) {
  schema::Fixture fixture;
  call::Record& record = fixture.record;
  record = cases::make_record(cases::parse(line));
  const verdict::Slice& slice = backward::slice();
  const contract::Contract& contract = slice.default_contract(record);
  record.outputs = calls::stored(record, contract, slice.emulate(record, contract, kSeed));
  if (stages.empty()) return fixture;
  call::TensorMap all = backward::emulate_stages(record, contract, kSeed);
  const call::DType type = record.inputs.at("q").dtype();
  fixture.stage_chunk = contract.adjoint()->chunk;
  for (const std::string& name : stages) {
    const auto found = all.find(name);
    if (found == all.end()) {
      throw Error(ErrorKind::kArgument, "STAGE", "a stage of a backward pass", name);
    }
    fixture.stages[name] = call::Tensor(type, found->second.shape(), found->second.to_doubles());
    all.erase(found);
  }
  return fixture;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: {} CASE_LINE FILE [STAGE ...]\n", argv[0]);
    return 2;
  }
  try {
    schema::write_fixture(argv[2], capture(argv[1], {argv + 3, argv + argc}));
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}

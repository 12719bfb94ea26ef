// SPDX-License-Identifier: Apache-2.0
//
// The direct form of the backward pass: without roundings it is the adjoint to fp32, every point
// that its contract declares is rounded at, and what it declares is neither more nor less than what
// the kernel's gradients take.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "reference/backward/emulation/emulate.hpp"
#include "reference/backward/slice.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/verdict/stages.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using cases::record_of;
using contract::AdjointPoint;
using contract::AdjointRounding;

namespace {

const std::string kHeads = " mode=prefill lens=70,150,1 H=1 HV=2 K=24 V=16 h0=1 dstate=1";

contract::Contract in_direct_form(contract::Contract contract) {
  std::get<contract::ChunkedAdjoint>(contract.model).form = contract::Form::kDirect;
  return contract;
}

bool in_budget(const verdict::TensorReport& report) {
  return report.out_of_budget == 0 && report.unbounded == 0;
}

bool are_same(const call::TensorMap& a, const call::TensorMap& b) {
  return std::ranges::all_of(
      a, [&](const auto& x) { return x.second.to_doubles() == b.at(x.first).to_doubles(); });
}

}  // namespace

TEST_CASE(
    "backward, direct form: without roundings it keeps the budgets of fp32, stages included") {
  for (const std::string op : {"op=gdn_backward", "op=kda_backward"}) {
    for (const std::string pattern :
         {" pattern=A", " pattern=C100", " pattern=Dslow", " pattern=Dmixed", " pattern=Dhard"}) {
      const call::Record record = record_of(op + kHeads + " io=f32" + pattern);
      CAPTURE(record.case_line);
      const contract::Contract& fp32 = contract::find_contract("adjoint_f32");
      const contract::Contract direct = in_direct_form(fp32);
      const verdict::Slice& slice = backward::slice();
      verdict::Expectations expected = slice.evaluate(record, scalar::Precision::kDouble, {});
      slice.grant(record, fp32, verdict::GrantDetail::kSpread, expected);
      for (const auto& [name, tensor] :
           calls::stored(record, fp32, slice.emulate(record, direct, 3))) {
        CAPTURE(name);
        CHECK(in_budget(verdict::judge(name, tensor, expected.outputs.at(name), fp32)));
      }
      verdict::KernelStages stages;
      for (const auto& [name, t] : backward::emulate_stages(record, direct, 3)) {
        stages.tensors[name] = call::Tensor(call::DType::kF32, t.shape(), t.to_doubles());
      }
      stages.chunk = direct.adjoint()->chunk;
      for (const auto& stage : verdict::judge_stages(slice, record, fp32, stages).stages) {
        CAPTURE(stage.tensor.name);
        CHECK(in_budget(stage.tensor));
      }
    }
  }
}

TEST_CASE("backward, direct form: its contract rounds at each point that it declares, no other") {
  const contract::Contract& declared = contract::find_contract("adjoint64_direct");
  const call::Record record = record_of("op=gdn_backward" + kHeads + " pattern=A");
  const call::TensorMap outputs = backward::slice().emulate(record, declared, 3);
  std::set<std::string> without;
  for (std::size_t i = 0; i < contract::kAdjointPoints; ++i) {
    contract::Contract other = declared;
    auto& point = std::get<contract::ChunkedAdjoint>(other.model).points[i];
    const std::string name(contract::name_of(static_cast<AdjointPoint>(i)));
    CAPTURE(name);
    const bool is_declared = point != AdjointRounding::kNone;
    point = is_declared ? AdjointRounding::kNone : AdjointRounding::kTypeOfQ;
    const bool changes = !are_same(outputs, backward::slice().emulate(record, other, 3));
    if (is_declared) {
      CHECK(changes);
    } else if (!changes) {
      without.insert(name);
    }
  }
  // beta and decays are in the matrices, and u, w and dw are not there at all.
  CHECK(without == std::set<std::string>{"beta_k", "beta_v", "dw", "erase_key", "key_halves",
                                         "key_in", "pair_diagonal", "u", "w"});
}

TEST_CASE("backward, direct form: one factor of a pair, so that gates keep their digits") {
  const call::Record record =
      record_of("op=gdn_backward mode=prefill lens=128 H=1 HV=4 K=64 V=64 gate=log pattern=Dbound");
  const contract::Contract& direct = contract::find_contract("adjoint64_direct");
  const verdict::Slice& slice = backward::slice();
  verdict::Expectations expected = slice.evaluate(record, scalar::Precision::kDouble, {});
  slice.grant(record, direct, verdict::GrantDetail::kSpread, expected);
  const auto refused = [&](const char* of) {
    const contract::Contract& contract = contract::find_contract(of);
    const call::TensorMap outputs =
        calls::stored(record, contract, slice.emulate(record, contract, 3));
    return verdict::judge("dg", outputs.at("dg"), expected.outputs.at("dg"), direct).out_of_budget;
  };
  CHECK(refused("adjoint64_direct") == 0);
  CHECK(refused("adjoint64_16bit_pairs") == 0);
  call::TensorMap outputs = slice.emulate(record, direct, 3);
  call::Tensor& dg = outputs.at("dg");
  const std::vector<double>& golden = expected.outputs.at("dg").exact.golden;
  for (std::int64_t i = 0; i < dg.size(); ++i) {
    dg.set(i, golden[static_cast<std::size_t>(i)] * 1.1);
  }
  CHECK(verdict::judge("dg", calls::stored(record, direct, {{"dg", dg}}).at("dg"),
                       expected.outputs.at("dg"), direct)
            .out_of_budget > 0);
}

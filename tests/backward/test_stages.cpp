// SPDX-License-Identifier: Apache-2.0
//
// Length: a case per property of stages, on calls that they share.
//
// Stages of the backward pass: their exact values against the gradients and one another, honest
// kernels, mistakes at the stage in which they are made, and saved tensors that count.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "reference/arbiter/examine.hpp"
#include "reference/backward/emulation/emulate.hpp"
#include "reference/backward/mistakes/chain.hpp"
#include "reference/backward/mistakes/variant.hpp"
#include "reference/backward/rule/stages.hpp"
#include "reference/backward/slice.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/verdict/stages.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using cases::record_of;
using verdict::Verdict;

namespace {

const std::string kPlain =
    " mode=prefill lens=70,150 K=16 V=12 io=f32 gate=log beta=direct qk_l2norm=none h0=1 dstate=1 "
    "pattern=A";
const std::string kStaged = " mode=prefill lens=150,40 H=1 HV=2 K=24 V=16 h0=1 dstate=1 pattern=A";

std::vector<std::string> stage_names() {
  std::vector<std::string> names;
  for (const verdict::StageRow& row : backward::stage_table()) names.emplace_back(row.name);
  return names;
}

verdict::StagesReport judged_stages(const call::Record& record, call::TensorMap stages,
                                    std::map<std::string, std::string> forms = {}) {
  const contract::Contract& contract = backward::slice().default_contract(record);
  return verdict::judge_stages(
      backward::slice(), record, contract,
      {.tensors = std::move(stages), .chunk = 0, .forms = std::move(forms)});
}

call::TensorMap in_type(call::DType type, const call::TensorMap& from) {
  call::TensorMap to;
  for (const auto& [name, t] : from) to[name] = call::Tensor(type, t.shape(), t.to_doubles());
  return to;
}

call::TensorMap honest_stages(const call::Record& record) {
  return in_type(record.inputs.at("q").dtype(),
                 backward::emulate_stages(record, backward::slice().default_contract(record), 5));
}

std::string first_bad(const verdict::StagesReport& report) {
  return report.first_bad ? report.first_bad->name : "";
}

// The largest difference over the largest value.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::fabs(a[i] - b[i]));
    size = std::max(size, std::fabs(a[i]));
  }
  return difference / size;
}

}  // namespace

TEST_CASE("backward stages: raw adds up to dg, T^T du to dv / beta, and heads to dq and dk") {
  constexpr std::int64_t C = 32;
  for (const std::string op : {"op=gdn_backward H=1 HV=2", "op=kda_backward H=1 HV=2"}) {
    const call::Record record = record_of(op + kPlain);
    const call::Dims d = call::validate(record);
    const call::TensorMap exact = verdict::exact_stages(*backward::slice().stages, record, C);
    const verdict::Expectations gradients =
        backward::evaluate(record, scalar::Precision::kQuad, {});
    const auto golden = [&](const char* name) { return gradients.outputs.at(name).exact.golden; };
    const std::int64_t gates = call::gate_channels(record, d.K);
    std::vector<double> dg(golden("dg").size(), 0.0);
    std::vector<double> dv(golden("dv").size(), 0.0);
    std::vector<double> dq(golden("dq").size(), 0.0);
    std::vector<double> dk(dq);
    for (const backward::Sequence& s : backward::sequences_of(record, d)) {
      for (std::int64_t t = 0; t < s.count; ++t) {
        const std::int64_t end = std::min((t / C + 1) * C, s.count);
        for (std::int64_t head = 0; head < d.HV; ++head) {
          const std::int64_t at = (s.first + t) * d.HV + head;
          const auto row = [&](std::int64_t other) { return (s.first + other) * d.HV + head; };
          for (std::int64_t g = 0; g < gates; ++g) {
            for (std::int64_t l = t; l < end; ++l) {
              dg[static_cast<std::size_t>(at * gates + g)] += exact.at("raw")[row(l) * gates + g];
            }
          }
          for (std::int64_t x = 0; x < d.V; ++x) {
            double sum = 0.0;
            for (std::int64_t l = t; l < end; ++l) {
              sum += exact.at("T")[row(l) * C + t % C] * exact.at("du")[row(l) * d.V + x];
            }
            dv[static_cast<std::size_t>(at * d.V + x)] = sum * record.inputs.at("beta")[at];
          }
          for (std::int64_t i = 0; i < d.K; ++i) {
            const auto to = static_cast<std::size_t>((s.first + t) * d.K + i);
            dq[to] += exact.at("dq")[at * d.K + i];
            dk[to] += exact.at("dk")[at * d.K + i];
          }
        }
      }
    }
    CHECK(distance(golden("dg"), dg) < 1e-13);
    CHECK(distance(golden("dv"), dv) < 1e-13);
    CHECK(distance(golden("dq"), dq) < 1e-13);
    CHECK(distance(golden("dk"), dk) < 1e-13);
  }
}

TEST_CASE("backward stages: the exact ones are those of a chunked adjoint in double") {
  for (const std::string op : {"op=gdn_backward H=1 HV=2", "op=kda_backward H=2 HV=2"}) {
    const call::Record record = backward::plain_call(record_of(op + kPlain));
    const call::TensorMap exact =
        verdict::exact_stages(*backward::slice().stages, record, backward::kChunk);
    const call::TensorMap plain = backward::variant_stages({}, record);
    CHECK(plain.size() == 13);
    for (const auto& [name, stage] : plain) {
      CAPTURE(name);
      if (name == "T" || name == "P" || name == "dP") {
        CHECK(distance(exact.at(name).to_doubles(), stage.to_doubles()) < 1e-12);
      } else {
        CHECK(distance(exact.at(name).to_doubles(), stage.to_doubles()) < 1e-11);
      }
    }
  }
}

TEST_CASE("backward stages: a radius covers what the tiers differ by") {
  for (const char* pattern : {"A", "Dslow", "Dbound", "C100", "Dmixed"}) {
    for (const std::string op : {"op=gdn_backward", "op=kda_backward"}) {
      const call::Record record = record_of(op +
                                            " mode=prefill lens=70,33 H=1 HV=2 K=16 V=12 h0=1 "
                                            "dstate=1 pattern=" +
                                            pattern);
      const auto low =
          backward::evaluate_stages(record, 32, stage_names(), scalar::Precision::kDouble);
      const auto high =
          backward::evaluate_stages(record, 32, stage_names(), scalar::Precision::kQuad);
      for (const auto& [name, stage] : low) {
        CAPTURE(name);
        const verdict::Exact& a = stage.expected.exact;
        const verdict::Exact& b = high.at(name).expected.exact;
        std::int64_t outside = 0;
        std::int64_t differing = 0;
        for (std::size_t i = 0; i < a.golden.size(); ++i) {
          if (!a.is_defined(i)) continue;
          const double off = std::fabs(a.golden[i] - b.golden[i]);
          outside += off > static_cast<double>(a.radius[i]) + static_cast<double>(b.radius[i]);
          differing += off > 0.0;
        }
        CHECK(outside == 0);
        CHECK(differing > 0);
      }
    }
  }
}

TEST_CASE("backward stages: emulated kernels pass in every type and declared form") {
  for (const std::string op : {"op=gdn_backward", "op=kda_backward"}) {
    for (const std::string io : {"", " io=f16", " io=f32", " state_layout=kv"}) {
      CAPTURE(io);
      const call::Record record = record_of(op + kStaged + io);
      const verdict::StagesReport report = judged_stages(record, honest_stages(record));
      CHECK(first_bad(report) == "");
      REQUIRE(report.stages.size() == 15);
      for (const verdict::StageReport& stage : report.stages) {
        CAPTURE(stage.tensor.name);
        CAPTURE(stage.tensor.reason);
        CHECK(verdict::is_pass(stage.tensor.verdict));
      }
    }
  }
}

// The first h and the last dh are given in fp32. Nothing but their storage in bf16 may err: the
// largest of a thousand such errors is half an ulp, which is the whole budget. It is no budget that
// follows the error, as the number on the other side of the exact one is refused everywhere.
TEST_CASE("backward stages: given states take all of their budget, and the next number is out") {
  for (const std::string op : {"op=gdn_backward", "op=kda_backward"}) {
    const call::Record record = record_of(op + kStaged);
    const call::TensorMap honest = honest_stages(record);
    const call::TensorMap exact =
        verdict::exact_stages(*backward::slice().stages, record, backward::kChunk);
    const auto report_of = [&](const std::string& name, const call::Tensor& t) {
      return judged_stages(record, {{name, t}}).stages.front().tensor;
    };
    for (const auto& [name, given] : {std::pair("h", 0), {"dh", 2}}) {  // of chunks 0 to 2
      CAPTURE(std::string(name));
      const call::Tensor& t = honest.at(name);
      const verdict::TensorReport report = report_of(name, t);
      CHECK(report.max_ratio > 0.99);
      CHECK(report.max_ratio <= 1.0);
      const std::int64_t chunk = report.worst->index[0];
      CHECK((chunk == given || chunk == 3));  // the other sequence has one chunk
      const std::int64_t width = t.size() / t.shape()[0];
      call::Tensor moved = t;
      for (std::int64_t i = given * width; i < (given + 1) * width; ++i) {
        const double right = exact.at(name)[i];
        moved.set(i, t[i] + std::copysign(call::ulp(t.dtype(), right), right - t[i]));
      }
      CHECK(report_of(name, moved).out_of_budget == width);
    }
    const call::Record without = record_of(op + " mode=prefill lens=150,40 H=1 HV=2 K=24 V=16");
    const call::TensorMap stages = honest_stages(without);
    for (const char* name : {"h", "dh"}) {
      CAPTURE(std::string(name));
      const auto report = judged_stages(without, {{name, stages.at(name)}});
      CHECK(report.stages.front().tensor.max_ratio < 0.7);
    }
  }
}

TEST_CASE("backward stages: what is planted in one stage, chunk and head is said there") {
  for (const std::string op : {"op=gdn_backward", "op=kda_backward"}) {
    const call::Record record = record_of(op + kStaged);
    for (const std::string& name : stage_names()) {
      CAPTURE(name);
      call::TensorMap stages = honest_stages(record);
      call::Tensor& t = stages.at(name);
      const bool of_chunks = name == "h" || name == "dh";
      const std::int64_t width = t.size() / t.shape()[0] / 2;
      const std::int64_t outer = of_chunks ? 1 : 100;  // chunk 1 of sequence 0
      double size = 0.0;
      for (std::int64_t i = 0; i < width; ++i) {
        size = std::max(size, std::fabs(t[(outer * 2 + 1) * width + i]));
      }
      const std::int64_t at = (outer * 2 + 1) * width;
      t.set(at, t[at] + 0.5 * size);
      const verdict::StagesReport report = judged_stages(record, std::move(stages));
      REQUIRE(first_bad(report) == name);
      const verdict::BadStage& bad = *report.first_bad;
      CHECK(bad.sequence == 0);
      CHECK(bad.chunk == 1);
      CHECK(bad.elements == 1);
      CHECK(bad.worst.index[0] == outer);
      CHECK(bad.worst.index[1] == 1);
    }
  }
}

TEST_CASE("backward stages: of two bad stages the saved one, and of a walk back the later chunk") {
  const call::Record record = record_of("op=gdn_backward" + kStaged);
  const auto planted = [&](std::vector<std::pair<std::string, std::int64_t>> places) {
    call::TensorMap stages = honest_stages(record);
    for (const auto& [name, outer] : places) {
      call::Tensor& t = stages.at(name);
      t.set(outer * t.size() / t.shape()[0], 1e3);
    }
    return judged_stages(record, std::move(stages));
  };
  CHECK(first_bad(planted({{"dh", 0}, {"h", 2}})) == "h");
  CHECK(first_bad(planted({{"dh", 0}, {"du", 140}})) == "du");
  CHECK(first_bad(planted({{"dh", 2}, {"du", 10}})) == "dh");
  const verdict::StagesReport twice = planted({{"dh", 0}, {"dh", 1}});
  CHECK(twice.first_bad->chunk == 1);
}

TEST_CASE("backward stages: mistakes of a chunked adjoint are said at the stage they are made in") {
  using namespace backward;
  struct Row {
    std::string what;
    ChunkVariant variant;
    std::string first;  // "": what is wrong lies behind all stages
    const char* pattern = "Dslow";
  };
  const Row rows[]{{"none", {}, ""},
                   {"the state after the chunk", {.state_after = true}, "h"},
                   {"dh stored after the decay", {.stored_decayed = true}, "dh"},
                   {"dfinal_state added per chunk", {.carry = Carry::kStateGradient}, "dh"},
                   {"no erase in the carry", {.carry = Carry::kNoErase}, "dh"},
                   {"the carry of a rank is lost", {.carry = Carry::kLost}, "dh"},
                   {"dP without its diagonal", {.dp_diagonal = false}, "dP"},
                   {"dP masked the other way", {.dp_reversed = true}, "dP"},
                   {"decays of the row before", {.pairs = PairDecay::kShifted}, "dq", "Dmixed"},
                   {"dM negated", {.inverse = InverseAdjoint::kNegated}, "dM"},
                   {"dM with its diagonal", {.inverse = InverseAdjoint::kDiagonal}, "dM"},
                   {"one T^T missing", {.inverse = InverseAdjoint::kOneFactor}, "dM"},
                   {"T for T^T in dM", {.inverse = InverseAdjoint::kUntransposed}, "dM"},
                   {"v_new for v in dT", {.corrected_in_dt = true}, "dM"},
                   {"no <h, dh>", {.last_row = LastRow::kNoState}, "raw"},
                   {"raw without erase terms", {.raw = RawTerms::kNoErase}, "raw"},
                   {"a forward sum of raw", {.sum = GateSum::kForward}, ""},
                   {"v_new for v in dbeta", {.corrected_in_dbeta = true}, ""}};
  for (const std::string op : {"op=gdn_backward H=1 HV=2", "op=kda_backward H=1 HV=1"}) {
    CAPTURE(op);
    for (const Row& row : rows) {
      CAPTURE(row.what);
      const call::Record record = plain_call(record_of(
          op +
          " mode=prefill lens=200,70 K=16 V=12 io=f32 gate=log beta=direct qk_l2norm=none h0=1 "
          "dstate=1 pattern=" +
          row.pattern));
      const contract::Contract& contract = contract::find_contract("adjoint_f32");
      const verdict::StagesReport report = verdict::judge_stages(
          slice(), record, contract,
          {.tensors = in_type(call::DType::kF32, variant_stages(row.variant, record)),
           .chunk = kChunk});
      CHECK(first_bad(report) == row.first);
      CHECK(report.stages.size() == 13);
    }
  }
}

TEST_CASE("backward stages: a wrong saved tensor is refused though the gradients are right") {
  for (const std::string& name : stage_names()) {
    CAPTURE(name);
    call::Record record = record_of("op=kda_backward" + kStaged);
    const contract::Contract& contract = backward::slice().default_contract(record);
    record.outputs =
        calls::stored(record, contract, backward::slice().emulate(record, contract, 3));
    verdict::KernelStages stages{.tensors = honest_stages(record)};
    arbiter::Examination asked;
    asked.stages = stages;
    CHECK(arbiter::examine(record, asked).report.verdict == Verdict::kWithinBudget);
    call::Tensor& t = stages.tensors.at(name);
    t.set(0, t[0] + 1e3);
    asked.stages = stages;
    const report::FileReport report = arbiter::examine(record, asked);
    REQUIRE(report.stages->first_bad);
    CHECK(report.stages->first_bad->name == name);
    const bool saved = name == "T" || name == "P" || name == "h" || name == "o";
    CHECK(report.report.verdict == (saved ? Verdict::kOutOfBudget : Verdict::kWithinBudget));
    if (saved) CHECK(report.report.reason.find(", but " + name + ",") != std::string::npos);
  }
}

TEST_CASE("backward stages: forms, shapes and lanes that are no numbers") {
  call::Record record = record_of("op=gdn_backward" + kStaged);
  const call::TensorMap right = honest_stages(record);
  call::TensorMap other{{"dh", call::Tensor(call::DType::kF32, {5, 2, 24, 16})}};
  CHECK_THROWS_WITH_AS((void)judged_stages(record, other), doctest::Contains("chunks,HV,state"),
                       Error);
  CHECK_THROWS_WITH_AS((void)judged_stages(record, {{"G", right.at("du")}}),
                       doctest::Contains("one of T, P, w, u, h, v_new, o, dh, du"), Error);
  CHECK_THROWS_WITH_AS((void)judged_stages(record, {{"du", right.at("du")}}, {{"du", "log2"}}),
                       doctest::Contains("/stages/du@form"), Error);
  const double scale = call::resolved_scale(record.convention, 24);
  call::TensorMap dq{{"dq", right.at("dq")}};
  for (std::int64_t i = 0; i < dq.at("dq").size(); ++i) dq.at("dq").set(i, dq.at("dq")[i] / scale);
  CHECK(judged_stages(record, dq).stages.front().tensor.verdict == Verdict::kSkipped);
  CHECK(verdict::is_pass(
      judged_stages(record, dq, {{"dq", "scaled"}}).stages.front().tensor.verdict));
  record.inputs.at("do").set(0, std::nan(""));
  const auto lanes = backward::evaluate_stages(record, 64, {"du"}, scalar::Precision::kDouble);
  const verdict::Exact& du = lanes.at("du").expected.exact;
  CHECK_FALSE(du.is_defined(0));
  CHECK(du.is_defined(16));
}

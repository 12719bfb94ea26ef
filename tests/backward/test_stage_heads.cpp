// SPDX-License-Identifier: Apache-2.0
//
// Stages by some heads at a time against all heads together: what is exact, what is granted, to
// stages and to the gradients that share their runs, and every count of a report.
//
// Length: the same calls by heads and together, and the memory that each takes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "reference/backward/emulation/emulate.hpp"
#include "reference/backward/rule/call_lanes.hpp"
#include "reference/backward/rule/lane_stages.hpp"
#include "reference/backward/rule/stages.hpp"
#include "reference/backward/slice.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/verdict/stages.hpp"
#include "reference/verdict/tally.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using cases::record_of;
using scalar::Precision;
using verdict::StageHeads;

namespace {

const std::vector<std::string> kCalls{
    "op=gdn_backward mode=prefill lens=70,0,40 H=2 HV=4 K=24 V=16 h0=1 dstate=1 pattern=A",
    "op=kda_backward mode=prefill lens=90 H=2 HV=6 K=16 V=16 h0=1 pattern=A head_map=tiled "
    "state_layout=kv",
    "op=kda_backward mode=prefill lens=65 H=3 HV=3 K=16 V=12 h0=1 dstate=1 pattern=Dslow"};

struct Granted {
  std::map<std::string, call::DType> stored;
  verdict::ExpectedStages stages;
  verdict::Expectations outputs;
};

Granted together(const call::Record& record, const contract::Contract& contract) {
  const verdict::Slice& slice = backward::slice();
  Granted all;
  std::vector<std::string> names;
  for (const verdict::StageRow& row : slice.stages->table()) {
    names.emplace_back(row.name);
    all.stored[names.back()] = record.inputs.at("q").dtype();
  }
  all.stages = slice.stages->evaluate(record, contract.adjoint()->chunk, names, Precision::kDouble);
  slice.stages->grant(record, contract, all.stored, all.stages);
  all.outputs = slice.evaluate(record, Precision::kDouble, {});
  slice.grant(record, contract, verdict::GrantDetail::kSpread, all.outputs);
  return all;
}

// What the heads of a part have of the elements of the whole, each row having `width` a head.
template <class T>
std::vector<T> of_heads(const std::vector<T>& whole, const std::vector<std::int64_t>& heads,
                        std::int64_t all, std::size_t rows) {
  if (whole.empty()) return {};
  const std::size_t width = whole.size() / rows / static_cast<std::size_t>(all);
  std::vector<T> part;
  for (std::size_t row = 0; row < rows; ++row) {
    for (const std::int64_t head : heads) {
      const std::size_t first =
          (row * static_cast<std::size_t>(all) + static_cast<std::size_t>(head)) * width;
      for (std::size_t i = 0; i < width; ++i) part.push_back(whole[first + i]);
    }
  }
  return part;
}

// Heads without an undefined element have no list of them.
std::vector<bool> listed(const verdict::Exact& exact) {
  return exact.undefined.empty() ? std::vector<bool>(exact.golden.size()) : exact.undefined;
}

void check_part(const verdict::Expected& part, const verdict::Expected& whole,
                const std::vector<std::int64_t>& heads) {
  const std::int64_t all = whole.exact.shape[1];
  const auto same = [&](const auto& x, const auto& y) {
    CHECK(x == of_heads(y, heads, all, static_cast<std::size_t>(whole.exact.shape[0])));
  };
  same(part.exact.golden, whole.exact.golden);
  same(part.exact.radius, whole.exact.radius);
  same(part.exact.reach, whole.exact.reach);
  same(part.exact.unit, whole.exact.unit);
  same(listed(part.exact), listed(whole.exact));
  CHECK(part.grant.given == whole.grant.given);
  CHECK(part.grant.multiple == whole.grant.multiple);
  same(part.grant.spread, whole.grant.spread);
  same(part.grant.flushed, whole.grant.flushed);
  same(part.grant.anything, whole.grant.anything);
  same(part.grant.overflows, whole.grant.overflows);
}

void check_same(const verdict::TensorReport& a, const verdict::TensorReport& b) {
  CHECK(a.verdict == b.verdict);
  CHECK(a.reason == b.reason);
  for (const auto count : {&verdict::TensorReport::compared, &verdict::TensorReport::nonfinite,
                           &verdict::TensorReport::undefined, &verdict::TensorReport::out_of_budget,
                           &verdict::TensorReport::undecided, &verdict::TensorReport::unbounded,
                           &verdict::TensorReport::vacuous, &verdict::TensorReport::nan,
                           &verdict::TensorReport::inf, &verdict::TensorReport::unwritten}) {
    CHECK(a.*count == b.*count);
  }
  CHECK(a.first_unjudged == b.first_unjudged);
  CHECK(a.max_abs == b.max_abs);
  CHECK(a.max_ratio == b.max_ratio);
  CHECK(a.median_ratio == b.median_ratio);
  CHECK(a.rms_rel == doctest::Approx(b.rms_rel).epsilon(1e-12));
  CHECK(a.bias == doctest::Approx(b.bias).epsilon(1e-12));
  CHECK(a.ulp_histogram == b.ulp_histogram);
  CHECK(a.ratio_histogram == b.ratio_histogram);
  REQUIRE(a.worst.has_value() == b.worst.has_value());
  if (a.worst) {
    CHECK(a.worst->index == b.worst->index);
    CHECK(a.worst->budget == b.worst->budget);
  }
  const auto rows = [](const verdict::TensorReport& report) {
    std::vector<std::int64_t> all;
    for (const verdict::RowFindings& r : report.failing_rows) {
      all.insert(all.end(), {r.row, r.out_of_budget, r.nan, r.elements});
    }
    return all;
  };
  CHECK(rows(a) == rows(b));
}

}  // namespace

TEST_CASE("backward stages: by heads they and the gradients are granted what they are together") {
  for (const std::string& line : kCalls) {
    CAPTURE(line);
    const call::Record record = record_of(line);
    const contract::Contract& contract = backward::slice().default_contract(record);
    const Granted all = together(record, contract);
    verdict::Expectations beside = backward::slice().evaluate(record, Precision::kDouble, {});
    std::vector<std::int64_t> seen;
    const auto take = [&](StageHeads&& part) {
      seen.insert(seen.end(), part.heads.begin(), part.heads.end());
      CHECK(part.last == (std::ssize(seen) == call::validate(record).HV));
      REQUIRE(part.stages.size() == all.stages.size());
      for (const auto& [name, stage] : part.stages) {
        CAPTURE(name);
        check_part(stage.expected, all.stages.at(name).expected, part.heads);
      }
    };
    backward::slice().stages->by_heads(record, contract, all.stored, Precision::kDouble, &beside,
                                       take);
    CHECK(std::ssize(seen) == call::validate(record).HV);
    REQUIRE(beside.outputs.size() == all.outputs.outputs.size());
    for (const auto& [name, e] : beside.outputs) {
      CAPTURE(name);
      const verdict::Grant& grant = all.outputs.outputs.at(name).grant;
      CHECK(std::ranges::any_of(grant.spread, [](float x) { return x > 0.0F; }));
      CHECK(e.grant.spread == grant.spread);
      CHECK(e.grant.given == grant.given);
      CHECK(e.grant.multiple == grant.multiple);
      CHECK(e.grant.flushed == grant.flushed);
      CHECK(e.grant.anything == grant.anything);
      CHECK(e.grant.overflows == grant.overflows);
    }
  }
}

TEST_CASE("backward stages: a report by heads is that of all heads together") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::string& line : kCalls) {
    CAPTURE(line);
    const call::Record record = record_of(line);
    const contract::Contract& contract = backward::slice().default_contract(record);
    const Granted all = together(record, contract);
    const call::TensorMap honest = backward::emulate_stages(record, contract, 5);
    for (const bool planted : {false, true}) {
      for (const auto& [name, stage] : all.stages) {
        CAPTURE(name);
        const call::Tensor& exact = honest.at(name);
        call::Tensor tensor(all.stored.at(name), exact.shape(), exact.to_doubles());
        const std::int64_t row = tensor.size() / tensor.shape()[0];
        for (std::int64_t i = 0; planted && i < row; ++i) tensor.set(i, nan);
        if (planted) tensor.set(tensor.size() - 1, 1e3);  // all of row 0, and two of the last one
        if (planted) tensor.set(tensor.size() - row, 1e3);
        verdict::Tally tally(name, tensor);
        for (std::int64_t head = tensor.shape()[1]; head-- > 0;) {
          verdict::Expected part = stage.expected;
          const auto cut = [&](auto& x) {
            x = of_heads(x, {head}, tensor.shape()[1], static_cast<std::size_t>(tensor.shape()[0]));
          };
          cut(part.exact.golden), cut(part.exact.radius), cut(part.exact.reach);
          cut(part.exact.unit), cut(part.exact.undefined), cut(part.exact.touched);
          cut(part.grant.spread), cut(part.grant.flushed), cut(part.grant.anything);
          cut(part.grant.overflows);
          part.exact.shape[1] = 1;
          const std::vector<std::int64_t> heads{head};
          tally.add(verdict::heads_of(tensor, heads), heads, part, contract);
        }
        const verdict::TensorReport whole = verdict::judge(name, tensor, stage.expected, contract);
        CHECK(verdict::is_pass(whole.verdict) == !planted);
        if (planted) CHECK(whole.nan > 0);
        check_same(tally.finished(contract), whole);
      }
    }
  }
}

TEST_CASE("verdicts: the median of many ratios is found by its leading bits") {
  verdict::Median median;
  std::vector<float> all;
  for (int part = 0; part < 3; ++part) {
    std::vector<float> ratios;
    for (std::int64_t i = 0; i < verdict::kFewRatios / 2; ++i) {
      ratios.push_back(std::exp(std::sin(static_cast<float>(i * 7 + part))) / 9.0F);
    }
    all.insert(all.end(), ratios.begin(), ratios.end());
    median.add(std::move(ratios));
    std::vector<float> sorted = all;
    const double exact = verdict::median_of(sorted);
    if (part < 2) {
      CHECK(median.value() == exact);
    } else {
      CHECK(median.value() <= exact);
      CHECK(median.value() >= exact * (1 - 0x1p-11));
    }
  }
}

TEST_CASE("verdicts: ratios of refused elements are at the end of the many") {
  const float infinite = std::numeric_limits<float>::infinity();
  verdict::Median median;
  median.add(std::vector<float>(static_cast<std::size_t>(verdict::kFewRatios), 0.0F));
  CHECK(median.value() == 0.0);
  median.add(std::vector<float>(static_cast<std::size_t>(verdict::kFewRatios - 1), infinite));
  CHECK(median.value() == 0.0);
  median.add({infinite});
  CHECK(std::isinf(median.value()));
}

namespace {

// A call of KDA, K = V = 128, with h, w, u, v_new and o in bf16, or without.
double needed(std::int64_t tokens, std::int64_t heads, bool stages) {
  const call::Shape values{tokens, heads, 128};
  const double elements = static_cast<double>(tokens * heads * 128);
  verdict::Declared call;
  call.op = call::Op::kKdaBackward;
  call.mode = call::Mode::kPrefill;
  call.inputs = {{"q", values}, {"v", values}, {"g", values}, {"cu_seqlens", {2}}};
  call.tensor_bytes = elements * (stages ? 32 : 20);
  if (stages) {
    for (const char* name : {"w", "u", "v_new", "o"}) call.stages[name] = values;
    call.stages["h"] = {tokens / 64, heads, 128, 128};
  }
  return backward::slice().memory_needed(call, 2).verdict;
}

}  // namespace

TEST_CASE("backward stages: the memory needed covers what was measured, and holds a few heads") {
  struct Row {
    std::int64_t tokens, heads;
    double measured;  // of `check`, 2 threads, where the narrowest tier decides
  };
  for (const Row& row : {Row{1024, 8, 301e6}, Row{2048, 8, 560e6}, Row{2048, 16, 796e6}}) {
    CAPTURE(row.tokens);
    CAPTURE(row.heads);
    CHECK(needed(row.tokens, row.heads, true) > row.measured);
  }
  // Of twice as many heads the tensors alone take more: 12 bytes an element.
  const auto extra = [](std::int64_t heads) {
    return needed(4096, heads, true) - needed(4096, heads, false);
  };
  CHECK(extra(64) - extra(32) == doctest::Approx(32.0 * 4096 * 128 * 12));
}

namespace {

// Numbers that the stages of the one lane of a call hold.
double held_by_lane(const call::Record& record, std::int64_t chunk) {
  const call::Dims d = call::validate(record);
  const backward::Sequence tokens = backward::sequences_of(record, d).front();
  const auto lane = delta::prepare_lane<double>(record, d, delta::CallInputs(record), tokens.first,
                                                tokens.count, 0);
  const auto s =
      backward::lane_stages<double>(lane, backward::lane_inputs(record, d, 0, tokens, 0), chunk);
  const auto& f = s.forward;
  std::int64_t held = f.G.size() + f.A.size() + f.T.size() + f.w.size() + f.u.size() +
                      f.v_new.size() + s.P.value.size() + s.dP.value.size() + s.dM.value.size() +
                      s.o.value.size() + s.du.value.size() + s.dw.value.size() + s.dq.value.size() +
                      s.dk.value.size() + s.raw.value.size();
  for (const auto& h : f.h) held += h.size();
  for (const auto& dh : s.dh) held += dh.value.size();
  return static_cast<double>(held);
}

}  // namespace

TEST_CASE("backward stages: the memory needed covers what a lane holds in chunks of any size") {
  const call::Record record =
      record_of("op=gdn_backward mode=prefill lens=600 H=1 HV=1 K=8 V=8 h0=1 dstate=1");
  verdict::Declared call;
  call.op = call::Op::kGatedDeltaRuleBackward;
  call.mode = call::Mode::kPrefill;
  for (const auto& [name, tensor] : record.inputs) call.inputs[name] = tensor.shape();
  const double without = backward::slice().memory_needed(call, 1).verdict;
  call.stages["dM"] = {0, 1, 64};  // one that itself takes nothing
  for (const std::int64_t chunk : {16, 64, 256}) {
    CAPTURE(chunk);
    call.stage_chunk = chunk;
    const double lane = backward::slice().memory_needed(call, 1).verdict - without;
    CHECK(lane >= held_by_lane(record, chunk) * static_cast<double>(sizeof(scalar::Multi) + 8));
  }
}

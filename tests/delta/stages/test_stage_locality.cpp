// SPDX-License-Identifier: Apache-2.0
//
// No element is paid for by another (delta/emulation/locality.hpp): the stages of chunked prefill,
// by a value channel, a later chunk and other sequences, a head, queries and a gate.
#include <map>

#include "reference/verdict/stages.hpp"
#include "tests/delta/emulation/locality.hpp"

using namespace goldenrule;
using namespace goldenrule::test;

namespace {

struct Stages {
  call::TensorMap kernel;
  verdict::ExpectedStages expected;
};

Stages stages_of(const call::Record& record, const contract::Contract& contract) {
  Stages stages;
  std::vector<std::string> names;
  std::map<std::string, call::DType> stored;
  for (const auto& [name, exact] : delta::emulate_stages(record, contract, 5)) {
    names.push_back(name);
    stored[name] = call::DType::kF32;
    stages.kernel.emplace(name, call::Tensor(call::DType::kF32, exact.shape(), exact.to_doubles()));
  }
  const verdict::StageSlice& slice = *delta::slice().stages;
  stages.expected =
      slice.evaluate(record, contract.chunked()->chunk, names, scalar::Precision::kDouble);
  slice.grant(record, contract, stored, stages.expected);
  return stages;
}

// Those of the last sequence.
void change_other_keys(World& w, const Value& f) {
  const call::Plan plan = call::make_plan(w.record, true);
  const std::int64_t first = plan.sequences.back().first_token;
  change(w.record, "k",
         [&](std::int64_t i, double k) { return i / (w.dims.H * w.dims.K) >= first ? f(k) : k; });
}

void change_queries(World& w, const Value& f) {
  change(w.record, "q", [&](std::int64_t i, double q) { return i % 7 == 0 ? f(q) : q; });
}

// The gates of the last head.
void change_gates(World& w, const Value& f) {
  const std::int64_t width = w.record.op == call::Op::kKda ? w.dims.K : 1;
  change(w.record, "g", [&](std::int64_t i, double g) {
    return i / width % w.dims.HV == w.dims.HV - 1 ? -std::fabs(f(g)) : g;
  });
}

using Verdicts = std::map<std::string, verdict::Verdict>;
Verdicts verdicts_of(const call::Record& record, const contract::Contract& contract,
                     const call::TensorMap& kernel) {
  Verdicts verdicts;
  const auto report =
      verdict::judge_stages(delta::slice(), record, contract, {.tensors = kernel, .forms = {}});
  for (const verdict::StageReport& stage : report.stages) {
    verdicts[stage.tensor.name] = stage.tensor.verdict;
  }
  return verdicts;
}

// Of a kernel that is honest: SKIPPED where all is NaN, MISTRUSTED where it was before.
void check_verdicts(const Verdicts& before, const Verdicts& after) {
  for (const auto& item : after) {
    CAPTURE(item.first);
    const bool was_vacuous = before.at(item.first) == verdict::Verdict::kMistrusted;
    const bool passes = is_pass(item.second) || item.second == verdict::Verdict::kSkipped;
    CHECK((passes || (was_vacuous && item.second == verdict::Verdict::kMistrusted)));
  }
}

void stages_hold(const char* line, const contract::Contract& contract,
                 const std::vector<Disturbed>& all) {
  CAPTURE(line);
  CAPTURE(contract.name);
  const World base(line);
  const Stages before = stages_of(base.record, contract);
  const Verdicts verdicts = verdicts_of(base.record, contract, before.kernel);
  for (const Disturbed& what : all) {
    if (rounds_to_f16(contract) && !what.fits_f16) continue;
    CAPTURE(what.name);
    World world = base;
    what.apply(world);
    const Stages after = stages_of(world.record, contract);
    check_verdicts(verdicts, verdicts_of(world.record, contract, after.kernel));
    for (const auto& item : after.kernel) {
      const std::string& name = item.first;
      CAPTURE(name);
      const verdict::Expected& e = after.expected.at(name).expected;
      if (!e.grant.given) continue;
      Unreached part =
          unreached(name, call::DType::kF32, before.expected.at(name).expected, e, contract);
      // Within a chunk masked products may leave NaN: on the diagonal of T, and in a first row of
      // u.
      const bool shares_chunk = what.name == "keys is NaN" || what.name == "gates is NaN";
      if (shares_chunk && (name == "T" || name == "u")) part.lost = 0;
      check_grant(part);
      if (part.elements.empty() || part.signal2 == 0.0) continue;
      CHECK(verdict::judge(name, with_noise_at(item.second, name, part), e, contract).verdict ==
            verdict::Verdict::kOutOfBudget);
    }
  }
}

// Queries and keys keep their norms; no gate is nearly as fast as 2^14 would make it.
std::vector<Disturbed> of_stages() {
  std::vector<Disturbed> all = disturbances<World>(
      {{"channel", change_channel}, {"others", change_others}, {"head", change_head}});
  std::vector<Numbers> small = numbers();
  std::erase_if(small, [](const Numbers& n) { return n.f(1.0) > 1.0; });
  std::ranges::copy(
      disturbances<World>(
          {{"queries", change_queries}, {"keys", change_other_keys}, {"gates", change_gates}},
          small),
      std::back_inserter(all));
  return all;
}

}  // namespace

TEST_CASE("no element is paid for by another: stages of GDN") {
  for (const char* name : {"chunk64_f32", "chunk64_bf16", "chunk16_bf16_state"}) {
    stages_hold("op=gdn mode=prefill lens=70,20 H=1 HV=2 K=16 V=8 gate=log h0=1 io=bf16",
                contract::find_contract(name), of_stages());
  }
}

TEST_CASE("no element is paid for by another: stages of KDA") {
  for (const char* name : {"chunk64_tf32", "chunk64_16bit", "chunk32_bf16_direct"}) {
    stages_hold(
        "op=kda mode=prefill lens=70,20 H=1 HV=2 K=16 V=8 gate=log h0=1 io=bf16 state_layout=kv",
        contract::find_contract(name), of_stages());
  }
}

// SPDX-License-Identifier: Apache-2.0
//
// No element is paid for by another. Inputs that do not reach an element are scaled, replaced or
// poisoned: a value channel, a row of the batch, a later token. What is granted to the element
// stays what it was, noise there is seen, and an honest kernel passes. Which elements a change does
// not reach needs no second definition: their exact results keep their bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "reference/calls/outputs.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/budget.hpp"
#include "tests/delta/emulation/support.hpp"

using namespace goldenrule;
using namespace goldenrule::test;

namespace {

// f(element, value) of input `name`, where it is there.
using Change = std::function<double(std::int64_t, double)>;
void change(call::Record& record, const char* name, const Change& f) {
  const auto found = record.inputs.find(name);
  if (found == record.inputs.end()) return;
  for (std::int64_t i = 0; i < found->second.size(); ++i) {
    found->second.set(i, f(i, found->second[i]));
  }
}

struct World {
  call::Record record;
  call::Dims dims;

  explicit World(const std::string& line) : record(record_of(line)), dims(call::validate(record)) {}

  // What comes into value channel x.
  void channel(std::int64_t x, const std::function<double(double)>& f) {
    const bool vk = record.convention.state_layout == call::StateLayout::kVK;
    change(record, "v", [&](std::int64_t i, double v) { return i % dims.V == x ? f(v) : v; });
    change(record, "initial_state", [&](std::int64_t i, double s) {
      return (vk ? i / dims.K : i) % dims.V == x ? f(s) : s;
    });
  }
  // What comes into the last row, and into the tokens of the first sequence behind a whole chunk.
  void others(const std::function<double(double)>& f) {
    const call::Plan plan = call::make_plan(record, true);
    const call::Sequence& first = plan.sequences.front();
    const call::Sequence& last = plan.sequences.back();
    constexpr std::int64_t kChunk = 64;  // of a contract; numbers meet in products of one chunk
    change(record, "v", [&](std::int64_t i, double v) {
      const std::int64_t token = i / (dims.HV * dims.V);
      const bool later =
          token >= first.first_token + kChunk && token < first.first_token + first.token_count;
      return later || token >= last.first_token ? f(v) : v;
    });
  }
};

struct Disturbed {
  std::string name;
  std::function<void(World&)> apply;
  bool fits_f16;
};

std::vector<Disturbed> disturbances() {
  std::vector<Disturbed> all;
  const auto add = [&](const std::string& what, const auto& f, bool fits_f16) {
    all.push_back({"channel " + what, [=](World& w) { w.channel(w.dims.V / 2, f); }, fits_f16});
    all.push_back({"others " + what, [=](World& w) { w.others(f); }, fits_f16});
  };
  for (const int power : {120, 40, 14, -120}) {
    add(
        "by 2^" + std::to_string(power), [=](double x) { return std::ldexp(x, power); }, false);
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  add(
      "is NaN", [=](double) { return nan; }, true);
  // In a state, 3e38 of each key would leave fp32 in any kernel.
  add(
      "is 1e36", [](double) { return 1e36; }, false);
  return all;
}

struct Unreached {
  double before2 = 0.0, after2 = 0.0, worst = 0.0, signal2 = 0.0;
  std::vector<std::int64_t> elements;
};

Unreached unreached(const std::string& name, const call::Tensor& output,
                    const verdict::Expected& base, const verdict::Expected& e,
                    const contract::Contract& contract) {
  Unreached result;
  const verdict::Budget before(name, output.dtype(), base, contract);
  const verdict::Budget after(name, output.dtype(), e, contract);
  for (std::size_t i = 0; i < e.exact.golden.size(); ++i) {
    if (!e.exact.is_defined(i) || e.exact.golden[i] != base.exact.golden[i]) continue;
    if (e.exact.touched[i / e.exact.block] != verdict::Touch::kComputed) continue;
    result.elements.push_back(static_cast<std::int64_t>(i));
    result.before2 += before(i) * before(i);
    result.after2 += after(i) * after(i);
    result.signal2 += e.exact.golden[i] * e.exact.golden[i];
    if (before(i) > 0.0) result.worst = std::fmax(result.worst, after(i) / before(i));
  }
  return result;
}

// A tenth of what the elements hold, in one of them after the other.
bool sees_noise(const call::Record& record, const std::string& name, const Unreached& part,
                const contract::Contract& contract) {
  call::Record noisy = record;
  call::Tensor& y = noisy.outputs.at(name);
  const random::Stream stream(7, name);
  const double size = 0.3 * std::sqrt(part.signal2 / static_cast<double>(part.elements.size()));
  for (const std::int64_t i : part.elements) y.set(i, y[i] + size * stream.normal(i));
  const auto report = verdict::judge_record(delta::slice(), noisy, {.contract = contract});
  return report.verdict == verdict::Verdict::kOutOfBudget;
}

void holds(const std::string& line, const contract::Contract& contract) {
  CAPTURE(line);
  CAPTURE(contract.name);
  const World base(line);
  const auto expect = [&](const call::Record& record) {
    return verdict::expect(delta::slice(), record, contract, scalar::Precision::kDouble);
  };
  const verdict::Expectations before = expect(base.record);
  const bool f16 = std::ranges::any_of(contract.roundings(), [](const contract::Rounding& r) {
    return r == contract::Format::kF16 || r == contract::Format::kAny16;
  });
  for (const Disturbed& disturbed : disturbances()) {
    if (f16 && !disturbed.fits_f16) continue;
    CAPTURE(disturbed.name);
    World world = base;
    disturbed.apply(world);
    const verdict::Expectations after = expect(world.record);
    world.record.outputs = delta::emulate(world.record, contract, 5);
    world.record.outputs.erase("intermediate_states");
    const auto honest = verdict::judge_record(delta::slice(), world.record,
                                              {.contract = contract, .wanted = {"o"}});
    CHECK_MESSAGE(is_pass(honest.verdict), honest.reason);
    for (const auto& item : world.record.outputs) {
      const std::string& name = item.first;  // a binding, which CAPTURE takes, is none for clang
      CAPTURE(name);
      const Unreached part =
          unreached(name, item.second, before.outputs.at(name), after.outputs.at(name), contract);
      if (part.elements.empty() || part.signal2 == 0.0) continue;
      CHECK(part.after2 < 1.3 * part.before2);
      CHECK(part.after2 > 0.7 * part.before2);
      CHECK(part.worst < 4.0);  // of an estimate from twelve runs
      CHECK(sees_noise(world.record, name, part, contract));
    }
  }
}

}  // namespace

TEST_CASE("no element is paid for by another: decode and MTP") {
  constexpr const char* kLines[] = {
      "op=gdn mode=decode B=4 H=1 HV=2 K=32 V=16 io=bf16",
      "op=kda mode=decode B=4 H=1 HV=2 K=32 V=16 io=bf16 state_layout=kv",
      "op=gdn mode=mtp B=4 T=3 H=1 HV=2 K=32 V=16 io=bf16"};
  for (const char* line : kLines) {
    for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
      holds(line, contract);
    }
  }
}

TEST_CASE("no element is paid for by another: prefill") {
  constexpr const char* kLines[] = {
      "op=gdn mode=prefill lens=70,40,20 H=1 HV=2 K=32 V=16 gate=log h0=1 io=bf16",
      "op=kda mode=prefill lens=70,40,20 H=1 HV=2 K=32 V=16 h0=1 io=bf16 state_layout=kv"};
  for (const char* line : kLines) {
    for (const char* name : {"ideal", "recurrent_f32", "chunk64_f32", "recurrent_bf16_state",
                             "chunk64_tf32", "chunk64_bf16", "chunk64_16bit", "chunk16_bf16_state",
                             "chunk64_bf16_direct_bf16_state_segments"}) {
      holds(line, contract::find_contract(name));
    }
  }
}

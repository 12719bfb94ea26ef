// SPDX-License-Identifier: Apache-2.0
//
// No element is paid for by another: inputs that do not reach an element are scaled, replaced or
// poisoned. What is granted to the element stays what it was, noise there is seen, and an honest
// kernel passes. Which elements a change does not reach needs no second definition: their exact
// results keep their bits.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/calls/outputs.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/budget.hpp"
#include "tests/delta/emulation/support.hpp"

namespace goldenrule::test {

/// What a number becomes.
using Value = std::function<double(double)>;

/// f(element, value) of input `name`, where it is there.
template <class F>
void change(call::Record& record, const char* name, F&& f) {
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

  [[nodiscard]] bool is_vk() const {
    return record.convention.state_layout == call::StateLayout::kVK;
  }
  /// Value channel and key channel of element `i` of a pool of states.
  [[nodiscard]] std::int64_t value_of(std::int64_t i) const {
    return (is_vk() ? i / dims.K : i) % dims.V;
  }
  [[nodiscard]] std::int64_t key_of(std::int64_t i) const {
    return (is_vk() ? i : i / dims.V) % dims.K;
  }
};

/// Inputs that are changed together.
struct Place {
  std::string name;
  std::function<void(World&, const Value&)> change;
};

/// What comes into value channel V / 2 of every head.
inline void change_channel(World& w, const Value& f) {
  const std::int64_t x = w.dims.V / 2;
  for (const char* name : {"v", "initial_ring_d"}) {
    change(w.record, name, [&](std::int64_t i, double v) { return i % w.dims.V == x ? f(v) : v; });
  }
  change(w.record, "initial_state",
         [&](std::int64_t i, double s) { return w.value_of(i) == x ? f(s) : s; });
}

/// v of the last row, and of the tokens of the first sequence behind a whole chunk.
inline void change_others(World& w, const Value& f) {
  const call::Plan plan = call::make_plan(w.record, true);
  const call::Sequence& first = plan.sequences.front();
  const call::Sequence& last = plan.sequences.back();
  constexpr std::int64_t kChunk = 64;  // of a contract; numbers meet in products of one chunk
  change(w.record, "v", [&](std::int64_t i, double v) {
    const std::int64_t token = i / (w.dims.HV * w.dims.V);
    const bool later =
        token >= first.first_token + kChunk && token < first.first_token + first.token_count;
    return later || token >= last.first_token ? f(v) : v;
  });
}

/// What comes into the last value head, of values and states.
inline void change_head(World& w, const Value& f) {
  const call::Dims& d = w.dims;
  change(w.record, "v",
         [&](std::int64_t i, double v) { return i / d.V % d.HV == d.HV - 1 ? f(v) : v; });
  change(w.record, "initial_state", [&](std::int64_t i, double s) {
    return i / d.state_size() % d.HV == d.HV - 1 ? f(s) : s;
  });
}

struct Disturbed {
  std::string name;
  std::function<void(World&)> apply;
  bool fits_f16;
};

struct Numbers {
  std::string name;
  Value f;
  bool fits_f16;
};

/// In a state, 3e38 of each key would leave fp32 in any kernel.
inline std::vector<Numbers> numbers(double largest = 1e36) {
  std::vector<Numbers> all;
  for (const int power : {120, 40, 14, -120}) {
    all.push_back(
        {"by 2^" + std::to_string(power), [=](double x) { return std::ldexp(x, power); }, false});
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  all.push_back({"is NaN", [=](double) { return nan; }, true});
  all.push_back({"is large", [=](double) { return largest; }, false});
  return all;
}

inline std::vector<Numbers> finite_numbers() {
  std::vector<Numbers> all = numbers();
  std::erase_if(all, [](const Numbers& n) { return !std::isfinite(n.f(1.0)); });
  return all;
}

inline std::vector<Disturbed> disturbances(const std::vector<Place>& places,
                                           const std::vector<Numbers>& values = numbers()) {
  std::vector<Disturbed> all;
  for (const Numbers& value : values) {
    for (const Place& place : places) {
      const auto apply = [at = place.change, f = value.f](World& w) { at(w, f); };
      all.push_back({place.name + " " + value.name, apply, value.fits_f16});
    }
  }
  return all;
}

inline bool rounds_to_f16(const contract::Contract& contract) {
  return std::ranges::any_of(contract.roundings(), [](const contract::Rounding& r) {
    return r == contract::Format::kF16 || r == contract::Format::kAny16;
  });
}

/// What a tensor grants elements that a change does not reach, before and after it.
struct Unreached {
  double before2 = 0.0, after2 = 0.0, worst = 0.0, signal2 = 0.0;
  std::int64_t lost = 0;  ///< that were judged, and are no longer
  std::vector<std::int64_t> elements;
};

inline Unreached unreached(const std::string& name, call::DType stored,
                           const verdict::Expected& base, const verdict::Expected& e,
                           const contract::Contract& contract) {
  Unreached result;
  const verdict::Budget before(name, stored, base, contract);
  const verdict::Budget after(name, stored, e, contract);
  const auto is_judged = [](const verdict::Exact& x, std::size_t i) {
    return x.is_defined(i) && x.touched[i / x.block] == verdict::Touch::kComputed;
  };
  for (std::size_t i = 0; i < e.exact.golden.size(); ++i) {
    if (!is_judged(base.exact, i) || e.exact.golden[i] != base.exact.golden[i]) continue;
    if (!is_judged(e.exact, i)) {
      ++result.lost;
      continue;
    }
    result.elements.push_back(static_cast<std::int64_t>(i));
    result.before2 += before(i) * before(i);
    result.after2 += after(i) * after(i);
    result.signal2 += e.exact.golden[i] * e.exact.golden[i];
    if (before(i) > 0.0) result.worst = std::fmax(result.worst, after(i) / before(i));
  }
  return result;
}

/// The grant of elements that a change does not reach is what it was.
inline void check_grant(const Unreached& part) {
  CHECK(part.lost == 0);
  if (part.elements.empty() || part.signal2 == 0.0) return;
  CHECK(part.after2 < 1.3 * part.before2);
  CHECK(part.after2 > 0.7 * part.before2);
  CHECK(part.worst < 4.0);  // of an estimate from twelve runs
}

/// A third of what the elements hold on the average, added to all of them at random.
inline call::Tensor with_noise_at(const call::Tensor& y, const std::string& name,
                                  const Unreached& part) {
  call::Tensor noisy = y;
  const random::Stream stream(7, name);
  const double size = 0.3 * std::sqrt(part.signal2 / static_cast<double>(part.elements.size()));
  for (const std::int64_t i : part.elements) noisy.set(i, y[i] + size * stream.normal(i));
  return noisy;
}

/// Judges outputs in double, and where that is not enough for a judgement in wider tiers.
class QuickJudge {
 public:
  QuickJudge(const call::Record& record, const verdict::Expectations& expected,
             const contract::Contract& contract)
      : record_(record), expected_(expected), contract_(contract) {}

  void check_honest() const {
    for (const auto& [name, tensor] : record_.outputs) {
      if (is_pass(verdict::judge(name, tensor, expected_.outputs.at(name), contract_).verdict)) {
        continue;
      }
      const auto report =
          verdict::judge_record(delta::slice(), record_, {.contract = contract_, .wanted = {"o"}});
      // Where all that is expected is NaN there is nothing to judge.
      CHECK_MESSAGE((is_pass(report.verdict) || report.verdict == verdict::Verdict::kSkipped),
                    report.reason);
      return;
    }
  }

  [[nodiscard]] bool sees_noise(const std::string& name, const Unreached& part) const {
    const call::Tensor noisy = with_noise_at(record_.outputs.at(name), name, part);
    const auto quick = verdict::judge(name, noisy, expected_.outputs.at(name), contract_);
    if (quick.verdict == verdict::Verdict::kOutOfBudget) return true;
    call::Record record = record_;
    record.outputs.at(name) = noisy;
    return verdict::judge_record(delta::slice(), record, {.contract = contract_}).verdict ==
           verdict::Verdict::kOutOfBudget;
  }

 private:
  const call::Record& record_;
  const verdict::Expectations& expected_;
  const contract::Contract& contract_;
};

/// The law for the outputs of a call; returns how many elements were not reached by some change.
inline std::int64_t holds(const World& base, const contract::Contract& contract,
                          const std::vector<Disturbed>& disturbed,
                          const std::vector<std::string>& without = {}) {
  CAPTURE(contract.name);
  const auto expect = [&](const call::Record& record) {
    return verdict::expect(delta::slice(), record, contract, scalar::Precision::kDouble);
  };
  const verdict::Expectations before = expect(base.record);
  std::int64_t count = 0;
  for (const Disturbed& what : disturbed) {
    if (rounds_to_f16(contract) && !what.fits_f16) continue;
    CAPTURE(what.name);
    World world = base;
    what.apply(world);
    const verdict::Expectations after = expect(world.record);
    world.record.outputs = delta::emulate(world.record, contract, 5);
    for (const std::string& name : without) world.record.outputs.erase(name);
    const QuickJudge judge(world.record, after, contract);
    judge.check_honest();
    for (const auto& item : world.record.outputs) {
      const std::string& name = item.first;  // a binding, which CAPTURE takes, is none for clang
      CAPTURE(name);
      const Unreached part = unreached(name, item.second.dtype(), before.outputs.at(name),
                                       after.outputs.at(name), contract);
      check_grant(part);
      if (part.elements.empty() || part.signal2 == 0.0) continue;
      CHECK(judge.sees_noise(name, part));
      count += std::ssize(part.elements);
    }
  }
  return count;
}

/// The law for every world and contract, with elements that some change does not reach.
inline void all_hold(const std::vector<World>& worlds, const std::vector<const char*>& contracts,
                     const std::vector<Disturbed>& disturbed) {
  for (const World& world : worlds) {
    CAPTURE(world.record.case_line);
    for (const char* name : contracts) {
      CHECK(holds(world, contract::find_contract(name), disturbed) > 0);
    }
  }
}

}  // namespace goldenrule::test

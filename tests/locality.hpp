// SPDX-License-Identifier: Apache-2.0
//
// No element is paid for by another: inputs that do not reach an element are scaled, replaced or
// poisoned. What is granted to the element stays what it was, noise there is seen, and an honest
// kernel passes. Which elements a change does not reach needs no second definition: their exact
// results keep their bits. A world is a call of one family: its record, and `W::slice()`.
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

#include "fixtures/random/philox.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/verdict.hpp"

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

/// Inputs that are changed together.
template <class W>
struct PlaceOf {
  std::string name;
  std::function<void(W&, const Value&)> change;
};

template <class W>
struct DisturbedOf {
  std::string name;
  std::function<void(W&)> apply;
  bool fits_f16;
  /// What it reaches may become as uncertain as it is large.
  bool may_leave_vacuous = false;
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

template <class W>
std::vector<DisturbedOf<W>> disturbances(const std::vector<PlaceOf<W>>& places,
                                         const std::vector<Numbers>& values = numbers()) {
  std::vector<DisturbedOf<W>> all;
  for (const Numbers& value : values) {
    for (const PlaceOf<W>& place : places) {
      const auto apply = [at = place.change, f = value.f](W& w) { at(w, f); };
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
template <class W>
class QuickJudge {
 public:
  QuickJudge(const call::Record& record, const verdict::Expectations& expected,
             const contract::Contract& contract)
      : record_(record), expected_(expected), contract_(contract) {}

  void check_honest(bool may_be_vacuous) const {
    for (const auto& [name, tensor] : record_.outputs) {
      if (is_pass(verdict::judge(name, tensor, expected_.outputs.at(name), contract_).verdict)) {
        continue;
      }
      const auto report =
          verdict::judge_record(W::slice(), record_, {.contract = contract_, .wanted = {"o"}});
      // Where all that is expected is NaN there is nothing to judge.
      const bool is_vacuous = may_be_vacuous && report.verdict == verdict::Verdict::kMistrusted;
      CHECK_MESSAGE(
          (is_pass(report.verdict) || is_vacuous || report.verdict == verdict::Verdict::kSkipped),
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
    return verdict::judge_record(W::slice(), record, {.contract = contract_}).verdict ==
           verdict::Verdict::kOutOfBudget;
  }

 private:
  const call::Record& record_;
  const verdict::Expectations& expected_;
  const contract::Contract& contract_;
};

/// The law for the outputs of a call; returns how many elements were not reached by some change.
template <class W>
std::int64_t holds(const W& base, const contract::Contract& contract,
                   const std::vector<DisturbedOf<W>>& disturbed,
                   const std::vector<std::string>& without = {}) {
  CAPTURE(contract.name);
  const auto expect = [&](const call::Record& record) {
    return verdict::expect(W::slice(), record, contract, scalar::Precision::kDouble);
  };
  const verdict::Expectations before = expect(base.record);
  std::int64_t count = 0;
  for (const DisturbedOf<W>& what : disturbed) {
    if (rounds_to_f16(contract) && !what.fits_f16) continue;
    CAPTURE(what.name);
    W world = base;
    what.apply(world);
    const verdict::Expectations after = expect(world.record);
    world.record.outputs =
        calls::stored(world.record, contract, W::slice().emulate(world.record, contract, 5));
    for (const std::string& name : without) world.record.outputs.erase(name);
    const QuickJudge<W> judge(world.record, after, contract);
    judge.check_honest(what.may_leave_vacuous);
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
template <class W>
void all_hold(const std::vector<W>& worlds, const std::vector<const char*>& contracts,
              const std::vector<DisturbedOf<W>>& disturbed) {
  for (const W& world : worlds) {
    CAPTURE(world.record.case_line);
    for (const char* name : contracts) {
      CHECK(holds(world, contract::find_contract(name), disturbed) > 0);
    }
  }
}

}  // namespace goldenrule::test

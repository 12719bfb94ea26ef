// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/relations/composed.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "reference/backward/budget/grant.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/verdict/kernels.hpp"

namespace goldenrule::backward {
namespace {

using relations::Run;
using relations::Trial;

constexpr int kRuns = 8;

struct Squares {
  double sum = 0.0;
  std::int64_t count = 0;
};

}  // namespace

void claim_composed(Trial& trial, const Composition& composition) {
  const call::TensorMap& returned = trial.base().outputs;
  // By a right kernel, without the outputs that the judged one leaves out.
  const auto composed = [&](const calls::Kernel& kernel, bool grants) {
    const Runner run = [&](call::Record r) {
      Run made = trial.run(std::move(r), kernel);
      std::erase_if(made.outputs, [&](const auto& o) { return !returned.contains(o.first); });
      return made;
    };
    return composition(run(trial.base().record), run, grants);
  };
  std::vector<Sides> sides = composition(
      trial.base(), [&](call::Record r) { return trial.run(std::move(r)); }, false);
  const std::vector<Sides> exact = composed(verdict::exact_kernel(trial.slice()), true);
  for (std::size_t i = 0; i < sides.size(); ++i) sides[i].independent = exact[i].independent;
  const bool granted =
      std::ranges::any_of(sides, [](const Sides& s) { return s.independent > 0.0; });
  std::map<std::string, Squares> defects;
  for (int run = 0; granted && run < kRuns; ++run) {
    const calls::Kernel honest =
        verdict::emulated_kernel(trial.slice(), trial.contract(), seed_of_run(run, false));
    const std::vector<Sides> emulated = composed(honest, false);
    for (std::size_t i = 0; i < sides.size(); ++i) {
      const double share = (emulated[i].actual - emulated[i].expected) / sides[i].independent;
      if (sides[i].independent <= 0.0 || !std::isfinite(share)) continue;
      Squares& to = defects[sides[i].tensor];
      to.sum += share * share;
      ++to.count;
    }
  }
  for (const Sides& s : sides) {
    double bound = s.independent;
    if (const auto found = defects.find(s.tensor); found != defects.end() && bound > 0.0) {
      const Squares& of = found->second;
      const double multiple = delta::multiple_for(of.count / kRuns, kRuns, kPooledRow);
      bound *= std::max(1.0, multiple * std::sqrt(of.sum / static_cast<double>(of.count)));
    }
    trial.claim(s.tensor, s.at, s.expected, s.actual, bound);
  }
}

}  // namespace goldenrule::backward

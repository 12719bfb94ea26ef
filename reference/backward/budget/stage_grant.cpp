// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/budget/stage_grant.hpp"

#include <cmath>
#include <optional>

#include "fixtures/call/f32_bound.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/backward/budget/grant.hpp"
#include "reference/backward/emulation/kernel_group.hpp"
#include "reference/backward/rule/pooled.hpp"
#include "reference/backward/rule/stages.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/delta/budget/stage_rows.hpp"
#include "reference/verdict/grants.hpp"

namespace goldenrule::backward {
namespace {

using contract::AdjointPoint;

// The point at which a stage is rounded as an operand.
std::optional<AdjointPoint> own_point(const std::string& stage) {
  static const std::map<std::string, AdjointPoint> points{{"T", AdjointPoint::kInverse},
                                                          {"P", AdjointPoint::kAttention},
                                                          {"w", AdjointPoint::kW},
                                                          {"u", AdjointPoint::kU},
                                                          {"h", AdjointPoint::kState},
                                                          {"v_new", AdjointPoint::kVNew},
                                                          {"dh", AdjointPoint::kStateGradient},
                                                          {"du", AdjointPoint::kCorrection},
                                                          {"dw", AdjointPoint::kKeyCorrection},
                                                          {"dq", AdjointPoint::kHeads},
                                                          {"dk", AdjointPoint::kHeads}};
  const auto found = points.find(stage);
  if (found == points.end()) return std::nullopt;
  return found->second;
}

class StageGranting {
 public:
  StageGranting(const call::Record& record, const call::Dims& dims,
                const contract::Contract& contract,
                const std::map<std::string, call::DType>& stored, verdict::ExpectedStages& stages)
      : record_(record),
        d_(dims),
        contract_(contract),
        stored_(stored),
        runs_(runs_of(dims, contract)),
        stages_(stages) {
    const float flushed = call::f32_not_below(flushing_of(record, dims, contract));
    for (auto& [name, stage] : stages_) {
      verdict::Expected& e = stage.expected;
      const double multiple =
          delta::multiple_for(std::ssize(e.exact.golden), runs_of_kind(runs_, true), kPooledRow);
      e.grant = verdict::empty_grant(e.exact, multiple, verdict::GrantDetail::kSpread);
      e.grant.overflows.assign(e.exact.golden.size(), 0);
      e.grant.flushed.assign(e.exact.touched.size() * e.exact.channels, flushed);
    }
  }

  void run(const Group& group, std::int64_t first_chunk) {
    for (const bool random : {true, false}) {
      std::vector<std::map<std::string, MeanSquares>> errors(group.heads.size());
      const int runs = runs_of_kind(runs_, random);
      for (int run = 0; run < runs; ++run) {
        parallel::stop_if_asked();
        const GroupOutputs outputs =
            run_group(record_, group, contract_,
                      {.random = random, .seed = seed_of_run(run, random), .stages = true});
        for (std::size_t lane = 0; lane < group.heads.size(); ++lane) {
          take(places(group, first_chunk, lane), outputs.lanes[lane].stages, errors[lane]);
        }
      }
      for (std::size_t lane = 0; lane < group.heads.size(); ++lane) {
        for (const auto& [name, of] : errors[lane]) {
          store(name, places(group, first_chunk, lane), of, runs);
        }
      }
    }
  }

 private:
  [[nodiscard]] LanePlaces places(const Group& group, std::int64_t first_chunk,
                                  std::size_t lane) const {
    return {record_, d_, group.tokens, first_chunk, group.heads[lane]};
  }

  [[nodiscard]] std::int64_t width_of(const std::string& name) const {
    if (name == "h" || name == "dh") return d_.V;
    return static_cast<std::int64_t>(stages_.at(name).expected.exact.block);
  }

  void take(const LanePlaces& places, const AdjointStages& from,
            std::map<std::string, MeanSquares>& to) {
    for_each_stage(from, [&](const std::string& name, const Floats& x) {
      const auto stage = stages_.find(name);
      if (stage == stages_.end()) return;
      verdict::Expected& e = stage->second.expected;
      MeanSquares& squares = to.try_emplace(name, x.size()).first->second;
      for (Eigen::Index i = 0; i < x.size(); ++i) {
        const std::size_t at = places.of(name, i / x.cols(), i % x.cols(), x.cols());
        const auto value = static_cast<double>(x.data()[i]);
        if (!e.exact.is_defined(at) || !std::isfinite(e.exact.golden[at])) continue;
        if (std::isfinite(value)) {
          squares.add(static_cast<std::size_t>(i), value - e.exact.golden[at]);
        } else {
          e.grant.overflows[at] = 1;
        }
      }
    });
  }

  void store(const std::string& name, const LanePlaces& places, const MeanSquares& from, int runs) {
    verdict::Expected& e = stages_.at(name).expected;
    const std::int64_t width = width_of(name);
    const std::vector<double> mean = from.mean(runs);
    const std::vector<double> sigma2 = pooled_of(name, places, mean, width);
    const std::optional<AdjointPoint> point = own_point(name);
    const contract::Rounding own =
        point ? format_of(contract_.adjoint()->at(*point), record_.inputs.at("q").dtype())
              : contract::Rounding();
    for (std::size_t i = 0; i < sigma2.size(); ++i) {
      const auto index = static_cast<std::int64_t>(i);
      const std::size_t at = places.of(name, index / width, index % width, width);
      if (!e.exact.is_defined(at) || !std::isfinite(e.exact.golden[at])) continue;
      const double sigma = std::sqrt(sigma2[i]);
      const double reach = std::fabs(e.exact.golden[at]) + e.grant.multiple * sigma;
      const double bias = delta::beside_storage(own, stored_.at(name), reach);
      const double before = static_cast<double>(e.grant.spread[at]);
      if (e.grant.multiple * sigma + bias > before) verdict::store_grant(e.grant, at, sigma, bias);
    }
  }

  [[nodiscard]] std::vector<double> pooled_of(const std::string& name, const LanePlaces& places,
                                              const std::vector<double>& mean,
                                              std::int64_t width) const {
    const std::int64_t chunk = contract_.adjoint()->chunk;
    if (name == "h" || name == "dh") return pooled(mean, width, d_.K);
    const verdict::Exact& exact = stages_.at(name).expected.exact;
    const bool of_token = name == "raw" && width == 1;
    if (exact.reach.size() != exact.golden.size()) return pooled(mean, width, chunk);
    std::vector<double> units;
    for (std::int64_t i = 0; i < std::ssize(mean); ++i) {
      const std::size_t at = places.of(name, i / width, i % width, width);
      units.push_back(static_cast<double>(of_token ? exact.unit[at] : exact.reach[at]));
    }
    return pooled_in_units(mean, units, chunk * width);
  }

  const call::Record& record_;
  const call::Dims& d_;
  const contract::Contract& contract_;
  const std::map<std::string, call::DType>& stored_;
  int runs_;
  verdict::ExpectedStages& stages_;
};

}  // namespace

void grant_stages(const call::Record& record, const contract::Contract& contract,
                  const std::map<std::string, call::DType>& stored,
                  verdict::ExpectedStages& stages) {
  const call::Dims d = call::validate(record);
  const std::vector<Sequence> sequences = sequences_of(record, d);
  const std::vector<std::int64_t> first = first_chunks(sequences, contract.adjoint()->chunk);
  StageGranting granting(record, d, contract, stored, stages);
  const parallel::Phase phase("budget of the stages");
  parallel::for_each_index(std::ssize(sequences) * d.H, [&](std::int64_t job) {
    const std::int64_t n = job / d.H;
    const auto sequence = static_cast<std::size_t>(n);
    if (sequences[sequence].count == 0) return;
    granting.run(make_group(record, d, contract, n, sequences[sequence], job % d.H),
                 first[sequence]);
  });
  for (auto& [name, stage] : stages) admit_anything(stage.expected);
}

}  // namespace goldenrule::backward

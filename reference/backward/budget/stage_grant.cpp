// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/budget/stage_grant.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

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

// The stages of some heads of a call.
class StageGranting {
 public:
  /// Refers to all of these.
  StageGranting(const call::Record& record, const call::Dims& dims,
                const contract::Contract& contract,
                const std::map<std::string, call::DType>& stored, std::vector<std::int64_t> heads,
                verdict::ExpectedStages& stages)
      : record_(record),
        d_(dims),
        contract_(contract),
        stored_(stored),
        heads_(std::move(heads)),
        stages_(stages) {
    const std::int64_t all = d_.HV;
    d_.HV = std::ssize(heads_);
    const int runs = runs_of_kind(runs_of(dims, contract), true);
    for (auto& [name, stage] : stages_) {
      verdict::Expected& e = stage.expected;
      const std::int64_t elements = std::ssize(e.exact.golden) / d_.HV * all;  // of the call
      const double multiple = delta::multiple_for(elements, runs, kPooledRow);
      e.grant = verdict::empty_grant(e.exact, multiple, verdict::GrantDetail::kSpread);
      e.grant.overflows.assign(e.exact.golden.size(), 0);
      e.grant.flushed.assign(e.exact.touched.size() * e.exact.channels, 0.0F);
    }
  }

  // The runs of a group of these heads go to `read` with a reader of its stages.
  void run(const Group& group, std::int64_t first_chunk,
           const std::function<void(const RunReader&)>& read) {
    std::vector<std::map<std::string, MeanSquares>> errors(group.heads.size());
    const auto take_run = [&](const GroupOutputs& run) {
      for (std::size_t lane = 0; lane < group.heads.size(); ++lane) {
        take(places(group, first_chunk, lane), run.lanes[lane].stages, errors[lane]);
      }
    };
    const float flushed = call::f32_not_below(flushing_of(group, contract_));
    const auto end = [&](int runs) {
      for (std::size_t lane = 0; lane < group.heads.size(); ++lane) {
        for (const auto& [name, of] : errors[lane]) {
          store(name, places(group, first_chunk, lane), of.mean(runs), flushed);
        }
        errors[lane].clear();
      }
    };
    read({.stages = true, .take = take_run, .end = end});
  }

 private:
  [[nodiscard]] LanePlaces places(const Group& group, std::int64_t first_chunk,
                                  std::size_t lane) const {
    const auto place = std::ranges::find(heads_, group.heads[lane]) - heads_.begin();
    return {record_, d_, group.tokens, first_chunk, place};
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

  void store(const std::string& name, const LanePlaces& places, const std::vector<double>& mean,
             float flushed) {
    verdict::Expected& e = stages_.at(name).expected;
    const std::int64_t width = width_of(name);
    const std::vector<double> sigma2 = pooled_of(name, places, mean, width);
    const std::optional<AdjointPoint> point = own_point(name);
    const contract::Rounding own =
        point ? format_of(contract_.adjoint()->at(*point), record_.inputs.at("q").dtype())
              : contract::Rounding();
    for (std::size_t i = 0; i < sigma2.size(); ++i) {
      const auto index = static_cast<std::int64_t>(i);
      const std::size_t at = places.of(name, index / width, index % width, width);
      if (!e.exact.is_defined(at) || !std::isfinite(e.exact.golden[at])) continue;
      e.grant.flushed[e.exact.channel(at)] = flushed;
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
  call::Dims d_;  // of a call of these heads alone
  const contract::Contract& contract_;
  const std::map<std::string, call::DType>& stored_;
  std::vector<std::int64_t> heads_;
  verdict::ExpectedStages& stages_;
};

// As many query/key heads as keep all threads at work.
std::int64_t heads_at_once(const call::Dims& d, std::int64_t sequences) {
  const std::int64_t threads = omp_get_max_threads();
  return std::clamp<std::int64_t>((threads + sequences - 1) / std::max<std::int64_t>(sequences, 1),
                                  1, d.H);
}

// The stages of a call, query/key head by query/key head.
class StagesByHeads {
 public:
  StagesByHeads(const call::Record& record, const contract::Contract& contract,
                const std::map<std::string, call::DType>& stored, scalar::Precision precision)
      : record_(record),
        d_(call::validate(record)),
        contract_(contract),
        stored_(stored),
        precision_(precision),
        sequences_(sequences_of(record, d_)),
        first_(first_chunks(sequences_, contract.adjoint()->chunk)) {
    for (const auto& [name, type] : stored) names_.push_back(name);
  }

  void run(verdict::Expectations* outputs,
           const std::function<void(verdict::StageHeads&&)>& take) const {
    std::optional<GroupGrant> beside;
    if (outputs != nullptr) beside.emplace(record_, d_, contract_, *outputs);
    const std::int64_t step = heads_at_once(d_, std::ssize(sequences_));
    for (std::int64_t h = 0; h < d_.H; h += step) {
      const std::int64_t count = std::min(step, d_.H - h);
      for (verdict::StageHeads& heads : granted(h, count, beside ? &*beside : nullptr)) {
        take(std::exchange(heads, {}));
      }
    }
    if (beside) beside->finish();
  }

 private:
  [[nodiscard]] std::vector<verdict::StageHeads> granted(std::int64_t first, std::int64_t count,
                                                         GroupGrant* beside) const {
    std::vector<std::vector<std::int64_t>> blocks;
    for (std::int64_t i = 0; i < count; ++i) {
      blocks.push_back(heads_of_group(record_, d_, first + i));
    }
    std::vector<verdict::ExpectedStages> stages =
        evaluate_stages_of(record_, contract_.adjoint()->chunk, names_, precision_, blocks);
    std::vector<StageGranting> granting;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      granting.emplace_back(record_, d_, contract_, stored_, blocks[i], stages[i]);
    }
    const parallel::Phase phase("budget of the stages");
    parallel::for_each_index(std::ssize(sequences_) * count, [&](std::int64_t job) {
      run_group_of(job / count, first + job % count,
                   granting[static_cast<std::size_t>(job % count)], beside);
    });
    std::vector<verdict::StageHeads> all;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      for (auto& [name, stage] : stages[i]) admit_anything(stage.expected);
      all.push_back({.heads = std::move(blocks[i]),
                     .last = first + static_cast<std::int64_t>(i) + 1 == d_.H,
                     .stages = std::move(stages[i])});
    }
    return all;
  }

  void run_group_of(std::int64_t n, std::int64_t qk_head, StageGranting& granting,
                    GroupGrant* beside) const {
    const auto at = static_cast<std::size_t>(n);
    const Group group = make_group(record_, d_, contract_, n, sequences_[at], qk_head);
    if (group.tokens.count == 0) {
      if (beside != nullptr) beside->run(group, {});
      return;
    }
    granting.run(group, first_[at], [&](const RunReader& reader) {
      if (beside != nullptr) {
        beside->run(group, reader);
      } else {
        run_kinds(record_, group, contract_, runs_of(d_, contract_), reader);
      }
    });
  }

  const call::Record& record_;
  call::Dims d_;
  const contract::Contract& contract_;
  const std::map<std::string, call::DType>& stored_;
  scalar::Precision precision_;
  std::vector<Sequence> sequences_;
  std::vector<std::int64_t> first_;  // chunk of each sequence
  std::vector<std::string> names_;
};

}  // namespace

void grant_stages(const call::Record& record, const contract::Contract& contract,
                  const std::map<std::string, call::DType>& stored,
                  verdict::ExpectedStages& stages) {
  const call::Dims d = call::validate(record);
  const std::vector<Sequence> sequences = sequences_of(record, d);
  const std::vector<std::int64_t> first = first_chunks(sequences, contract.adjoint()->chunk);
  std::vector<std::int64_t> heads(static_cast<std::size_t>(d.HV));
  std::iota(heads.begin(), heads.end(), 0);
  StageGranting granting(record, d, contract, stored, std::move(heads), stages);
  const parallel::Phase phase("budget of the stages");
  parallel::for_each_index(std::ssize(sequences) * d.H, [&](std::int64_t job) {
    const std::int64_t n = job / d.H;
    const auto sequence = static_cast<std::size_t>(n);
    if (sequences[sequence].count == 0) return;
    const Group group = make_group(record, d, contract, n, sequences[sequence], job % d.H);
    granting.run(group, first[sequence], [&](const RunReader& reader) {
      run_kinds(record, group, contract, runs_of(d, contract), reader);
    });
  });
  for (auto& [name, stage] : stages) admit_anything(stage.expected);
}

void grant_by_heads(const call::Record& record, const contract::Contract& contract,
                    const std::map<std::string, call::DType>& stored, scalar::Precision precision,
                    verdict::Expectations* outputs,
                    const std::function<void(verdict::StageHeads&& heads)>& take) {
  StagesByHeads(record, contract, stored, precision).run(outputs, take);
}

}  // namespace goldenrule::backward

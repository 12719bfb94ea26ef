// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/stage_grant.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/call/dtype.hpp"
#include "fixtures/call/f32_bound.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/budget/flushing.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/delta/budget/stage_rows.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/ring.hpp"
#include "reference/delta/oracle/stages.hpp"
#include "reference/verdict/grants.hpp"

namespace goldenrule::delta {
namespace {

using contract::Activation;
using contract::Point;
using contract::Rounding;

// The format in which a stage is an operand.
Rounding own_rounding(const contract::Chunked& c, const std::string& stage) {
  if (stage == "q") return c.at(Activation::kQuery);
  if (stage == "k") return c.at(Activation::kKey);
  if (stage == "beta") return c.at(Activation::kBeta);
  if (stage == "T") return c.at(Point::kInverse);
  if (stage == "w") return c.at(Point::kW);
  if (stage == "u") return c.at(Point::kU);
  if (stage == "v_new") return c.at(Point::kVNew);
  if (stage == "h") return c.at(Point::kStateOperand);
  return {};
}

class StageGrants {
 public:
  StageGrants(const call::Record& record, const call::Plan& plan,
              const contract::Contract& contract, const std::map<std::string, call::DType>& stored,
              verdict::ExpectedStages& stages)
      : record_(record),
        dims_(plan.dims),
        contract_(contract),
        chunked_(*contract.chunked()),
        stored_(stored),
        runs_(runs_for(record, plan, contract)),
        inputs_(record),
        index_(record, plan.dims),
        stages_(stages) {
    for (auto& [name, stage] : stages_) {
      const bool has = chunked_.form == contract::Form::kWY || (name != "w" && name != "u");
      verdict::Expected& e = stage.expected;
      e.grant = {};
      if (!has) continue;
      e.grant =
          empty_grant(e.exact, multiple_for(std::ssize(e.exact.golden), runs_.random, dims_.V),
                      verdict::GrantDetail::kSpread);
      e.grant.flushed.assign(e.exact.touched.size() * e.exact.channels,
                             call::f32_not_below(flushed_beside_values(dims_.K)));
    }
  }

  void run(const call::Sequence& sequence, std::int64_t first_chunk, std::int64_t head) {
    const auto lane = prepare_lane<double>(record_, dims_, inputs_, sequence, head);
    const verdict::ExpectedStage* A = find("A");
    const LaneGrants grants(
        contract_, record_.convention, lane,
        verdict::deviation_multiple(A == nullptr ? 1 : std::ssize(A->expected.exact.golden)));
    store_rows(sequence, head, lane, grants);
    Matrix<double> of_A = Matrix<double>::Zero(lane.tokens, chunked_.chunk);
    const bool runs = asks_for({"T", "w", "u", "h", "v_new"});
    for (std::int64_t first = 0; (runs || A != nullptr) && first < lane.tokens;
         first += chunked_.chunk) {
      const std::int64_t c = std::min(chunked_.chunk, lane.tokens - first);
      of_A.block(first, 0, c, c) = grants.A(first, c);
    }
    store_tokens("A", sequence, head, Matrix<double>::Zero(lane.tokens, chunked_.chunk), of_A);
    if (runs) store_runs(sequence, first_chunk, head, lane, grants, of_A);
  }

 private:
  [[nodiscard]] verdict::ExpectedStage* find(const std::string& name) {
    const auto found = stages_.find(name);
    return found == stages_.end() || !found->second.expected.grant.given ? nullptr : &found->second;
  }
  [[nodiscard]] bool asks_for(std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return find(name) != nullptr; });
  }

  // What element `at` is granted; nothing where no number is expected.
  void put(verdict::ExpectedStage& stage, const std::string& name, std::size_t at, double sigma,
           double bias) {
    verdict::Expected& e = stage.expected;
    if (!e.exact.is_defined(at) || !std::isfinite(e.exact.golden[at])) return;
    const Rounding own = own_rounding(chunked_, name);
    const double reach = std::fabs(e.exact.golden[at]) + e.grant.multiple * sigma + bias;
    store_grant(e.grant, at, sigma, bias + beside_storage(own, stored_.at(name), reach));
  }

  void store_rows(const call::Sequence& sequence, std::int64_t head, const Lane<double>& lane,
                  const LaneGrants& grants) {
    const std::int64_t qk_head = dims_.qk_head(record_.convention.head_map, head);
    const bool has_keys = stores_keys(record_, dims_, head);
    const auto each = [&](const char* name, std::int64_t h, const auto& granted) {
      verdict::ExpectedStage* stage = find(name);
      if (stage == nullptr) return;
      const auto width = static_cast<std::int64_t>(stage->expected.exact.block);
      const std::int64_t heads = stage->expected.exact.shape[1];
      for (std::int64_t t = 0; t < lane.tokens; ++t) {
        const std::int64_t row = ((sequence.first_token + t) * heads + h) * width;
        for (std::int64_t i = 0; i < width; ++i) {
          put(*stage, name, static_cast<std::size_t>(row + i), 0.0, granted(t, i));
        }
      }
    };
    each("G", head, [&](std::int64_t t, std::int64_t g) { return grants.G(t, g); });
    each("beta", head, [&](std::int64_t t, std::int64_t) { return grants.beta(t); });
    if (!has_keys) return;
    each("q", qk_head, [&](std::int64_t t, std::int64_t i) { return grants.q(lane.q_row(t)[i]); });
    each("k", qk_head, [&](std::int64_t t, std::int64_t i) { return grants.k(lane.k_row(t)[i]); });
  }

  void store_tokens(const char* name, const call::Sequence& sequence, std::int64_t head,
                    const Matrix<double>& sigma, const Matrix<double>& bias) {
    verdict::ExpectedStage* stage = find(name);
    if (stage == nullptr) return;
    for (std::int64_t t = 0; t < sigma.rows(); ++t) {
      const std::int64_t row = ((sequence.first_token + t) * dims_.HV + head) * sigma.cols();
      for (std::int64_t i = 0; i < sigma.cols(); ++i) {
        put(*stage, name, static_cast<std::size_t>(row + i), sigma(t, i), bias(t, i));
      }
    }
  }

  void store_runs(const call::Sequence& sequence, std::int64_t first_chunk, std::int64_t head,
                  const Lane<double>& lane, const LaneGrants& grants, const Matrix<double>& of_A) {
    LaneCall run{.lane = lane,
                 .v = lane_values(inputs_, dims_, index_, sequence, head),
                 .start = lane_start(inputs_, dims_, index_, sequence, head),
                 .positions = {},
                 .exact = {}};
    ChunkStages<double>& stages = run.exact.stages;
    run.exact.o = chunk_form<double>(lane, run.v, run.start, chunked_.chunk, &stages).o;
    run.exact.d = stages.v_new;
    run.scales = scales_of(lane, grants, stages, of_A);
    if (chunked_.form != contract::Form::kWY) {
      stages.w.resize(0, 0);
      stages.u.resize(0, 0);
      run.scales.w.resize(0, 0);
    }
    const LaneErrors errors =
        lane_errors(run, contract_, runs_, sequence.first_token * dims_.HV + head);
    const KeptForm<double>& sigma = errors.sigma;
    const KeptForm<double>& bias = errors.bias;
    store_tokens("T", sequence, head, sigma.stages.T, bias.stages.T);
    store_tokens("w", sequence, head, sigma.stages.w, bias.stages.w);
    store_tokens("u", sequence, head, sigma.stages.u, bias.stages.u);
    store_tokens("v_new", sequence, head, sigma.d, bias.d);
    store_flushing(sequence, first_chunk, head, flushed_of_lane(run.v, run.start));
    verdict::ExpectedStage* h = find("h");
    for (std::size_t c = 0; h != nullptr && c < sigma.stages.h.size(); ++c) {
      const std::int64_t block = (first_chunk + static_cast<std::int64_t>(c)) * dims_.HV + head;
      const auto begin = static_cast<std::size_t>(block * dims_.state_size());
      for (std::int64_t i = 0; i < dims_.K; ++i) {
        for (std::int64_t x = 0; x < dims_.V; ++x) {
          put(*h, "h", begin + index_(0, 0, i, x), sigma.stages.h[c](i, x), bias.stages.h[c](i, x));
        }
      }
    }
  }

  void store_flushing(const call::Sequence& sequence, std::int64_t first_chunk, std::int64_t head,
                      const Matrix<double>& lost) {
    const auto store = [&](const char* name, std::int64_t row, std::int64_t t) {
      verdict::ExpectedStage* stage = find(name);
      if (stage == nullptr) return;
      const auto first = static_cast<std::size_t>((row * dims_.HV + head) * dims_.V);
      store_flushed(lost, t, first, stage->expected.grant);
    };
    for (std::int64_t t = 0; t < sequence.token_count; ++t) {
      store("u", sequence.first_token + t, t + 1);
      store("v_new", sequence.first_token + t, t + 1);
      if (t % chunked_.chunk == 0) store("h", first_chunk + t / chunked_.chunk, t);
    }
  }

  [[nodiscard]] StageScales scales_of(const Lane<double>& lane, const LaneGrants& grants,
                                      const ChunkStages<double>& stages,
                                      const Matrix<double>& of_A) const {
    StageScales scales{.T = Matrix<double>::Zero(lane.tokens, chunked_.chunk),
                       .w = Matrix<double>::Zero(lane.tokens, lane.K)};
    const double u = chunked_.unit_roundoff;
    const double operands = u + contract::unit_of(chunked_.at(Point::kInverse)) +
                            contract::unit_of(chunked_.at(Point::kBetaK)) +
                            contract::unit_of(chunked_.at(Activation::kKey));
    for (std::int64_t first = 0; first < lane.tokens; first += chunked_.chunk) {
      const std::int64_t c = std::min(chunked_.chunk, lane.tokens - first);
      const Matrix<double> T2 = stages.T.block(first, 0, c, c).cwiseAbs2();
      const Matrix<double> A2 = of_A.block(first, 0, c, c).cwiseAbs2();
      Matrix<double> scale2 = T2 * A2 * T2;
      scale2 += u * u * T2;
      scale2.diagonal().setZero();
      scales.T.block(first, 0, c, c) = scale2;
      Matrix<double> k2(c, lane.K);      // (beta k^ E)^2
      Matrix<double> error2(c, lane.K);  // of its rounding and of its decay
      for (std::int64_t x = 0; x < lane.K; ++x) {
        double decay = 1.0;
        for (std::int64_t i = 0; i < c; ++i) {
          decay *= lane.alpha_at(first + i, x);
          const double k =
              lane.beta[static_cast<std::size_t>(first + i)] * lane.k_row(first + i)[x] * decay;
          const double of_decay = grants.G(first + i, lane.gates == 1 ? 0 : x);
          k2(i, x) = k * k;
          error2(i, x) = k == 0.0 ? 0.0 : k * k * (operands * operands + of_decay * of_decay);
        }
      }
      scales.w.middleRows(first, c) = scale2 * k2 + T2 * error2;
    }
    return scales;
  }

  const call::Record& record_;
  const call::Dims dims_;
  const contract::Contract& contract_;
  const contract::Chunked& chunked_;
  const std::map<std::string, call::DType>& stored_;
  const Runs runs_;
  const CallInputs inputs_;
  const OutputIndex index_;
  verdict::ExpectedStages& stages_;
};

}  // namespace

void grant_stages(const call::Record& record, const contract::Contract& contract,
                  const std::map<std::string, call::DType>& stored,
                  verdict::ExpectedStages& stages) {
  const call::Plan plan = call::make_plan(record, false);
  StageGrants grants(record, plan, contract, stored, stages);
  struct Job {
    const call::Sequence* sequence;
    std::int64_t first_chunk, head;
  };
  std::vector<Job> jobs;
  std::int64_t chunks = 0;
  for (const call::Sequence& s : plan.sequences) {
    for (std::int64_t head = 0; head < plan.dims.HV && !s.padded && s.token_count > 0; ++head) {
      jobs.push_back({&s, chunks, head});
    }
    chunks += chunks_of(s, contract.chunked()->chunk);
  }
  const parallel::Phase phase("budget of the stages");
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const Job& job = jobs[static_cast<std::size_t>(i)];
    grants.run(*job.sequence, job.first_chunk, job.head);
  });
}

}  // namespace goldenrule::delta

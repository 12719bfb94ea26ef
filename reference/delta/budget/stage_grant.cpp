// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/stage_grant.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fixtures/call/dtype.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/budget/grant.hpp"
#include "reference/delta/budget/ring_grant.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/ring.hpp"
#include "reference/delta/oracle/stages.hpp"

namespace goldenrule::delta {
namespace {

using contract::Activation;
using contract::Format;
using contract::Point;
using contract::Rounding;

// The largest error of rounding x to a format: truncation to tf32 takes twice half an ulp.
double rounding_error(const Rounding& rounding, double x) {
  if (!rounding) return 0.0;
  return (rounding == Format::kTF32 ? 2.0 : 1.0) * contract::half_ulp(info(*rounding), x);
}

// What rounding x to a format adds to its rounding to the type that it is stored in: where that type
// holds every number of the format, only the first of the two counts.
double beside_storage(const Rounding& rounding, call::DType stored, double x) {
  if (!rounding) return 0.0;
  const contract::FormatInfo& format = info(*rounding);
  const call::DTypeInfo& type = call::info(stored);
  const bool holds =
      format.significand_bits <= type.significand_bits &&
      format.min_exponent - format.significand_bits >= type.min_exponent - type.significand_bits;
  const double own = rounding_error(rounding, x);
  return holds ? std::max(own - 0.5 * call::ulp(stored, x), 0.0) : own;
}

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

// What is granted without runs: everything of one lane up to A.
class LaneGrants {
 public:
  LaneGrants(const contract::Contract& contract, const call::Convention& convention,
             const Lane<double>& lane, double multiple)
      : contract_(contract),
        chunked_(*contract.chunked()),
        lane_(lane),
        multiple_(multiple),
        gates_(lane.tokens, lane.gates),
        sums_(lane.tokens, lane.gates) {
    const Rounding& format = chunked_.at(Point::kGateSum);
    const double u = format ? contract::unit_of(format) : chunked_.unit_roundoff;
    const auto levels =
        static_cast<double>(std::bit_width(static_cast<std::uint64_t>(chunked_.chunk - 1)));
    for (std::int64_t g = 0; g < lane.gates; ++g) {
      double size = 0.0;
      double prefixes = 0.0;
      for (std::int64_t t = 0; t < lane.tokens; ++t) {
        if (t % chunked_.chunk == 0) size = prefixes = 0.0;
        // What no kernel can sum is in no sum: such a decay is multiplied.
        const bool is_number = has_logarithm(convention, lane.alpha_at(t, g));
        const double log_alpha = is_number ? log_alpha_at(t, g) : 0.0;
        size += std::fabs(log_alpha);
        prefixes += size;
        gates_(t, g) = gate_error(contract, convention, bounds(t), log_alpha);
        sums_(t, g) = u * (std::max(prefixes, levels * size) + size);
      }
    }
  }

  [[nodiscard]] double q(double x) const {
    return (of_key() + chunked_.unit_roundoff) * std::fabs(x);
  }
  [[nodiscard]] double k(double x) const { return of_key() * std::fabs(x); }
  [[nodiscard]] double beta(std::int64_t t) const {
    return (of_beta(t) + chunked_.unit_roundoff) *
           std::fabs(lane_.beta[static_cast<std::size_t>(t)]);
  }
  [[nodiscard]] double G(std::int64_t t, std::int64_t g) const {
    double sum = sums_(t, g);
    for (std::int64_t l = t / chunked_.chunk * chunked_.chunk; l <= t; ++l) sum += gates_(l, g);
    return sum;
  }

  // A of one chunk, [c,c], strictly lower.
  [[nodiscard]] Matrix<double> A(std::int64_t first, std::int64_t c) const {
    Matrix<double> granted = Matrix<double>::Zero(c, c);
    const bool exp_of_sums =
        chunked_.at(Point::kGateSum).has_value() && !chunked_.has_coarse_operands();
    const double of_exp = contract_.functions.exp + chunked_.unit_roundoff;
    std::vector<double> decay(static_cast<std::size_t>(lane_.gates));
    std::vector<double> error(decay.size());
    for (std::int64_t j = 0; j < c; ++j) {
      std::ranges::fill(decay, 1.0);
      std::ranges::fill(error, 0.0);
      for (std::int64_t i = j + 1; i < c; ++i) {
        const double count = exp_of_sums ? 2.0 : static_cast<double>(i - j + 2);
        for (std::int64_t g = 0; g < lane_.gates; ++g) {
          const auto at = static_cast<std::size_t>(g);
          decay[at] *= std::fabs(lane_.alpha_at(first + i, g));
          error[at] += gates_(first + i, g);
        }
        granted(i, j) = element(first + i, first + j, decay, error, count * of_exp);
      }
    }
    return granted;
  }

 private:
  [[nodiscard]] const TokenBounds& bounds(std::int64_t t) const {
    return lane_.bounds[static_cast<std::size_t>(t)];
  }
  [[nodiscard]] double log_alpha_at(std::int64_t t, std::int64_t g) const {
    return lane_.log_alpha[static_cast<std::size_t>(t * lane_.gates + g)];
  }
  [[nodiscard]] double of_key() const { return norm_error(contract_, lane_.k_error > 0.0); }
  [[nodiscard]] double of_beta(std::int64_t t) const {
    const TokenBounds& b = bounds(t);
    const contract::FunctionErrors& f = contract_.functions;
    return b.beta_computed ? f.sigmoid + b.beta_logit * f.logit : 0.0;
  }
  // Of an element of k^, as an activation and as an operand.
  [[nodiscard]] double key_rounding(double k) const {
    return rounding_error(chunked_.at(Activation::kKey), k) +
           rounding_error(chunked_.at(Point::kIntra), k);
  }

  // A_ij of tokens i and j of the lane; the decay between them, what its gates err, and what its
  // exponentials do.
  [[nodiscard]] double element(std::int64_t i, std::int64_t j, const std::vector<double>& decay,
                               const std::vector<double>& gate_errors, double of_exp) const {
    const double beta = std::fabs(lane_.beta[static_cast<std::size_t>(i)]);
    const double u = chunked_.unit_roundoff;
    double sum = 0.0;
    double squares = 0.0;
    double error = 0.0;
    for (std::int64_t x = 0; x < lane_.K; ++x) {
      const std::int64_t g = lane_.gates == 1 ? 0 : x;
      const auto at = static_cast<std::size_t>(g);
      const double weight = beta * decay[at];
      if (weight == 0.0) continue;  // whatever an infinite logarithm errs
      const double ki = lane_.k_row(i)[x];
      const double kj = lane_.k_row(j)[x];
      const double term = weight * ki * kj;
      sum += term;
      squares += term * term;
      const double ri = key_rounding(ki);
      const double rj = key_rounding(kj);
      const double of_decay = gate_errors[at] + sums_(i, g) + sums_(j, g) + of_exp;
      error += weight * (ri * std::fabs(kj) + std::fabs(ki) * rj + ri * rj) +
               std::fabs(term) * (8.0 * u + of_decay);
    }
    const double rounded_beta = contract::unit_of(contract_.at(Activation::kBeta));
    const auto n = static_cast<double>(lane_.K);
    const double variance = (n / 3 * sum * sum + (n / 6 + 2) * squares) / 3;
    return error + std::fabs(sum) * (2 * of_key() + of_beta(i) + rounded_beta) +
           multiple_ * u * std::sqrt(variance);
  }

  const contract::Contract& contract_;
  const contract::Chunked& chunked_;
  const Lane<double>& lane_;
  const double multiple_;
  Matrix<double> gates_, sums_;  // [tokens,gates] E_gate and c
};

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
        runs_(runs_for(plan)),
        inputs_(record),
        index_(record, plan.dims),
        stages_(stages) {
    const double lost = flushed(record, dims_);
    for (auto& [name, stage] : stages_) {
      const bool has = chunked_.form == contract::Form::kWY || (name != "w" && name != "u");
      verdict::Expected& e = stage.expected;
      e.grant = {};
      if (!has) continue;
      e.grant = empty_grant(e.exact, multiple_for(std::ssize(e.exact.golden), runs_.random),
                            verdict::GrantDetail::kSpread);
      e.grant.flushed = lost;
    }
  }

  void run(const call::Sequence& sequence, std::int64_t first_chunk, std::int64_t head) {
    const auto lane = prepare_lane<double>(record_, dims_, inputs_, sequence, head);
    const verdict::ExpectedStage* A = find("A");
    const LaneGrants grants(
        contract_, record_.convention, lane,
        deviation_multiple(A == nullptr ? 1 : std::ssize(A->expected.exact.golden)));
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
    return found == stages_.end() || !found->second.expected.grant.given ? nullptr
                                                                         : &found->second;
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
                  const Lane<double>& lane, const LaneGrants& grants,
                  const Matrix<double>& of_A) {
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
      scales.T.block(first, 0, c, c) = scale2.cwiseSqrt();
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
          error2(i, x) =
              k == 0.0 ? 0.0 : k * k * (operands * operands + of_decay * of_decay);
        }
      }
      scales.w.middleRows(first, c) = (scale2 * k2 + T2 * error2).cwiseSqrt();
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

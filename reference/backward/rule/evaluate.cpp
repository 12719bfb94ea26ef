// SPDX-License-Identifier: Apache-2.0
//
// Length: the tensors of a call and what a group of lanes stores in each, which are read together.
#include "reference/backward/rule/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/backward/rule/pooled.hpp"
#include "reference/backward/rule/slopes.hpp"

namespace goldenrule::backward {
namespace {

using call::Dims;
using call::Record;
using delta::CallInputs;
using verdict::Exact;
using verdict::Touch;

bool all_finite(const std::vector<double>& x) {
  return std::ranges::all_of(x, [](double y) { return std::isfinite(y); });
}

// A sum of terms, their sizes and the errors that they bring.
template <class S>
struct Sum {
  S value = S(0);
  double radius = 0.0, sizes = 0.0, squares = 0.0;
  std::int64_t terms = 0;

  void add(const S& x, double error) {
    const double size = std::fabs(scalar::to_double(x));
    value = value + x;
    radius += error;
    sizes += size;
    squares += size * size;
    ++terms;
  }
  void add(const Sum& other) {
    value = value + other.value;
    radius += other.radius;
    sizes += other.sizes;
    squares += other.squares;
    terms += other.terms + 1;
  }
  [[nodiscard]] double bound() const {
    return radius +
           static_cast<double>(terms) * scalar::Tier<S>::kUnitRoundoff * sizes * kSecondOrder;
  }
};

// What one group adds to the gradients of the parameters: [lanes] and [lanes, gates].
template <class S>
struct Parameters {
  std::vector<Sum<S>> amplitude, bias;
  bool met_nonfinite = false;
};

template <class S>
class Gradients {
 public:
  Gradients(const Record& record, const Dims& dims, bool certify)
      : record_(record),
        convention_(record.convention),
        d_(dims),
        certify_(certify),
        inputs_(record),
        gates_(call::gate_channels(record, dims.K)),
        sequences_(sequences_of(record, dims)) {
    expected_.precision = scalar::Tier<S>::kPrecision;
    dq_ = make("dq", 1);
    dk_ = make("dk", 1);
    dv_ = make("dv", 1);
    dv_->channels = static_cast<std::size_t>(d_.V);
    for (Exact* e : {dq_, dk_, dv_}) reach(*e);
    if (const std::string name = gate_output(convention_); !name.empty()) {
      dgate_ = make(name, gates_ == 1 ? 0 : 1);
      reach(*dgate_);
      unit(*dgate_);
    }
    dbeta_ = make(beta_output(convention_), 0);
    reach(*dbeta_);
    unit(*dbeta_);
    if (!inputs_.A_log.empty()) dA_log_ = make("dA_log", 0);
    if (!inputs_.dt_bias.empty()) ddt_bias_ = make("ddt_bias", gates_ == 1 ? 0 : 1);
    for (Exact* sum : {dA_log_, ddt_bias_}) {
      if (sum != nullptr) reach(*sum);
    }
    dstart_ = make("dinitial_state", 2);
    dstart_->channels = static_cast<std::size_t>(d_.V);
    state_ = call::output_strides(record_, d_, "dinitial_state");
    dstart_->run = static_cast<std::size_t>(state_.value);
  }

  verdict::Expectations run() {
    const std::int64_t groups = std::ssize(sequences_) * d_.H;
    std::vector<Parameters<S>> parts(static_cast<std::size_t>(groups));
    parallel::for_each_index(groups, [&](std::int64_t i) {
      parts[static_cast<std::size_t>(i)] = group(i / d_.H, i % d_.H);
    });
    add_parameters(parts);
    return std::move(expected_);
  }

 private:
  Exact* make(const std::string& name, std::size_t inner) {
    Exact& e = expected_.outputs[name].exact;
    e.shape = call::output_shape(record_, d_, name);
    for (std::size_t i = e.shape.size() - inner; i < e.shape.size(); ++i) {
      e.block *= static_cast<std::size_t>(e.shape[i]);
    }
    const auto n = static_cast<std::size_t>(call::element_count(e.shape));
    e.golden.assign(n, 0.0);
    e.radius.assign(n, 0.0F);
    e.touched.assign(n / e.block, Touch::kComputed);
    return &e;
  }

  static void reach(Exact& e) { e.reach.assign(e.touched.size() * e.channels, 0.0F); }

  static void unit(Exact& e) { e.unit.assign(e.golden.size(), 0.0F); }

  // Rounded to double, with that rounding in its radius.
  void store(Exact& to, std::size_t at, const S& x, double radius, bool met_nonfinite) const {
    const double golden = scalar::to_double(x);
    to.golden[at] = golden;
    if (!certify_) {
      to.radius[at] = std::numeric_limits<float>::infinity();
    } else if (!std::isfinite(golden)) {
      to.radius[at] = met_nonfinite ? 0.0F : std::numeric_limits<float>::infinity();
    } else {
      constexpr bool kRounds = scalar::Tier<S>::kPrecision != scalar::Precision::kDouble;
      const double whole = radius + (kRounds ? std::fabs(golden) * 0x1p-53 + 0x1p-1074 : 0.0);
      to.radius[at] =
          std::isnan(whole) ? std::numeric_limits<float>::infinity() : call::f32_not_below(whole);
    }
  }

  static void store_reach(Exact& to, std::size_t block, double size) {
    if (std::isfinite(size)) to.reach[block] = static_cast<float>(size);
  }

  // The lanes of one sequence that share a query/key head.
  Parameters<S> group(std::int64_t n, std::int64_t h) {
    const Sequence& tokens = sequences_[static_cast<std::size_t>(n)];
    const auto count = static_cast<std::size_t>(tokens.count);
    std::vector<S> dq(count * static_cast<std::size_t>(d_.K), S(0));
    std::vector<S> dk = dq;
    std::vector<double> q_radius(count, 0.0);
    std::vector<double> k_radius = q_radius;
    std::vector<double> q_size2 = q_radius;
    std::vector<double> k_size2 = q_radius;
    Parameters<S> parameters;
    const std::vector<std::int64_t> heads = heads_of_group(record_, d_, h);
    for (const std::int64_t head : heads) {
      const LaneInputs given = lane_inputs(record_, d_, n, tokens, head);
      const delta::Lane<S> lane =
          delta::prepare_lane<S>(record_, d_, inputs_, tokens.first, tokens.count, head);
      const bool met = lane.first_nonfinite.any() < lane.tokens || !all_finite(given.v) ||
                       !all_finite(given.output_gradient) || !all_finite(given.start) ||
                       !all_finite(given.state_gradient);
      parameters.met_nonfinite = parameters.met_nonfinite || met;
      const LaneGradients<S> part = lane_gradients(lane, given);
      add(part.dq, part.dq_radius, part.dq_size, dq, q_radius, q_size2);
      add(part.dk, part.dk_radius, part.dk_size, dk, k_radius, k_size2);
      store_value(tokens, head, part, met);
      store_beta(tokens, head, part, met);
      store_start(n, tokens, head, part, met);
      parameters.amplitude.emplace_back();
      parameters.bias.resize(parameters.bias.size() + static_cast<std::size_t>(gates_));
      if (dgate_ != nullptr) store_gate(tokens, head, part, met, parameters);
    }
    const S scale(call::resolved_scale(convention_, d_.K));
    store_normed(*dq_, inputs_.q, tokens, h, scale, dq, q_radius, q_size2,
                 parameters.met_nonfinite);
    store_normed(*dk_, inputs_.k, tokens, h, S(1), dk, k_radius, k_size2, parameters.met_nonfinite);
    return parameters;
  }

  // The sum over the value heads of a group: one more rounding each.
  void add(const std::vector<S>& part, const std::vector<double>& part_radius,
           const std::vector<double>& size, std::vector<S>& sum, std::vector<double>& radius,
           std::vector<double>& size2) const {
    const auto K = static_cast<std::size_t>(d_.K);
    for (std::size_t t = 0; t < radius.size(); ++t) {
      double largest = 0.0;
      for (std::size_t i = t * K; i < (t + 1) * K; ++i) {
        sum[i] = sum[i] + part[i];
        largest = std::max(largest, std::fabs(scalar::to_double(sum[i])));
      }
      size2[t] += size[t] * size[t];
      radius[t] += part_radius[t] + scalar::Tier<S>::kUnitRoundoff * largest;
    }
  }

  void store_normed(Exact& to, const delta::Input& x, const Sequence& tokens, std::int64_t h,
                    const S& scale, std::vector<S>& dy, const std::vector<double>& radius,
                    const std::vector<double>& size2, bool met_nonfinite) const {
    const auto K = static_cast<std::size_t>(d_.K);
    std::vector<double> row;
    std::vector<double> radii(K);
    std::vector<S> dx(K);
    const double size = std::fabs(scalar::to_double(scale));
    for (std::int64_t t = 0; t < tokens.count; ++t) {
      const std::int64_t first = ((tokens.first + t) * d_.H + h) * d_.K;
      S* of_token = dy.data() + t * d_.K;
      double largest = 0.0;
      for (std::size_t i = 0; i < K; ++i) {
        of_token[i] = of_token[i] * scale;
        largest = std::max(largest, std::fabs(scalar::to_double(of_token[i])));
      }
      const double moved =
          size * radius[static_cast<std::size_t>(t)] + scalar::Tier<S>::kUnitRoundoff * largest;
      norm_adjoint<S>(convention_, x.read(first, d_.K, row), of_token, d_.K, moved, dx.data(),
                      radii.data());
      for (std::size_t i = 0; i < K; ++i) {
        store(to, static_cast<std::size_t>(first) + i, dx[i], radii[i], met_nonfinite);
      }
      store_reach(
          to, static_cast<std::size_t>(first) / K,
          size * std::sqrt(size2[static_cast<std::size_t>(t)]) / norm_size(convention_, row, d_.K));
    }
  }

  static double squared(double x) { return x * x; }

  static void store_unit(Exact& to, std::size_t at, double size) {
    if (std::isfinite(size)) to.unit[at] = static_cast<float>(size);
  }

  // The size of each token, in view of those of its chunk.
  void store_reaches(Exact& to, const Sequence& tokens, std::int64_t head,
                     const std::vector<double>& sizes) const {
    const std::vector<double> held = among_neighbours(sizes, kNeighbours);
    for (std::int64_t t = 0; t < tokens.count; ++t) {
      store_reach(to, static_cast<std::size_t>((tokens.first + t) * d_.HV + head),
                  held[static_cast<std::size_t>(t)]);
    }
  }

  void store_value(const Sequence& tokens, std::int64_t head, const LaneGradients<S>& part,
                   bool met) const {
    std::vector<double> squares;
    for (const double size : part.dv_size) squares.push_back(size * size);
    const std::vector<double> held2 = pooled(squares, d_.V, kNeighbours);
    for (std::int64_t t = 0; t < tokens.count; ++t) {
      for (std::int64_t c = 0; c < d_.V; ++c) {
        const auto from = static_cast<std::size_t>(t * d_.V + c);
        const auto at = static_cast<std::size_t>(((tokens.first + t) * d_.HV + head) * d_.V + c);
        store(*dv_, at, part.dv[from], part.dv_radius[from], met);
        store_reach(*dv_, at, std::sqrt(held2[from]));
      }
    }
  }

  void store_beta(const Sequence& tokens, std::int64_t head, const LaneGradients<S>& part,
                  bool met) const {
    std::vector<double> sizes;
    for (std::int64_t t = 0; t < tokens.count; ++t) {
      const auto from = static_cast<std::size_t>(t);
      const auto at = static_cast<std::size_t>((tokens.first + t) * d_.HV + head);
      const Slope<S> slope = beta_slope<S>(convention_.beta, inputs_.b[at]);
      const double by = std::fabs(scalar::to_double(slope.value));
      const S x = silenced<S>(slope.value, part.dbeta[from]);
      store(*dbeta_, at, x,
            by * part.dbeta_radius[from] +
                slope.error * std::fabs(scalar::to_double(x)) * kSecondOrder,
            met);
      sizes.push_back(by * part.dbeta_size[from]);
      store_unit(*dbeta_, at, sizes.back());
    }
    store_reaches(*dbeta_, tokens, head, sizes);
  }

  void store_gate(const Sequence& tokens, std::int64_t head, const LaneGradients<S>& part, bool met,
                  Parameters<S>& parameters) const {
    const std::int64_t parameter_head = call::gate_head(convention_, d_, head);
    const double A_log =
        inputs_.A_log.empty() ? 0.0 : inputs_.A_log[static_cast<std::size_t>(parameter_head)];
    Sum<S>& amplitude = parameters.amplitude.back();
    Sum<S>* bias = &parameters.bias[parameters.bias.size() - static_cast<std::size_t>(gates_)];
    std::vector<double> row;
    std::vector<double> sizes;
    for (std::int64_t t = 0; t < tokens.count; ++t) {
      const std::int64_t first = ((tokens.first + t) * d_.HV + head) * gates_;
      const double* x = inputs_.gate_input.read(first, gates_, row);
      const auto token = static_cast<std::size_t>(t);
      double slopes2 = 0.0;
      for (std::int64_t i = 0; i < gates_; ++i) {
        const double shift =
            inputs_.dt_bias.empty()
                ? 0.0
                : inputs_.dt_bias[static_cast<std::size_t>(parameter_head * gates_ + i)];
        const GateSlopes<S> slopes = gate_slopes<S>(convention_, x[i], A_log, shift);
        const S& dg = part.dg[static_cast<std::size_t>(t * gates_ + i)];
        const auto through = [&](const Slope<S>& slope, Sum<S>* sum) {
          const S y = silenced<S>(slope.value, dg);
          const double error = std::fabs(scalar::to_double(slope.value)) * part.dg_radius[token] +
                               delta::weighted(std::fabs(scalar::to_double(y)),
                                               slope.error + scalar::Tier<S>::kUnitRoundoff) *
                                   kSecondOrder;
          if (sum != nullptr) sum->add(y, error);
          return std::pair(y, error);
        };
        const auto [da, error] = through(slopes.input, ddt_bias_ == nullptr ? nullptr : bias + i);
        if (dA_log_ != nullptr) through(slopes.amplitude, &amplitude);
        store(*dgate_, static_cast<std::size_t>(first + i), da, error, met);
        const double by = std::fabs(scalar::to_double(slopes.input.value));
        slopes2 += squared(by);
        store_unit(*dgate_, static_cast<std::size_t>(first + i), by * part.dg_size[token]);
      }
      sizes.push_back(part.dg_size[token] * std::sqrt(slopes2 / static_cast<double>(gates_)));
    }
    store_reaches(*dgate_, tokens, head, sizes);
  }

  void store_start(std::int64_t n, const Sequence& tokens, std::int64_t head,
                   const LaneGradients<S>& part, bool met) const {
    for (std::int64_t i = 0; i < d_.K; ++i) {
      for (std::int64_t c = 0; c < d_.V; ++c) {
        store(*dstart_, state_(n, head, i, c), part.dstart[static_cast<std::size_t>(i * d_.V + c)],
              part.dstart_radius[static_cast<std::size_t>(c)], met);
      }
    }
    if (tokens.count == 0) {
      dstart_->touched[static_cast<std::size_t>(n * d_.HV + head)] = Touch::kCopied;
    }
  }

  // Sums over sequences, and with gate_head qk over the value heads of a head.
  void add_parameters(const std::vector<Parameters<S>>& parts) const {
    const bool per_value_head = convention_.gate_head == call::GateHead::kV;
    const auto heads = static_cast<std::size_t>(per_value_head ? d_.HV : d_.H);
    std::vector<Sum<S>> amplitude(heads);
    std::vector<Sum<S>> bias(heads * static_cast<std::size_t>(gates_));
    std::vector<bool> met(heads, false);
    for (std::int64_t h = 0; h < d_.H; ++h) {
      const std::vector<std::int64_t> lanes = heads_of_group(record_, d_, h);
      for (std::int64_t n = 0; n < std::ssize(sequences_); ++n) {
        const Parameters<S>& part = parts[static_cast<std::size_t>(n * d_.H + h)];
        for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
          const auto to = static_cast<std::size_t>(per_value_head ? lanes[lane] : h);
          met[to] = met[to] || part.met_nonfinite;
          amplitude[to].add(part.amplitude[lane]);
          for (std::int64_t i = 0; i < gates_; ++i) {
            bias[to * static_cast<std::size_t>(gates_) + static_cast<std::size_t>(i)].add(
                part.bias[lane * static_cast<std::size_t>(gates_) + static_cast<std::size_t>(i)]);
          }
        }
      }
    }
    if (dA_log_ != nullptr) store_sums(*dA_log_, amplitude, met, 1);
    if (ddt_bias_ != nullptr) store_sums(*ddt_bias_, bias, met, static_cast<std::size_t>(gates_));
  }

  void store_sums(Exact& to, const std::vector<Sum<S>>& sums, const std::vector<bool>& met,
                  std::size_t channels) const {
    std::vector<double> squares(met.size(), 0.0);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      store(to, i, sums[i].value, sums[i].bound(), met[i / channels]);
      squares[i / channels] += sums[i].squares;
    }
    for (std::size_t head = 0; head < met.size(); ++head) {
      store_reach(to, head, std::sqrt(squares[head]));
    }
  }

  const Record& record_;
  const call::Convention& convention_;
  const Dims& d_;
  bool certify_;
  CallInputs inputs_;
  std::int64_t gates_;
  std::vector<Sequence> sequences_;
  verdict::Expectations expected_;
  Exact *dq_ = nullptr, *dk_ = nullptr, *dv_ = nullptr, *dgate_ = nullptr, *dbeta_ = nullptr,
        *dA_log_ = nullptr, *ddt_bias_ = nullptr, *dstart_ = nullptr;
  call::Strides state_;
};

}  // namespace

verdict::Expectations evaluate(const Record& record, scalar::Precision precision,
                               const verdict::EvaluationOptions& options) {
  const Dims dims = call::validate(record);
  switch (precision) {
    case scalar::Precision::kDouble:
      return Gradients<double>(record, dims, options.certify).run();
    case scalar::Precision::kQuad:
      return Gradients<scalar::Quad>(record, dims, options.certify).run();
    case scalar::Precision::kMulti:
      break;
  }
  return Gradients<scalar::Multi>(record, dims, options.certify).run();
}

}  // namespace goldenrule::backward

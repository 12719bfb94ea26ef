// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/rule/lane.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/call/operation.hpp"
#include "reference/delta/rule/gate.hpp"

namespace goldenrule::delta {
namespace {

// Second-order terms of the first-order bounds of lane.hpp, and the rounding of the bounds
// themselves (a few hundred double operations on positive numbers).
constexpr double kSafety = 1.0 + 0x1p-6;

// Rounding of a tier's number to double, and of a few double operations around it.
constexpr double kRounded = 1.0 + 0x1p-50;

// The power of two by which a row is divided before its squares are summed: 1 unless squares would
// leave the range of double, and 1 where they vanish beside eps.
double row_scale(const call::Convention& c, const double* x, std::int64_t K) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < K; ++i) largest = std::max(largest, std::fabs(x[i]));
  const bool large = largest > 0x1p400 && std::isfinite(largest);
  const bool small = largest < 0x1p-400 && largest > 0.0 && c.l2_eps < 0x1p-700;
  return large || small ? std::ldexp(1.0, std::ilogb(largest)) : 1.0;
}

// Normalises row `x` into `out` and returns an upper bound of the exact norm.
template <class S>
double normalise(const call::Convention& c, const double* x, std::int64_t K, const S& scale,
                 double error, S* out) {
  S divisor(1);
  if (c.qk_l2norm != call::QkNorm::kNone) {
    const S unit(row_scale(c, x, K));
    S sum(0);
    for (std::int64_t i = 0; i < K; ++i) {
      const S y = S(x[i]) / unit;
      sum += y * y;
    }
    divisor = norm_divisor(c, sum, unit);
  }
  double norm2 = 0.0;
  for (std::int64_t i = 0; i < K; ++i) {
    out[i] = scale * (S(x[i]) / divisor);
    const double y = scalar::to_double(out[i]);
    norm2 += y * y;
  }
  const double summation = static_cast<double>(K + 8) * 0x1p-53;
  return std::sqrt(norm2) * (1.0 + summation + 2.0 * error);
}

bool all_finite(const double* x, std::int64_t n) {
  return std::all_of(x, x + n, [](double y) { return std::isfinite(y); });
}

// max(bound, x), but a NaN stays: std::max would drop it.
void raise(double& bound, double x) {
  if (!(x <= bound)) bound = x;
}

struct GateHeadInputs {
  const double* x;        // [gates] a or g of this token, or null
  const double* A_log;    // scalar or null
  const double* dt_bias;  // [gates] or null
};

template <class S>
void prepare_gates(const call::Convention& c, const GateHeadInputs& in, Lane<S>& lane,
                   std::int64_t t) {
  TokenBounds& bounds = lane.bounds[static_cast<std::size_t>(t)];
  bounds.alpha_max = 0.0;
  bounds.scaled_logit = c.gate == call::Gate::kBounded;
  for (std::int64_t i = 0; i < lane.gates; ++i) {
    const GateValue<S> value =
        gate<S>(c, in.x == nullptr ? 0.0 : in.x[i], in.A_log == nullptr ? 0.0 : *in.A_log,
                in.dt_bias == nullptr ? 0.0 : in.dt_bias[i]);
    const auto at = static_cast<std::size_t>(t * lane.gates + i);
    lane.alpha[at] = value.alpha;
    const double alpha = std::fabs(scalar::to_double(value.alpha));
    lane.logit_slope[at] = value.logit_slope;
    lane.log_alpha[at] = value.exact ? std::log(alpha) : value.log_alpha;
    const double error = alpha_error(value) * kSafety;
    raise(bounds.alpha_error, error);
    // A gate that is NaN says nothing of the others.
    if (!value.exact && !std::isnan(value.log_alpha)) {
      raise(bounds.log_alpha_error, value.log_error);
    }
    raise(bounds.log_by_softplus, value.softplus_slope);
    // weighted: alpha = 0 silences even an infinite log alpha, since it erases the state.
    if (value.exact) {
      raise(bounds.alpha_max, alpha);
      if (c.gate == call::Gate::kLinear) raise(bounds.by_gate, alpha);
      continue;
    }
    const double upper = alpha * kRounded + error;
    raise(bounds.alpha_max, value.at_most_one ? std::min(upper, 1.0) : upper);
    raise(bounds.by_exp, alpha);
    raise(bounds.by_log_alpha, weighted(alpha, std::fabs(value.log_alpha)));
    raise(bounds.by_gate, weighted(alpha, std::fabs(value.log_alpha)));
    raise(bounds.by_softplus, weighted(alpha, value.softplus_slope));
    raise(bounds.by_logit, weighted(alpha, value.logit_slope));
    if (alpha == 0.0) continue;
    raise(bounds.softplus_slope, value.softplus_slope);
    raise(bounds.log_alpha_max, std::fabs(value.log_alpha));
  }
}

bool are_finite(const GateHeadInputs& gates, std::int64_t n) {
  return (gates.x == nullptr || all_finite(gates.x, n)) &&
         (gates.A_log == nullptr || std::isfinite(*gates.A_log)) &&
         (gates.dt_bias == nullptr || all_finite(gates.dt_bias, n));
}

// What of token `t` is finite, tokens in rising order.
template <class S>
void note_nonfinite(const double* q, const double* k, const GateHeadInputs& gates, double b,
                    std::int64_t t, Lane<S>& lane) {
  const auto note = [&](std::int64_t& first, bool finite) {
    if (first == lane.tokens && !finite) first = t;
  };
  note(lane.first_nonfinite.q, all_finite(q, lane.K));
  note(lane.first_nonfinite.k, all_finite(k, lane.K));
  note(lane.first_nonfinite.beta, std::isfinite(b));
  note(lane.first_nonfinite.gates, are_finite(gates, lane.gates));
}

// ||I - beta k k^T||_2: the eigenvalues are 1 and 1 - beta ||k||^2, and the latter is monotone in
// ||k||^2, so its extremes are 1 (k = 0) and the value at the upper bound of the norm.
double spectral_bound(double beta, const TokenBounds& bounds) {
  const double reach = beta * bounds.k_norm * bounds.k_norm * (kRounded + bounds.beta_error);
  const double edge = std::fabs(1.0 - reach);
  return std::isnan(edge) || edge > 1.0 ? edge * kRounded : 1.0;
}

}  // namespace

CallInputs::CallInputs(const call::Record& record)
    : q(record.find_input("q")),
      k(record.find_input("k")),
      v(record.find_input("v")),
      b(record.find_input(record.convention.beta == call::BetaForm::kDirect ? "beta" : "b")),
      initial_state(record.find_input("initial_state")),
      ring_d(record.find_input("initial_ring_d")),
      ring_k(record.find_input("initial_ring_k")),
      ring_g(record.find_input("initial_ring_g")) {
  // Only what the gate reads: validate() has checked the shapes of exactly these.
  const call::Gate gate = record.convention.gate;
  if (call::has_logit_gate(record.convention)) {
    gate_input = Input(record.find_input("a"));
    A_log = Input(record.find_input("A_log"));
    dt_bias = Input(record.find_input("dt_bias"));
  } else if (gate != call::Gate::kNone) {
    gate_input = Input(record.find_input("g"));
  }
}

namespace {

// A lane of `count` tokens before any is prepared.
template <class S>
Lane<S> empty_lane(const call::Record& record, std::int64_t K, std::int64_t count) {
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  Lane<S> lane;
  lane.tokens = count;
  lane.K = K;
  lane.gates = call::gate_channels(record, K);
  lane.q.resize(static_cast<std::size_t>(count * K));
  lane.k.resize(static_cast<std::size_t>(count * K));
  lane.alpha.resize(static_cast<std::size_t>(count * lane.gates));
  lane.log_alpha.resize(lane.alpha.size());
  lane.logit_slope.resize(lane.alpha.size());
  lane.beta.resize(static_cast<std::size_t>(count));
  lane.bounds.resize(static_cast<std::size_t>(count));
  lane.k_error = record.convention.qk_l2norm == call::QkNorm::kNone
                     ? 0.0
                     : (static_cast<double>(K + 1) / 2 + 4) * u * kSafety;
  lane.q_error = lane.k_error + u;
  lane.first_nonfinite = {count, count, count, count};
  return lane;
}

// Token t of a lane as it stands at a place of a ring: its key is normalised, its gate is log
// alpha, and its correction is given.
template <class S>
void prepare_given(const call::Convention& c, const double* k, const double* log_alpha,
                   Lane<S>& lane, std::int64_t t) {
  call::Convention stored = c;
  stored.qk_l2norm = call::QkNorm::kNone;
  stored.gate = call::Gate::kLog;
  TokenBounds& bounds = lane.bounds[static_cast<std::size_t>(t)];
  const auto row = static_cast<std::size_t>(t * lane.K);
  bounds.k_norm = normalise(stored, k, lane.K, S(1), 0.0, &lane.k[row]);
  std::fill_n(lane.q.begin() + static_cast<std::ptrdiff_t>(row), lane.K, S(0));
  const GateHeadInputs gates{.x = log_alpha, .A_log = nullptr, .dt_bias = nullptr};
  prepare_gates<S>(stored, gates, lane, t);
  lane.beta[static_cast<std::size_t>(t)] = S(0);
  note_nonfinite(k, k, gates, 0.0, t, lane);
}

// The tokens that a sequence replays from its ring.
template <class S>
void prepare_replayed(const call::Record& record, const call::Dims& dims, const CallInputs& inputs,
                      const call::Replay& replay, std::int64_t head, Lane<S>& lane) {
  const RingIndex ring(record, dims);
  const std::int64_t qk_head = dims.qk_head(record.convention.head_map, head);
  std::vector<double> k_row, gate_row;
  for (std::int64_t t = 0; t < replay.count; ++t) {
    const std::int64_t place = replay.place(t);
    const double* k = inputs.ring_k.read(ring.k(replay.ring, qk_head, place), lane.K, k_row);
    const double* g = inputs.ring_g.read(ring.g(replay.ring, head, place), lane.gates, gate_row);
    prepare_given(record.convention, k, g, lane, t);
  }
}

}  // namespace

RingIndex::RingIndex(const call::Record& record, const call::Dims& dims)
    : H(dims.H),
      HV(dims.HV),
      K(dims.K),
      V(dims.V),
      places(dims.ring_places),
      gates(call::gate_channels(record, dims.K)) {}

template <class S>
Lane<S> prepare_lane(const call::Record& record, const call::Dims& dims, const CallInputs& inputs,
                     const call::Sequence& sequence, std::int64_t head) {
  using Tier = scalar::Tier<S>;
  constexpr double u = Tier::kUnitRoundoff;
  const call::Convention& c = record.convention;
  const std::int64_t K = dims.K;
  const std::int64_t qk_head = dims.qk_head(c.head_map, head);
  const std::int64_t gate_head = call::gate_head(c, dims, head);
  const call::Replay& replay = sequence.replay;
  const std::int64_t count = sequence.lane_tokens();
  Lane<S> lane = empty_lane<S>(record, K, count);
  lane.given = replay.count;
  const S one(1);
  const S scale(call::resolved_scale(c, K));
  const double beta_error =
      c.beta == call::BetaForm::kDirect ? 0.0 : (Tier::kFunctionError + 3 * u) * kSafety;
  std::vector<double> q_row, k_row, gate_row, amplitude, bias_row;
  const auto read_if_given = [](const Input& input, std::int64_t from, std::int64_t n,
                                std::vector<double>& row) {
    return input.empty() ? nullptr : input.read(from, n, row);
  };
  const double* A_log = read_if_given(inputs.A_log, gate_head, 1, amplitude);
  const double* dt_bias =
      read_if_given(inputs.dt_bias, gate_head * lane.gates, lane.gates, bias_row);
  prepare_replayed(record, dims, inputs, replay, head, lane);
  for (std::int64_t t = replay.count; t < count; ++t) {
    const std::int64_t token = sequence.first_token + t - replay.count;
    const auto row = static_cast<std::size_t>(t * K);
    const std::int64_t qk_offset = (token * dims.H + qk_head) * K;
    TokenBounds& bounds = lane.bounds[static_cast<std::size_t>(t)];
    const double* q = inputs.q.read(qk_offset, K, q_row);
    const double* k = inputs.k.read(qk_offset, K, k_row);
    bounds.q_norm = normalise(c, q, K, scale, lane.q_error, &lane.q[row]);
    bounds.k_norm = normalise(c, k, K, one, lane.k_error, &lane.k[row]);
    const std::int64_t vt = token * dims.HV + head;
    const GateHeadInputs gates{
        .x = read_if_given(inputs.gate_input, vt * lane.gates, lane.gates, gate_row),
        .A_log = A_log,
        .dt_bias = dt_bias};
    prepare_gates<S>(c, gates, lane, t);
    const double b = inputs.b[static_cast<std::size_t>(vt)];
    note_nonfinite(q, k, gates, b, t, lane);
    const S beta = beta_value<S>(c.beta, b);
    lane.beta[static_cast<std::size_t>(t)] = beta;
    bounds.beta = std::fabs(scalar::to_double(beta));
    bounds.beta_error = beta_error;
    bounds.spectral = spectral_bound(scalar::to_double(beta), bounds);
    if (c.beta != call::BetaForm::kDirect) {
      bounds.beta_computed = true;
      // The sigmoid of an infinity is 0 or 1 in every kernel.
      bounds.beta_logit = std::isinf(b) ? 0.0 : weighted(sigmoid(-b), std::fabs(b));
    }
  }
  return lane;
}

template Lane<double> prepare_lane(const call::Record&, const call::Dims&, const CallInputs&,
                                   const call::Sequence&, std::int64_t);
template Lane<scalar::Quad> prepare_lane(const call::Record&, const call::Dims&, const CallInputs&,
                                         const call::Sequence&, std::int64_t);
template Lane<scalar::Multi> prepare_lane(const call::Record&, const call::Dims&, const CallInputs&,
                                          const call::Sequence&, std::int64_t);

}  // namespace goldenrule::delta

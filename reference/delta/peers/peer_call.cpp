// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/peers/peer_call.hpp"

#include <cmath>
#include <numeric>
#include <utility>

namespace goldenrule::peers::peer {

using call::DType;

namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

Draw normal(double deviation) {
  return [=](const random::Stream& s, std::int64_t i) { return deviation * s.normal(i); };
}

Draw uniform(double low, double high) {
  return [=](const random::Stream& s, std::int64_t i) { return s.uniform(i, low, high); };
}

Draw constant(double value) {
  return [=](const random::Stream&, std::int64_t) { return value; };
}

Draw fla_gate(double normalizer) {
  return [=](const random::Stream& s, std::int64_t i) {
    return std::log(sigmoid(s.uniform(i))) / normalizer;
  };
}

double fla_beta(const random::Stream& s, std::int64_t i) { return sigmoid(s.uniform(i)); }

Call::Call(call::Op op, call::Mode mode, Extents extents, DType io, std::uint64_t seed)
    : extents_(std::move(extents)), io_(io), seed_(seed) {
  record_.op = op;
  record_.mode = mode;
  if (mode == call::Mode::kPrefill) {
    std::vector<double> bounds{0.0};
    for (const std::int64_t n : extents_.lengths) {
      bounds.push_back(bounds.back() + static_cast<double>(n));
    }
    tokens_ = {static_cast<std::int64_t>(bounds.back())};
    rows_ = std::ssize(extents_.lengths);
    record_.inputs["cu_seqlens"] = call::Tensor(DType::kI64, {std::ssize(bounds)}, bounds);
  } else {
    tokens_ = {extents_.B, extents_.T};
    rows_ = extents_.B;
  }
}

Call& Call::vectors(const Draw& q, const Draw& k, const Draw& v) {
  fill("q", io_, tokens({extents_.H, extents_.K}), q);
  fill("k", io_, tokens({extents_.H, extents_.K}), k);
  fill("v", io_, tokens({extents_.HV, extents_.V}), v);
  return *this;
}

Call& Call::normalized(const char* name) {
  const call::Tensor given = record_.inputs.at(name);
  std::vector<double> x = given.to_doubles();
  const auto K = static_cast<std::size_t>(extents_.K);
  for (std::size_t row = 0; row < x.size(); row += K) {
    double sum = 0.0;
    for (std::size_t i = row; i < row + K; ++i) sum += x[i] * x[i];
    for (std::size_t i = row; i < row + K; ++i) x[i] /= std::sqrt(sum);
  }
  record_.inputs[name] = call::Tensor(io_, given.shape(), x);
  return *this;
}

Call& Call::given_gate(call::Gate gate, const Draw& g) {
  convention().gate = gate;
  fill("g", DType::kF32, tokens(gate_axes()), g);
  return *this;
}

Call& Call::projected_gate(call::Gate gate, const Draw& a, const Draw& A_log, const Draw& dt_bias) {
  convention().gate = gate;
  fill("a", io_, tokens(gate_axes()), a);
  fill("A_log", DType::kF32, {extents_.HV}, A_log);
  fill("dt_bias", DType::kF32, gate_axes(), dt_bias);
  return *this;
}

Call& Call::given_beta(const Draw& beta) {
  convention().beta = call::BetaForm::kDirect;
  fill("beta", DType::kF32, tokens({extents_.HV}), beta);
  return *this;
}

Call& Call::beta_logit(const Draw& b) {
  fill("b", io_, tokens({extents_.HV}), b);
  return *this;
}

Call& Call::state(DType type, const Draw& x) {
  const bool vk = convention().state_layout == call::StateLayout::kVK;
  fill("initial_state", type,
       {rows_, extents_.HV, vk ? extents_.V : extents_.K, vk ? extents_.K : extents_.V}, x);
  return *this;
}

Call& Call::identity_slots() {
  std::vector<double> slots(static_cast<std::size_t>(rows_));
  std::iota(slots.begin(), slots.end(), 0.0);
  record_.inputs["state_indices"] = call::Tensor(DType::kI32, {rows_}, slots);
  return *this;
}

PeerCase Call::judged_by(PeerRule rule, std::string contract) const {
  return {.record = record_, .contract = std::move(contract), .rule = rule};
}

call::Shape Call::tokens(const call::Shape& tail) const {
  call::Shape shape = tokens_;
  shape.insert(shape.end(), tail.begin(), tail.end());
  return shape;
}

call::Shape Call::gate_axes() const {
  return record_.op == call::Op::kKda ? call::Shape{extents_.HV, extents_.K}
                                      : call::Shape{extents_.HV};
}

void Call::fill(const char* name, DType type, const call::Shape& shape, const Draw& draw) {
  const random::Stream stream(seed_, name);
  call::Tensor tensor(type, shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, draw(stream, i));
  record_.inputs[name] = std::move(tensor);
}

}  // namespace goldenrule::peers::peer

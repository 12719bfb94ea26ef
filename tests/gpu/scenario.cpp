// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/scenario.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/gpu/random.hpp"

namespace goldenrule::test {
namespace {

// One stream of random numbers a tensor.
enum Stream : std::uint64_t { kQ = 1, kKey, kBase, kV, kGate, kRate, kBias, kBeta, kState, kOrder };

std::uint64_t stream(const Case& c, Stream s) { return c.seed * 64 + s; }

double pick(const std::vector<double>& values, std::uint64_t seed, std::uint64_t i) {
  return values[random_bits(seed, i) % values.size()];
}

template <class F>
void fill(HostTensor& tensor, F&& value) {
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    tensor.set(i, value(static_cast<std::uint64_t>(i)));
  }
}

}  // namespace

HostTensor::HostTensor(DType dtype, std::vector<std::int64_t> extents, std::int64_t gap,
                       std::uint64_t poison_seed, int contiguous)
    : dtype_(dtype), extents_(std::move(extents)), strides_(extents_.size()), dense_(gap == 0) {
  const auto axes = static_cast<int>(extents_.size());
  std::int64_t step = contiguous == 0 ? 1 + gap : 1;
  for (int axis = axes - 1; axis >= 0; --axis) {
    const auto a = static_cast<std::size_t>(axis);
    strides_[a] = step;
    // The gap follows every axis that has a stride below it: not the contiguous ones.
    step = std::max<std::int64_t>(1, step * extents_[a]) + (axis + contiguous <= axes ? gap : 0);
  }
  bytes_ = make_poison(static_cast<std::size_t>(step) * call::info(dtype).bytes, poison_seed);
}

std::int64_t HostTensor::count() const {
  return std::accumulate(extents_.begin(), extents_.end(), std::int64_t{present() ? 1 : 0},
                         std::multiplies<>());
}

void HostTensor::set(std::int64_t i, double x) {
  if (dtype_ == DType::kF32) {  // the general way is ten times slower, and most elements are f32
    const auto single = static_cast<float>(x);
    std::memcpy(&bytes_[offset(i)], &single, sizeof single);
  } else {
    call::encode(dtype_, x, &bytes_[offset(i)]);
  }
}

std::size_t HostTensor::offset(std::int64_t i) const {
  if (dense_) return static_cast<std::size_t>(i) * call::info(dtype_).bytes;
  std::int64_t at = 0;
  for (std::size_t axis = extents_.size(); axis-- > 0;) {
    at += i % extents_[axis] * strides_[axis];
    i /= extents_[axis];
  }
  return static_cast<std::size_t>(at) * call::info(dtype_).bytes;
}

double HostTensor::at(std::initializer_list<std::int64_t> index) const {
  std::int64_t i = 0;
  std::size_t axis = 0;
  for (const std::int64_t x : index) i = i * extents_[axis++] + x;
  return get(i);
}

Scenario::Scenario(const Case& c_, std::uint64_t poison_seed) : c(c_), poison(poison_seed) {
  scale = c.scale != 0 ? c.scale : 1.0 / std::sqrt(static_cast<double>(c.K));
  if (c.values == Values::kExact) scale = 0.5;
  pool = c.slots == Slots::kIdentity  ? c.B
         : c.slots == Slots::kScatter ? c.B * (c.T + 1) + 2
                                      : 2 * c.B + 3;
  const bool vk = c.layout == StateLayout::kVK;
  const std::int64_t outer = vk ? c.V : c.K, inner = vk ? c.K : c.V;
  std::uint64_t next = poison_seed * 1000;
  const auto tensor = [&](DType dtype, std::vector<std::int64_t> extents, int contiguous = 1) {
    return HostTensor(dtype, std::move(extents), c.gap, ++next, contiguous);
  };
  q = tensor(c.io, {c.B, c.T, c.H, c.K});
  k = tensor(c.io, {c.B, c.T, c.H, c.K});
  v = tensor(c.io, {c.B, c.T, c.HV, c.V});
  o = tensor(c.io, {c.B, c.T, c.HV, c.V});
  beta = tensor(c.gates, {c.B, c.T, c.HV}, 0);
  // Gaps of whole vectors lie between heads only, so that the fast kernels see them too.
  const int dense = c.gap % 8 == 0 ? 2 : 1;
  state = tensor(c.state, {pool, c.HV, outer, inner}, dense);
  if (c.separate_final) final_state = tensor(c.state, {pool, c.HV, outer, inner}, dense);
  if (c.intermediates) {
    intermediates = tensor(c.state, {c.B, c.T + c.extra_rows, c.HV, outer, inner}, dense);
  }
  fill_gates();
  fill_tokens();
  fill_indices(++next);
}

void Scenario::fill_gates() {
  const std::int64_t heads = c.gate_head == GateHead::kV ? c.HV : c.H;
  if (c.gate != Gate::kNone) {
    gate = c.kda ? HostTensor(c.gates, {c.B, c.T, c.HV, c.K}, c.gap, poison)
                 : HostTensor(c.gates, {c.B, c.T, c.HV}, c.gap, poison, 0);
  }
  if (c.gate == Gate::kSoftplus || c.gate == Gate::kBounded) {
    A_log = HostTensor(c.gates, {heads}, 0, poison);
    dt_bias = c.kda ? HostTensor(c.gates, {heads, c.K}, c.gap, poison)
                    : HostTensor(c.gates, {heads}, 0, poison);
    fill(A_log, [&](std::uint64_t i) {
      // A large rate makes the far tail of softplus visible: at -10 it is 4.5e-5.
      if (c.values == Values::kExtreme) return pick({-3, 0, 5}, stream(c, kRate), i);
      return std::log(0.02 + 0.3 * uniform(stream(c, kRate), i));
    });
    fill(dt_bias, [&](std::uint64_t i) { return normal(stream(c, kBias), i); });
  }
  const std::uint64_t s = stream(c, kGate);
  const bool extreme = c.values == Values::kExtreme;
  fill(gate, [&](std::uint64_t i) {
    switch (c.gate) {
      case Gate::kSoftplus:
      case Gate::kBounded:
        return extreme ? pick({-100, -17, -10, 0, 20.5, 100}, s, i) : normal(s, i);
      case Gate::kLog:
      case Gate::kLog2:
        return extreme ? pick({-2661, -88, -1e-4, 0, -1}, s, i) : -0.3 * uniform(s, i);
      case Gate::kLinear:
        if (c.values == Values::kExact) return pick({0, 1, 1, 1}, s, i);
        return extreme ? pick({0, 1, 0.5, 1e-20}, s, i) : 0.7 + 0.3 * uniform(s, i);
      case Gate::kNone:
        break;
    }
    return 0.0;
  });
  const std::uint64_t bs = stream(c, kBeta);
  fill(beta, [&](std::uint64_t i) {
    if (c.values == Values::kExact) return pick({0, 1, 1}, bs, i);
    if (c.beta == BetaForm::kDirect) return uniform(bs, i);
    return extreme ? pick({-100, -20, 0, 30}, bs, i) : 2 * normal(bs, i);
  });
}

void Scenario::fill_tokens() {
  const std::uint64_t sk = stream(c, kKey), sv = stream(c, kV), ss = stream(c, kState);
  const auto small = [](std::uint64_t seed, std::uint64_t i, int range) {
    return static_cast<double>(random_bits(seed, i) % static_cast<std::uint64_t>(2 * range + 1)) -
           range;
  };
  switch (c.values) {
    case Values::kExact: {
      // At most 64 channels of +-1/8 keep ||k|| <= 1; all sums are multiples of 2^-12 below 2^10.
      const std::int64_t every = (c.K + 63) / 64;
      fill(k, [&](std::uint64_t i) {
        const bool on = static_cast<std::int64_t>(i) % c.K % every == 0;
        return on ? (random_bits(sk, i) % 2 == 0 ? 0.125 : -0.125) : 0.0;
      });
      fill(q, [&](std::uint64_t i) { return 0.25 * small(stream(c, kQ), i, 2); });
      fill(v, [&](std::uint64_t i) { return small(sv, i, 4); });
      fill(state, [&](std::uint64_t i) { return small(ss, i, 4); });
      break;
    }
    case Values::kGaussian:
    case Values::kCorrelated:
    case Values::kExtreme: {
      const double size = c.values == Values::kExtreme ? 1e-3 : 1.0;
      const bool correlated = c.values == Values::kCorrelated;
      fill(k, [&](std::uint64_t i) {
        const auto channel = i % static_cast<std::uint64_t>(c.K);
        return correlated ? normal(stream(c, kBase), channel) + 0.1 * normal(sk, i)
                          : size * normal(sk, i);
      });
      fill(q, [&](std::uint64_t i) { return size * normal(stream(c, kQ), i); });
      fill(v, [&](std::uint64_t i) { return normal(sv, i); });
      // Uniform of unit variance: the largest tensor by far, and its tails do not matter.
      fill(state, [&](std::uint64_t i) { return std::sqrt(3.0) * (2 * uniform(ss, i) - 1); });
      break;
    }
  }
}

void Scenario::fill_indices(std::uint64_t poison_seed) {
  const DType type = c.wide_indices ? DType::kI64 : DType::kI32;
  const auto tensor = [&](std::vector<std::int64_t> extents) {
    return HostTensor(type, std::move(extents), 0, poison_seed);
  };
  if (c.accepted) {
    accepted = tensor({c.B});
    fill(accepted, [&](std::uint64_t b) {
      return static_cast<double>(b % static_cast<std::uint64_t>(c.T + 1));
    });
  }
  if (c.slots == Slots::kIdentity) return;
  std::vector<std::int64_t> order;
  for (std::int64_t slot = 0; slot < pool; ++slot) {
    if (slot != c.pad_slot) order.push_back(slot);
  }
  for (std::size_t i = order.size(); i-- > 1;) {  // Fisher-Yates
    std::swap(order[i], order[random_bits(stream(c, kOrder), i) % (i + 1)]);
  }
  const auto slot = [&](std::int64_t i) { return order[static_cast<std::size_t>(i)]; };
  if (c.slots == Slots::kScatter) {
    ssm_state_indices = tensor({c.B, c.T});
    num_accepted = tensor({c.B});
    for (std::int64_t b = 0; b < c.B; ++b) {
      num_accepted.set(b, static_cast<double>(1 + b % c.T));
      for (std::int64_t t = 0; t < c.T; ++t) {
        const bool padded = (b * c.T + t) % 7 == 5;
        ssm_state_indices.set(b * c.T + t,
                              static_cast<double>(padded ? c.pad_slot : slot(b * c.T + t)));
      }
    }
    return;
  }
  state_indices = tensor({c.B});
  for (std::int64_t b = 0; b < c.B; ++b) {
    std::int64_t s = slot(b);
    if (c.slots == Slots::kPadded && b % 3 == 1) s = c.pad_slot;
    if (c.slots == Slots::kStray && b % 3 == 1) s = b % 2 == 0 ? pool + b : -7 - b;
    state_indices.set(b, static_cast<double>(s));
  }
  if (c.slots == Slots::kOutput || c.slots == Slots::kOutputPadded) {
    output_state_indices = tensor({c.B});
    for (std::int64_t b = 0; b < c.B; ++b) {
      const bool padded = c.slots == Slots::kOutputPadded && b % 2 == 1;
      output_state_indices.set(b, static_cast<double>(padded ? c.pad_slot : slot(c.B + b)));
    }
  }
}

}  // namespace goldenrule::test

// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/relations/worlds.hpp"
#include "reference/delta/slice.hpp"

#include <array>
#include <bit>
#include <cmath>

#include "fixtures/call/error.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/delta/relations/trial.hpp"
#include "reference/verdict/kernels.hpp"

namespace goldenrule::relations {
namespace {

constexpr std::array kWorlds{World{16, 1}, World{16, 8}, World{64, 8}, World{256, 8}};
// Share of the alphas that are 0: few, so that states grow to the size that the bound allows for.
constexpr double kErased = 0.02;

// log2 of the bound a sqrt(2 m) 2^(n e), rounded up: the bits of the numbers of that size.
int bits(const World& w, int n) {
  const auto m = static_cast<double>(w.entries);
  const double e = 0.5 * std::log2(m);
  const double size = static_cast<double>(w.magnitude) * std::sqrt(2.0 * m) * std::exp2(n * e);
  return static_cast<int>(std::ceil(std::log2(size)));
}

void check_arguments(const World& w, const WorldShape& s) {
  const auto m = static_cast<std::uint64_t>(w.entries);
  if (w.entries < 4 || !std::has_single_bit(m) || std::countr_zero(m) % 2 != 0) {
    throw Error(ErrorKind::kArgument, "World::entries", "a power of 4, at least 4",
                std::to_string(w.entries));
  }
  if (s.K % w.entries != 0) {
    throw Error(ErrorKind::kArgument, "WorldShape::K", "a multiple of " + std::to_string(w.entries),
                std::to_string(s.K));
  }
}

// Rows [count, K], each a row of the Hadamard matrix of one block: (-1)^popcount(row & column).
std::vector<double> hadamard_rows(const World& w, std::int64_t count, std::int64_t K,
                                  const random::Stream& stream) {
  std::vector<double> rows(static_cast<std::size_t>(count * K), 0.0);
  const double entry = 1.0 / std::sqrt(static_cast<double>(w.entries));
  for (std::int64_t r = 0; r < count; ++r) {
    const std::uint64_t choice = stream.bits(r);
    const auto m = static_cast<std::uint64_t>(w.entries);
    const std::uint64_t row = choice % m;
    const std::uint64_t block = (choice / m) % (static_cast<std::uint64_t>(K) / m);
    for (std::uint64_t c = 0; c < m; ++c) {
      const std::size_t at =
          static_cast<std::size_t>(r * K) + static_cast<std::size_t>(block * m + c);
      rows[at] = std::popcount(row & c) % 2 == 0 ? entry : -entry;
    }
  }
  return rows;
}

call::Tensor integers_within(std::int64_t a, const call::Shape& shape,
                             const random::Stream& stream) {
  call::Tensor tensor(call::DType::kF32, shape);
  const auto range = static_cast<std::uint64_t>(2 * a + 1);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, static_cast<double>(static_cast<std::int64_t>(stream.bits(i) % range) - a));
  }
  return tensor;
}

// alpha: one number for a head, or for each block of channels.
call::Tensor gates(const World& w, const WorldShape& s, call::Shape shape,
                   const random::Stream& stream) {
  const bool channels = s.op == call::Op::kKda;
  if (channels) shape.push_back(s.K);
  call::Tensor tensor(call::DType::kF32, shape);
  const std::int64_t width = channels ? w.entries : 1;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, w.erases && stream.uniform(i / width) < kErased ? 0.0 : 1.0);
  }
  return tensor;
}

}  // namespace

int operand_bits(const World& world) { return bits(world, 2); }
int sum_bits(const World& world) { return bits(world, 3); }

std::vector<World> worlds_of(const contract::Contract& contract) {
  int operands = 24;
  for (const contract::Rounding& type : contract.roundings()) {
    if (type) operands = std::min(operands, contract::info(*type).significand_bits);
  }
  std::vector<World> worlds;
  for (World world : kWorlds) {
    world.erases = contract.chunked() == nullptr;
    if (operand_bits(world) <= operands && sum_bits(world) <= 24) worlds.push_back(world);
  }
  return worlds;
}

call::Record make_world(const World& world, const WorldShape& shape, std::uint64_t seed) {
  check_arguments(world, shape);
  const auto stream = [&](const char* name) { return random::Stream(seed, name); };
  const bool prefill = shape.mode == call::Mode::kPrefill;
  const std::int64_t T = shape.mode == call::Mode::kDecode ? 1 : shape.T;
  call::Shape leading{shape.rows, T};
  std::vector<double> bounds{0.0};
  for (std::int64_t n = 0; n < shape.rows; ++n) {
    bounds.push_back(bounds.back() + static_cast<double>(T + n));
  }
  if (prefill) leading = {static_cast<std::int64_t>(bounds.back())};
  const auto tokens = [&](std::initializer_list<std::int64_t> rest) {
    call::Shape full = leading;
    full.insert(full.end(), rest);
    return full;
  };
  call::Record record;
  record.op = shape.op;
  record.mode = shape.mode;
  record.convention.state_layout = shape.layout;
  record.convention.gate = call::Gate::kLinear;
  record.convention.beta = call::BetaForm::kDirect;
  record.convention.qk_l2norm = call::QkNorm::kNone;
  record.convention.scale = 1.0;
  const std::int64_t rows = call::element_count(tokens({shape.H}));
  for (const char* name : {"q", "k"}) {
    record.inputs[name] = call::Tensor(call::DType::kF32, tokens({shape.H, shape.K}),
                                       hadamard_rows(world, rows, shape.K, stream(name)));
  }
  record.inputs["v"] = integers_within(world.magnitude, tokens({shape.HV, shape.V}), stream("v"));
  record.inputs["g"] = gates(world, shape, tokens({shape.HV}), stream("g"));
  const std::vector<double> ones(static_cast<std::size_t>(call::element_count(tokens({shape.HV}))),
                                 1.0);
  record.inputs["beta"] = call::Tensor(call::DType::kF32, tokens({shape.HV}), ones);
  const bool vk = shape.layout == call::StateLayout::kVK;
  record.inputs["initial_state"] = integers_within(
      world.magnitude, {shape.rows, shape.HV, vk ? shape.V : shape.K, vk ? shape.K : shape.V},
      stream("state"));
  if (prefill) {
    record.inputs["cu_seqlens"] = call::Tensor(call::DType::kI64, {std::ssize(bounds)}, bounds);
  }
  return record;
}

Outcome check_world(const call::Record& record, const Kernel& kernel,
                    const contract::Contract& contract) {
  static constexpr Relation kExact{"exact_world", "every output is the exact result, rounded once",
                                   Demand::kSameBits, nullptr, nullptr};
  Trial trial(record, kernel, contract, {});
  trial.begin(kExact);
  // 53 bits hold what 24 do: the oracle in double is exact here.
  const call::TensorMap exact =
      calls::stored(record, contract, verdict::exact_outputs(delta::slice(), record));
  for (const auto& [name, tensor] : trial.base().outputs) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      trial.claim(name, static_cast<std::size_t>(i), exact.at(name)[i], tensor[i], 0.0);
    }
  }
  return trial.judge();
}

}  // namespace goldenrule::relations

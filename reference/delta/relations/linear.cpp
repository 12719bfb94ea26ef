// SPDX-License-Identifier: Apache-2.0
//
// The rule is linear in (v, S): alpha, beta, k^ and q^ (and in the chunk form A, T and w) do not
// depend on them, and every operation on v and S is a product with one of those or a sum.
//
// Powers of two. fl(2^n x) = 2^n fl(x) for every rounding that neither over- nor underflows, so
// the outputs are multiplied by 2^n bit for bit, whatever the order of summation. Underflow: in a
// type with spacing s below its smallest normal number a rounding errs by up to s/2 there, in the
// original by up to 2^n s/2 after scaling. The output is rounded to its type once, which allows
// 2^n s in all; inside, a token rounds K products, K decays and K updates of a column, in fp32 or
// better with s = 2^-149 (sums of subnormal numbers are exact), which allows 2^n 2^-149 (3 K)
// per token. That is granted where the result is below 2^n times the smallest normal number of its
// type, and nothing elsewhere: a sum that is not tiny does not feel it.
//
// beta = 0. S_t = diag(alpha) S_{t-1} exactly: d = 0 (v - p) and k d are zeros, and adding a zero
// keeps every bit, so what k and v hold cannot matter.
//
// Sums. f(v1 + v2, S) = f(v1, 0) + f(v2, S): three calls that round differently.
#include <algorithm>
#include <array>
#include <cmath>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/rows.hpp"
#include "reference/delta/relations/tables.hpp"
#include "reference/delta/relations/trial.hpp"

namespace goldenrule::relations {
namespace {

using call::Record;

constexpr double kScale = 8.0;
constexpr double kSubnormalF32 = 0x1p-149;
// exp(-1e4) is 0 and exp(1e4) infinite in fp32 and in double: sigmoid is 0 either way.
constexpr double kZeroBetaLogit = -1e4;

double largest(call::DType type) {
  const call::DTypeInfo& t = call::info(type);
  return std::ldexp(2.0 - std::ldexp(1.0, 1 - t.significand_bits), t.max_exponent);
}

// Fp16 rounds small numbers to multiples of 2^-24, whatever they were multiplied by before.
bool has_few_exponents(const contract::Rounding& rounding) {
  const auto smallest = [](contract::Format format) {  // exponent of half its least spacing
    const contract::FormatInfo& f = contract::info(format);
    return f.min_exponent - f.significand_bits;
  };
  return rounding && smallest(*rounding) > smallest(contract::Format::kBF16);
}

bool can_scale(const Record& r, const contract::Contract& contract) {
  if (call::validate(r).tokens == 0) return false;
  if (std::ranges::any_of(contract.roundings(), has_few_exponents)) return false;
  for (const char* name : {"v", "initial_state"}) {
    const call::Tensor* t = r.find_input(name);
    for (std::int64_t i = 0; t != nullptr && i < t->size(); ++i) {
      if (std::fabs((*t)[i]) * kScale > largest(t->dtype())) return false;
    }
  }
  return true;
}

void power_of_two(Trial& trial) {
  const Run& base = trial.base();
  Record changed = base.record;
  for (const char* name : {"v", "initial_state"}) {
    const auto it = changed.inputs.find(name);
    if (it == changed.inputs.end()) continue;
    calls::change(it->second, [](std::int64_t, double x) { return kScale * x; });
  }
  const auto tokens = static_cast<double>(calls::longest_sequence(base.record));
  const double inside =
      kScale * kSubnormalF32 * tokens * 3.0 * static_cast<double>(base.plan.dims.K);
  const Run other = trial.run(std::move(changed));
  for (const auto& [name, scaled] : other.outputs) {
    const call::Tensor& original = base.outputs.at(name);
    const call::DType type = original.dtype();
    const double tiny = kScale * std::ldexp(1.0, call::info(type).min_exponent);
    for (std::int64_t i = 0; i < scaled.size(); ++i) {
      const double expected = kScale * original[i];
      double bound = std::fabs(expected) < tiny ? kScale * call::ulp(type, 0.0) + inside : 0.0;
      if (std::fabs(expected) > largest(type)) bound = kNotGranted;
      trial.claim(name, static_cast<std::size_t>(i), expected, scaled[i], bound);
    }
  }
}

void beta_zero(Trial& trial) {
  Record still = trial.base().record;
  const bool direct = still.convention.beta == call::BetaForm::kDirect;
  calls::change(still.inputs.at(direct ? "beta" : "b"),
                [&](std::int64_t, double) { return direct ? 0.0 : kZeroBetaLogit; });
  Record changed = still;
  calls::change(changed.inputs.at("v"), [](std::int64_t, double x) { return 3.0 - x; });
  call::Tensor& k = changed.inputs.at("k");
  std::vector<std::int64_t> channels = call::all_indices(k.shape().back());
  std::ranges::reverse(channels);
  k = call::take(k, k.shape().size() - 1, channels);
  const Run expected = trial.run(std::move(still));
  const Run actual = trial.run(std::move(changed));
  for (const auto& [name, tensor] : actual.outputs) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      trial.claim(name, static_cast<std::size_t>(i), expected.outputs.at(name)[i], tensor[i], 0.0);
    }
  }
}

void summed(Trial& trial) { claim_halves(trial, "v", "initial_state"); }

bool has_tokens(const Record& r, const contract::Contract&) { return call::validate(r).tokens > 0; }

constexpr std::array kLinearRelations{
    Relation{"power_of_two", "v and the states times 8: the outputs times 8", Demand::kSameBits,
             can_scale, power_of_two},
    Relation{"beta_zero", "beta = 0 everywhere: what k and v hold does not matter",
             Demand::kSameBits, has_tokens, beta_zero},
    Relation{"linearity",
             "v of even tokens alone plus the states and v of odd tokens: the outputs add up",
             Demand::kBudget, has_tokens, summed},
};

}  // namespace

std::span<const Relation> linear_relations() { return kLinearRelations; }

}  // namespace goldenrule::relations

// SPDX-License-Identifier: Apache-2.0
//
// Gradients are linear in (do, dfinal_state): decays, k^, q^, beta, A, T, w, u, h and v_new depend
// on neither, and each step of the adjoint is a product with one of them or a sum.
//
// Powers of two. fl(2^n x) = 2^n fl(x) for every rounding that neither over- nor underflows, so the
// gradients are multiplied by 2^n bit for bit, whatever the order of summation. What a rounding in
// fp32 loses below 2^-126 is at most 2^-149, 2^n times that after scaling; N roundings lose
// N M 2^(n - 149) of a result that multiplies each by at most M afterwards. For N M up to 2^40 that
// is 2^-106 for n = 3: a 2^-22nd of the last bit (fp32) of a result of 2^-60, which it can change
// only where a rounding was as near to a tie. A result below 2^-60 is granted so much, and an fp16
// result what its least spacing is.
//
// Sums. f(do, dS) = f(do of even tokens, 0) + f(do of odd tokens, dS): three calls that round
// differently.
#include <algorithm>
#include <array>
#include <cmath>

#include "reference/backward/relations/parts.hpp"
#include "reference/backward/relations/relation.hpp"

namespace goldenrule::backward {
namespace {

using call::Record;
using relations::Demand;
using relations::Relation;
using relations::Run;
using relations::Trial;

constexpr double kTimes = 8.0;
constexpr double kFlushed = 0x1p-60;
constexpr const char* kGiven[] = {"do", "dfinal_state"};

double largest_of(call::DType type) {
  const call::DTypeInfo& t = call::info(type);
  return std::ldexp(2.0 - std::ldexp(1.0, 1 - t.significand_bits), t.max_exponent);
}

bool has_some_tokens(const Record& r, const contract::Contract&) {
  return call::validate(r).tokens > 0;
}

// Values on the way that are rounded to fp16 have its few exponents.
bool can_multiply(const Record& r, const contract::Contract& contract) {
  if (!has_some_tokens(r, contract)) return false;
  if (contract.adjoint() != nullptr && r.inputs.at("q").dtype() == call::DType::kF16) return false;
  return std::ranges::all_of(kGiven, [&](const char* name) {
    const call::Tensor* t = r.find_input(name);
    for (std::int64_t i = 0; t != nullptr && i < t->size(); ++i) {
      if (std::fabs((*t)[i]) * kTimes > largest_of(t->dtype())) return false;
    }
    return true;
  });
}

void multiplied(Trial& trial) {
  const Run& base = trial.base();
  Record changed = base.record;
  for (const char* name : kGiven) {
    const auto it = changed.inputs.find(name);
    if (it == changed.inputs.end()) continue;
    calls::change(it->second, [](std::int64_t, double x) { return kTimes * x; });
  }
  const Run other = trial.run(std::move(changed));
  for (const auto& [name, original] : base.outputs) {
    const call::Tensor& scaled = output_of(other, name);
    const call::DType type = original.dtype();
    const double tiny = kTimes * std::ldexp(1.0, call::info(type).min_exponent);
    for (std::int64_t i = 0; i < scaled.size(); ++i) {
      const double expected = kTimes * original[i];
      const double size = std::fabs(expected);
      double bound = size < kFlushed ? kFlushed : 0.0;
      if (size < tiny) bound = std::max(bound, kTimes * call::ulp(type, 0.0));
      if (size > largest_of(type)) bound = relations::kNotGranted;
      trial.claim(name, static_cast<std::size_t>(i), expected, scaled[i], bound);
    }
  }
}

void added(Trial& trial) { relations::claim_halves(trial, "do", "dfinal_state"); }

constexpr std::array kLinearRelations{
    Relation{"power_of_two", "do and dfinal_state times 8: the gradients times 8",
             Demand::kSameBits, can_multiply, multiplied},
    Relation{"linearity",
             "do of even tokens alone plus dfinal_state and do of odd tokens: the gradients add up",
             Demand::kBudget, has_some_tokens, added},
};

}  // namespace

std::span<const Relation> linear_relations() { return kLinearRelations; }

}  // namespace goldenrule::backward

// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/default_contract.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "fixtures/call/operation.hpp"
#include "reference/contract/family.hpp"

namespace goldenrule::delta {
namespace {

bool is_narrow(const call::Tensor* t) {
  return t != nullptr && call::info(t->dtype()).is_float && call::info(t->dtype()).bytes == 2;
}

// That every number of an f32 tensor is a bf16 number happens to fp32 results only by being zero,
// so zeros do not count.
bool holds_bf16_numbers(const call::Tensor& t) {
  bool evidence = false;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const double x = t[i];
    if (x == 0.0 || !std::isfinite(x)) continue;
    if (x != call::round_to(call::DType::kBF16, x)) return false;
    evidence = true;
  }
  return evidence;
}

// Whether tokens come or leave in 16 bits.
bool has_narrow_tokens(const call::Record& record) {
  const auto o = record.outputs.find("o");
  if (o != record.outputs.end() && is_narrow(&o->second)) return true;
  return std::ranges::any_of(std::array{"q", "k", "v"},
                             [&](const char* name) { return is_narrow(record.find_input(name)); });
}

const contract::Contract& implied_contract(const call::Record& record) {
  const bool narrow_state = is_narrow(record.find_input("initial_state"));
  if (call::has_ring(record) && has_narrow_tokens(record)) {
    return contract::find_contract("replay_bf16");
  }
  if (record.mode != call::Mode::kPrefill) {
    return contract::find_contract(narrow_state ? "recurrent_bf16_state" : "recurrent_f32");
  }
  if (narrow_state) return contract::find_contract("chunk16_bf16_state");
  if (!has_narrow_tokens(record)) return contract::find_contract("chunk64_f32");
  const auto state = record.outputs.find("final_state");
  const bool kept_in_bf16 = state != record.outputs.end() && holds_bf16_numbers(state->second);
  if (kept_in_bf16) return contract::find_contract("chunk16_bf16_state");
  bool half = false;
  for (const char* name : {"q", "k", "v"}) {
    const call::Tensor* t = record.find_input(name);
    half = half || (t != nullptr && t->dtype() == call::DType::kF16);
  }
  return contract::find_contract(half ? "chunk64_16bit" : "chunk64_bf16");
}

}  // namespace

const contract::Contract& default_contract(const call::Record& record) {
  return contract::claimed_or_implied(record.contract, implied_contract(record),
                                      call::Family::kDelta);
}

}  // namespace goldenrule::delta

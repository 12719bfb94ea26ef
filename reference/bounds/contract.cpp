// SPDX-License-Identifier: Apache-2.0
#include "reference/bounds/contract.hpp"

#include <array>
#include <cmath>
#include <string>

#include "fixtures/call/error.hpp"

namespace goldenrule::bounds {
namespace {

// fp32 kernels with the GPU's fast functions. CUDA C++ Programming Guide, "Intrinsic Functions":
// __expf(x) is within 2 + 1.173 |x| ulp, __logf within an absolute 2^-21.41 on [1/2, 2] and 3 ulp
// outside, rsqrtf within 2 ulp, division within 2 ulp; an ulp is at most 2^-23 relative. So exp at
// a given argument: 2^-22; log alpha, two or three rounded products and 1.173 ulp in exp: 2^-21;
// log(1 + exp(x)): 2^-21.41 and the 2^-24 lost in the sum, 2^-21; sigmoid, exp and a quotient:
// 2^-21; norm, a sum of squares in fp32 and a reciprocal root: 2^-21.
constexpr FunctionErrors kFastFp32{.exp = 0x1p-22,
                                   .log_alpha = 0x1p-21,
                                   .softplus = 0x1p-21,
                                   .logit = 0x1p-23,
                                   .sigmoid = 0x1p-21,
                                   .norm = 0x1p-21};

struct Rounded {
  Point point;
  call::DType type;
};

template <std::size_t N>
constexpr RoundingTable table(const Rounded (&points)[N]) {
  RoundingTable rounding{};
  for (const Rounded& r : points) rounding[static_cast<std::size_t>(r.point)] = r.type;
  return rounding;
}

// flash-linear-attention, chunk_gated_delta_rule and chunk_kda: everything that is stored or enters
// a tensor core between kernels is bf16; gates are cumulated and states carried in fp32.
constexpr RoundingTable kChunk64 = table({{Point::kQuery, call::DType::kBF16},
                                          {Point::kKey, call::DType::kBF16},
                                          {Point::kBetaV, call::DType::kBF16},
                                          {Point::kBetaK, call::DType::kBF16},
                                          {Point::kInverse, call::DType::kBF16},
                                          {Point::kU, call::DType::kBF16},
                                          {Point::kW, call::DType::kBF16},
                                          {Point::kStateOperand, call::DType::kBF16},
                                          {Point::kQueryIn, call::DType::kBF16},
                                          {Point::kAttention, call::DType::kBF16},
                                          {Point::kVNew, call::DType::kBF16},
                                          {Point::kUpdate, call::DType::kBF16},
                                          {Point::kGateSum, call::DType::kF32}});

// FlashKDA: the same with chunks of 16, decays folded into bf16 operands of the intra-chunk
// products and a state that is rounded to bf16 after every chunk.
constexpr RoundingTable kChunk16 = [] {
  RoundingTable rounding = kChunk64;
  rounding[static_cast<std::size_t>(Point::kIntra)] = call::DType::kBF16;
  rounding[static_cast<std::size_t>(Point::kCarriedState)] = call::DType::kBF16;
  return rounding;
}();

const std::vector<Contract>& built_in() {
  static const std::vector<Contract> contracts{
      {.name = "ideal",
       .meaning = "the exact result, rounded once to the type it is stored in",
       .unit_roundoff = 0.0,
       .functions = {},
       .state_dtype = std::nullopt},
      {.name = "recurrent_f32",
       .meaning = "token by token in fp32 with approximate functions, fp32 state",
       .unit_roundoff = 0x1p-24,
       .functions = kFastFp32,
       .state_dtype = call::DType::kF32},
      {.name = "recurrent_bf16_state",
       .meaning = "the same; states are rounded to bf16 once where they are stored",
       .unit_roundoff = 0x1p-24,
       .functions = kFastFp32,
       .state_dtype = call::DType::kBF16},
      {.name = "chunk64_bf16",
       .meaning = "chunks of 64 tokens with bf16 operands, fp32 state between chunks",
       .unit_roundoff = 0.0,
       .functions = {},
       .state_dtype = call::DType::kF32,
       .chunk = 64,
       .rounding = kChunk64},
      {.name = "chunk16_bf16_state",
       .meaning = "chunks of 16 tokens with bf16 operands, bf16 state between chunks",
       .unit_roundoff = 0.0,
       .functions = {},
       .state_dtype = call::DType::kBF16,
       .chunk = 16,
       .rounding = kChunk16},
  };
  return contracts;
}

// A state that was kept in bf16 often arrives in an f32 tensor. That every one of its numbers is a
// bf16 number happens to fp32 results only by being zero, so zeros do not count as evidence.
bool holds_16_bit_state(const call::Record& record) {
  const auto state = record.outputs.find("final_state");
  if (state == record.outputs.end()) return false;
  const call::Tensor& t = state->second;
  if (call::info(t.dtype()).bytes == 2) return true;
  std::int64_t evidence = 0;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const double x = t[i];
    if (x == 0.0 || !std::isfinite(x)) continue;
    if (x != call::round_to(call::DType::kBF16, x)) return false;
    ++evidence;
  }
  return evidence > 0;
}

}  // namespace

std::string_view name_of(Point point) {
  constexpr std::array<std::string_view, kPoints> kNames{
      "query",         "key",      "beta_v",    "beta_k", "intra",  "inverse",       "u",       "w",
      "state_operand", "query_in", "attention", "v_new",  "update", "carried_state", "gate_sum"};
  return kNames[static_cast<std::size_t>(point)];
}

const std::vector<Contract>& contracts() { return built_in(); }

const Contract& find_contract(std::string_view name) {
  std::string known;
  for (const Contract& contract : built_in()) {
    if (contract.name == name) return contract;
    known += (known.empty() ? "" : ", ") + contract.name;
  }
  throw Error(ErrorKind::kArgument, "contract", "one of " + known, "'" + std::string(name) + "'");
}

const Contract& default_contract(const call::Record& record) {
  if (!record.contract.empty()) return find_contract(record.contract);
  const bool narrow = holds_16_bit_state(record);
  if (record.mode == call::Mode::kPrefill) {
    return find_contract(narrow ? "chunk16_bf16_state" : "chunk64_bf16");
  }
  return find_contract(narrow ? "recurrent_bf16_state" : "recurrent_f32");
}

}  // namespace goldenrule::bounds

// SPDX-License-Identifier: Apache-2.0
#include "reference/bounds/contract.hpp"

#include <array>
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

constexpr std::array<Contract, 5> kContracts{{
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
     .has_budget = false},
    {.name = "chunk16_bf16_state",
     .meaning = "chunks of 16 tokens with bf16 operands, bf16 state between chunks",
     .unit_roundoff = 0.0,
     .functions = {},
     .state_dtype = call::DType::kBF16,
     .has_budget = false},
}};

}  // namespace

const Contract& find_contract(std::string_view name) {
  std::string known;
  for (const Contract& contract : kContracts) {
    if (contract.name == name) return contract;
    known += (known.empty() ? "" : ", ") + std::string(contract.name);
  }
  throw Error(ErrorKind::kArgument, "contract", "one of " + known, "'" + std::string(name) + "'");
}

const Contract& default_contract(const call::Record& record) {
  if (!record.contract.empty()) return find_contract(record.contract);
  if (record.mode == call::Mode::kPrefill) return find_contract("chunk64_bf16");
  const auto state = record.outputs.find("final_state");
  const bool narrow = state != record.outputs.end() && call::info(state->second.dtype()).bytes == 2;
  return find_contract(narrow ? "recurrent_bf16_state" : "recurrent_f32");
}

}  // namespace goldenrule::bounds

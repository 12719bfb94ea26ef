// SPDX-License-Identifier: Apache-2.0
//
// Where a mistake of the table was made in public, 2024 to 2026: issue and pull-request threads of
// projects on GitHub, by the name of the repository (FLA: fla-org/flash-linear-attention). They say
// that the mistake happens, and their tests did not see it; causes are as the threads state them.
#include <algorithm>
#include <array>

#include "reference/delta/mistakes/tables.hpp"

namespace goldenrule::delta {
namespace {

struct Report {
  std::string_view mistake, threads;
};

constexpr std::array kReports{
    Report{"gate_linear", "FlashInfer #2490, #3680"},
    Report{"gate_raw", "PrismML/llama.cpp #237"},
    Report{"beta_raw_logit", "PrismML/llama.cpp #237"},
    Report{"state_bf16_each_token", "ollama #15865"},
    Report{"state_transposed", "sparkinfer #610, #615"},
    Report{"state_transposed_out", "sparkinfer #610, #615"},
    Report{"l2_ignored", "FlashInfer #5255"},
    Report{"l2_max_form", "llama.cpp #28068, transformers #40842"},
    Report{"scale_missing", "shainet #176"},
    Report{"state_leaks", "slime #1686, Automodel #2147, lmms-engine #167, torchtitan #3892"},
    Report{"initial_state_ignored", "transformers #45513, sparkinfer #1071"},
    Report{"pad_writes_slot0", "vLLM #39064, tokenspeed #700"},
    Report{"pad_writes_last", "SGLang #23353"},
    Report{"intermediate_by_slot", "FlashInfer #3145"},
    Report{"state_not_written", "xllm #1873"},
    Report{"tf32_operands", "mudler/vllm.cpp #3223"},
    Report{"slot_ignored", "aiter #4523"},
    Report{"head_tiled", "SGLang #36722"},
    Report{"beta_bf16", "vLLM #53877, SGLang #38975, LightLLM #1579"},
    Report{"alpha_bf16", "mlx-swift-lm #317"},
    Report{"dt_bias_flat", "mlx-lm #1792"},
    Report{"gate_clamped", "tokenspeed #847"},
    Report{"l2_eps_mean", "mlx-lm #1624"},
    Report{"l2_rms", "1bit-MONSTER #2134"},
    Report{"decay_last_row", "FlashInfer #3156"},
    Report{"decay_row_by_lane", "FlashInfer #4311, #3156"},
    Report{"tail_decay_zero", "sparkinfer #604"},
    Report{"gate_base_mixed", "SGLang #31904"},
    Report{"inter_state_transposed", "vLLM #41292"},
    Report{"intra_no_decay", "shainet #170"},
    Report{"w_decay_twice", "shainet #170"},
    Report{"decay_factored", "cudnn-frontend #1017, SGLang #27488"},
    Report{"mask_after_exp", "tilelang-ascend #1460, FLA #99, #463"},
    Report{"decay_split_ftz", "tt-metal #56550"},
    Report{"inverse_doubling", "tt-metal #54813"},
    Report{"inverse_rounds", "vLLM #53864"},
    Report{"initial_state_stale", "tpu-inference #2431, vLLM #51483, #51562"},
    Report{"pad_tokens_active", "zml #754, gmlx #7"},
    Report{"ab_interleaved", "SGLang #21836, vLLM #41142"},
    Report{"k_is_v", "MNN #4659"},
    Report{"tail_rows_permuted", "aiter #4523"},
    Report{"v_tail_overrun", "fla-npu #510"},
    Report{"gate_tail_read", "FLA #1134, #1135"},
    Report{"intermediate_unwritten", "llama.cpp #23149, #23174"},
    Report{"accepted_zero_wraps", "vLLM #50021"},
    Report{"chunk_size_mixed", "FLA #876"},
    Report{"state_f16_each_token", "TensorRT-Model-Connect #725"},
    Report{"state_operand_f16", "attention-gym #464"},
    Report{"checkpoint_not_written", "SGLang #31474, FlashInfer #4436"},
    Report{"checkpoint_shifted", "SGLang #34299, ATOM #2045"},
    Report{"checkpoint_bf16", "SGLang #34820"},
};

}  // namespace

std::string_view public_threads(std::string_view mistake) {
  const auto it = std::ranges::find(kReports, mistake, &Report::mistake);
  return it == kReports.end() ? std::string_view() : it->threads;
}

std::vector<std::string_view> mistakes_with_threads() {
  std::vector<std::string_view> names;
  for (const Report& r : kReports) names.push_back(r.mistake);
  return names;
}

}  // namespace goldenrule::delta

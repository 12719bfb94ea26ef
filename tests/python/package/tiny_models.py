# SPDX-License-Identifier: Apache-2.0
"""Models of transformers that have GDN or KDA, tiny and with random weights: from a configuration alone, so
that nothing is downloaded. A folder of transformers that has such a function and no line here is found by a
test (test_real_models.py)."""

import dataclasses
import importlib
import importlib.util
import inspect
import os

import goldenrule

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

VOCABULARY = 96
COMMON = dict(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=4, num_attention_heads=4,
              num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=None)
DENSE = dict(intermediate_size=96)
GDN = dict(linear_key_head_dim=16, linear_value_head_dim=24, linear_num_key_heads=2,
           linear_num_value_heads=4, linear_conv_kernel_dim=4)
KDA = dict(linear_head_dim=16, linear_num_heads=4, linear_conv_kernel_dim=4)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
               shared_expert_intermediate_size=32)
LOCAL_EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, n_group=1,
                     topk_group=1)
LATENT = dict(num_key_value_heads=4, kv_lora_rank=32, q_lora_rank=32, qk_rope_head_dim=8, v_head_dim=16,
              qk_nope_head_dim=16)
VISION = dict(depth=1, hidden_size=32, num_heads=2, image_size=28, out_hidden_size=64, intermediate_size=48,
              projection_intermediate_size=64)
LAYERS = dict(layer_types=["linear_attention"] * 3 + ["full_attention"])


def torch_function(function):
    """It, or the torch function that it wraps, where it would run another package's kernel on a GPU."""
    return inspect.unwrap(function) if "which ran" in goldenrule.row_of(function).release else function


@dataclasses.dataclass(frozen=True, eq=False)
class Tiny:
    """One model: its folder, its class and configuration, and what the latter is given."""

    folder: str
    model: str
    config: str
    options: dict
    kda: bool = False
    vision: dict | None = None  # of a model whose configuration has one of text in it

    @property
    def functions(self):
        """Of many tokens, and of one."""
        return (("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention") if self.kda else
                ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"))

    def is_there(self):
        """Whether this release of transformers has the folder."""
        return importlib.util.find_spec(f"transformers.models.{self.folder}") is not None

    def module(self):
        return importlib.import_module(f"transformers.models.{self.folder}.modeling_{self.folder}")

    def make(self):
        import torch

        configurations = importlib.import_module(
            f"transformers.models.{self.folder}.configuration_{self.folder}")
        options = {**COMMON, **self.options}
        if self.vision is not None:
            options = {"text_config": options, "vision_config": self.vision}
        config = getattr(configurations, self.config)(**options)
        torch.manual_seed(3)
        return getattr(self.module(), self.model)(config).eval()


MODELS = (
    Tiny("qwen3_next", "Qwen3NextForCausalLM", "Qwen3NextConfig",
         {**DENSE, **GDN, **EXPERTS, **LAYERS, "head_dim": 16}),
    Tiny("qwen3_5", "Qwen3_5ForCausalLM", "Qwen3_5TextConfig",
         {**DENSE, **GDN, **LAYERS, "head_dim": 16}),
    Tiny("qwen3_5_moe", "Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig",
         {**GDN, **EXPERTS, **LAYERS, "head_dim": 16}),
    Tiny("qwen4_exp", "Qwen4ExpForCausalLM", "Qwen4ExpTextConfig",
         {**GDN, **EXPERTS, **LAYERS, "head_dim": 16, "indexer_n_heads": 2, "indexer_kv_heads": 1,
          "indexer_head_dim": 16, "indexer_budget": 32, "indexer_compress_ratio": 4}),
    Tiny("lara_mini", "LaraMiniForCausalLM", "LaraMiniConfig",
         {**GDN, **EXPERTS, **LAYERS, "head_dim": 16}),
    Tiny("olmo_hybrid", "OlmoHybridForCausalLM", "OlmoHybridConfig",
         {**DENSE, **GDN, **LAYERS, "num_key_value_heads": 4}),
    Tiny("kimi_linear", "KimiLinearForCausalLM", "KimiLinearConfig",
         {**DENSE, **KDA, **LOCAL_EXPERTS, **LATENT, **LAYERS}, kda=True),
    # Its default gate, -5 sigmoid(A x) with random A up to 16 and x below -2, can be above -5e-6 in a whole
    # layer: what ignores such a gate errs by a third of what fp32 in chunks may. The other gate is -0.1 to -2.
    Tiny("bailing_hybrid", "BailingHybridForCausalLM", "BailingHybridConfig",
         {**DENSE, **LOCAL_EXPERTS, **LATENT, **LAYERS, "head_dim": 16, "kda_safe_gate": False}, kda=True),
    Tiny("glm5_next", "Glm5NextForConditionalGeneration", "Glm5NextConfig",
         {**DENSE, **KDA, **LATENT, **LAYERS, "qk_rope_head_dim": 0, "n_routed_experts": 4,
          "num_experts_per_tok": 2, "moe_intermediate_size": 32, "index_topk": 32, "index_head_dim": 16,
          "index_n_heads": 2, "index_kpool": 4}, kda=True, vision=VISION),
)

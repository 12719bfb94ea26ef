# SPDX-License-Identifier: Apache-2.0
"""The recorder on software that others wrote, as far as it is installed (torch with transformers, or
with fla-core): an honest call passes, and each of ten mistakes put into its source fails with the
name of that mistake."""

import ast
import importlib.util
import inspect
import os
import sys

import pytest
import tiny_models

import goldenrule

torch = pytest.importorskip("torch")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def transformers_module(model):
    """With its torch functions, where flash-linear-attention's kernels would run in their place."""
    pytest.importorskip("transformers")
    module = pytest.importorskip(f"transformers.models.{model}.modeling_{model}", exc_type=ImportError)
    for _, _, name, *_ in HONEST:
        if hasattr(module, name):
            setattr(module, name, tiny_models.torch_function(getattr(module, name)))
    return module


def fla_module(rule):
    """naive.py alone: importing the package would import Triton."""
    found = importlib.util.find_spec("fla")
    if found is None:
        pytest.skip("fla-core is not installed")
    name = f"fla.ops.{rule}.naive"
    path = os.path.join(found.submodule_search_locations[0], "ops", rule, "naive.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def tensors(heads, value_heads, tokens, kda, seed=1, unit=False):
    """q, k, v, g, beta and initial_state, gates mild enough that every token still shows."""
    make = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=make)

    q, k = normal(2, tokens, heads, 32), normal(2, tokens, heads, 32)
    if unit:
        q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    g = -0.3 * torch.rand((2, tokens, value_heads, *([32] if kda else [])), generator=make)
    return dict(q=q, k=k, v=normal(2, tokens, value_heads, 24), g=g,
                beta=normal(2, tokens, value_heads).sigmoid(),
                initial_state=0.5 * normal(2, value_heads, 32, 24))


def called(function, call, **options):
    call = {name: x.clone() for name, x in call.items()}
    first = (call.pop("q"), call.pop("k"), call.pop("v"))
    return function(*first, output_final_state=True, **call, **options)


def sabotaged(module, name, edits):
    """The function of that name, in its source `old` replaced by `new` for each (old, new)."""
    source = inspect.getsource(module)
    (node,) = [node for node in ast.parse(source).body
               if isinstance(node, ast.FunctionDef) and node.name == name]
    text = ast.get_source_segment(source, node)
    for old, new in edits:
        if old not in text:
            pytest.skip(f"{name} of this release does not contain '{old}'")
        text = text.replace(old, new)
    namespace = dict(vars(module))
    exec(compile(text, name, "exec"), namespace)
    return namespace[name]


HONEST = [
    ("transformers", "qwen3_next", "torch_recurrent_gated_delta_rule", 4, False),
    ("transformers", "qwen3_next", "torch_chunk_gated_delta_rule", 4, False),
    ("transformers", "kimi_linear", "recurrent_kimi_delta_attention", 2, True),
    ("transformers", "kimi_linear", "chunk_kimi_delta_attention", 2, True),
    ("fla", "gated_delta_rule", "naive_recurrent_gated_delta_rule", 2, False),
    ("fla", "gated_delta_rule", "naive_chunk_gated_delta_rule", 2, False),
    ("fla", "kda", "naive_recurrent_kda", 4, True),
    ("fla", "kda", "naive_chunk_kda", 4, True),
]


# naive_chunk_kda takes whole chunks only.
CALLS = [(*row, tokens) for row in HONEST for tokens in (1, 64) if (row[2], tokens) != ("naive_chunk_kda", 1)]


@pytest.mark.parametrize(("package", "module", "name", "value_heads", "kda", "tokens"), CALLS,
                         ids=[f"{row[2]}-{row[-1]}" for row in CALLS])
def test_an_honest_call_passes(package, module, name, value_heads, kda, tokens):
    module = transformers_module(module) if package == "transformers" else fla_module(module)
    options = {"use_qk_l2norm_in_kernel": True} if package == "transformers" else {}
    with goldenrule.record(getattr(module, name)) as calls:
        called(getattr(module, name), tensors(2, value_heads, tokens, kda, unit=not options),
               **options)
    assert calls.passed, calls.reports
    assert getattr(module, name) is not calls.function  # what was wrapped is as it was


DECAY = "last_recurrent_state * decay_t\n"
DELTA = "delta = (v_t - kv_mem) * beta_t"
READ = "core_attn_out[:, :, i] = (last_recurrent_state * q_t.unsqueeze(-1)).sum(dim=-2)"
SABOTAGED = {
    "gate_ignored": [(DECAY, "last_recurrent_state\n")],
    "gate_negated": [("decay[:, :, i].exp()", "(-decay[:, :, i]).exp()")],
    "beta_ignored": [(DELTA, "delta = v_t - kv_mem")],
    "no_delta": [(DELTA, "delta = v_t * beta_t")],
    "beta_v_only": [(DELTA, "delta = v_t * beta_t - kv_mem")],
    "scale_missing": [("query = query / (query.shape[-1] ** 0.5)", "pass")],
    "head_tiled": [("query.repeat_interleave(num_v_heads // num_k_heads, dim=2)",
                    "query.repeat(1, 1, num_v_heads // num_k_heads, 1)"),
                   ("key.repeat_interleave(num_v_heads // num_k_heads, dim=2)",
                    "key.repeat(1, 1, num_v_heads // num_k_heads, 1)")],
    "state_bf16_each_token": [
        (READ, READ + "\n        last_recurrent_state = last_recurrent_state.bfloat16().float()")],
    "l2_q_only": [("key = l2norm(key, dim=-1, eps=1e-6)", "pass")],
    "initial_state_ignored": [("if initial_state is None:", "if True:")],
}


@pytest.mark.parametrize("mistake", SABOTAGED)
def test_a_mistake_fails_with_its_name(mistake, monkeypatch):
    module = transformers_module("qwen3_next")
    name = "torch_recurrent_gated_delta_rule"
    monkeypatch.setattr(module, name, sabotaged(module, name, SABOTAGED[mistake]))
    with goldenrule.record(getattr(module, name)) as calls:
        called(getattr(module, name), tensors(2, 4, 5, False), use_qk_l2norm_in_kernel=True)
    (report,) = calls.reports
    assert report.verdict == "OUT_OF_BUDGET"
    assert mistake in report.explanation, str(report)

# SPDX-License-Identifier: Apache-2.0
# Length: one file that runs alone; each implementation is called once, with its sabotages beside it.
"""Real implementations of the delta rule, called as their users call them, and judged.

    python3 real_software.py PROGRAM FOLDER [--contract NAME]... [--only TEXT] [--no-explain]

Writes captures into FOLDER, with a README.md of one line for each, and prints what PROGRAM
(`goldenrule`) says of them: without a contract and with each that is named. An explanation takes
up to minutes, a verdict a second. Whatever is installed beside torch is used, the rest is reported
as skipped: Hugging Face transformers (the torch functions of qwen3_next and kimi_linear) and
fla-core (the `naive` functions, which need einops but no Triton). None of it needs a GPU.

Names beginning with `sab_` are sabotaged: the same function with one mistake put into its source or
its arguments. Everything else is honest. Every honest capture must pass and every sabotaged one must
fail under the default contract; exit code 1 if one does not, 2 if PROGRAM cannot judge one, 77 if
nothing is installed.
"""

import argparse
import ast
import collections
import importlib
import importlib.util
import inspect
import json
import math
import os
import pathlib
import subprocess
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "python"))

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no kernels from a hub: the torch code is wanted
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

SKIPPED = 77
H, HV, K, V = 2, 4, 32, 24  # kda of transformers and naive GDN of FLA have H heads throughout


class NotHere(Exception):
    """The software is not installed, or its source is not what a mistake is put into."""


def imported(name):
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        raise NotHere(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error


def transformers_model(name):
    return imported(f"transformers.models.{name}.modeling_{name}")


def fla_naive(rule):
    """fla/ops/RULE/naive.py alone: importing the package would import Triton."""
    found = importlib.util.find_spec("fla")
    if found is None:
        raise NotHere("fla-core is not installed")
    path = pathlib.Path(found.submodule_search_locations[0], "ops", rule, "naive.py")
    spec = importlib.util.spec_from_file_location(f"fla_naive_{rule}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (ImportError, OSError) as error:
        raise NotHere(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
    return module


def sabotaged(module, name, edits):
    """The function of that name, in its source `old` replaced by `new` for each (old, new)."""
    source = inspect.getsource(module)
    (node,) = [node for node in ast.parse(source).body
               if isinstance(node, ast.FunctionDef) and node.name == name]
    text = ast.get_source_segment(source, node)
    for old, new in edits:
        if old not in text:
            raise NotHere(f"{name} of this version does not contain '{old}'")
        text = text.replace(old, new)
    namespace = dict(vars(module))
    exec(compile(text, name, "exec"), namespace)
    return namespace[name]


# --- inputs ---------------------------------------------------------------------------------------

def strengths(torch, kind, shape, heads, generator):
    """log alpha [.., heads] or [.., heads,K]: as the models are initialised, or mild."""
    def uniform(low, high, *extents):
        return torch.rand(extents, generator=generator) * (high - low) + low

    x = torch.randn(shape, generator=generator)
    trailing = (heads,) + (1,) * (len(shape) - 3)
    if kind == "mild":
        return -0.1 * torch.rand(shape, generator=generator)
    if kind == "qwen":
        return -uniform(0.01, 16, *trailing) * torch.nn.functional.softplus(x + 1)
    step = torch.exp(uniform(math.log(1e-3), math.log(1e-1), *shape[2:]))
    bias = step + torch.log(-torch.expm1(-step))
    return -uniform(1, 16, *trailing) * torch.nn.functional.softplus(0.5 * x + bias)


def tensors(torch, seed, *, B, T, heads, kda, dtype, gates, state, unit=False):
    """q, k, v, g, beta and (state) initial_state of one call, g and the state in fp32."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    q, k = normal(B, T, H, K), normal(B, T, H, K)
    if unit:
        q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    g = strengths(torch, gates, (B, T, heads, K) if kda else (B, T, heads), heads, generator)
    call = dict(q=q.to(dtype), k=k.to(dtype), v=normal(B, T, heads, V).to(dtype), g=g,
                beta=normal(B, T, heads).to(dtype).sigmoid())
    call["initial_state"] = 0.5 * normal(B, heads, K, V) if state else None
    return call


# --- sources --------------------------------------------------------------------------------------

Source = collections.namedtuple("Source", "title module function heads kda norm")

SOURCES = {
    "qwen3_next_recurrent": Source(
        "transformers qwen3_next torch_recurrent_gated_delta_rule",
        lambda: transformers_model("qwen3_next"), "torch_recurrent_gated_delta_rule", HV, False,
        True),
    "qwen3_next_chunk": Source(
        "transformers qwen3_next torch_chunk_gated_delta_rule",
        lambda: transformers_model("qwen3_next"), "torch_chunk_gated_delta_rule", HV, False, True),
    "kimi_linear_recurrent": Source(
        "transformers kimi_linear recurrent_kimi_delta_attention",
        lambda: transformers_model("kimi_linear"), "recurrent_kimi_delta_attention", H, True, True),
    "kimi_linear_chunk": Source(
        "transformers kimi_linear chunk_kimi_delta_attention",
        lambda: transformers_model("kimi_linear"), "chunk_kimi_delta_attention", H, True, True),
    "fla_gdn_recurrent": Source(
        "fla-core naive_recurrent_gated_delta_rule",
        lambda: fla_naive("gated_delta_rule"), "naive_recurrent_gated_delta_rule", H, False, False),
    "fla_gdn_chunk": Source(
        "fla-core naive_chunk_gated_delta_rule",
        lambda: fla_naive("gated_delta_rule"), "naive_chunk_gated_delta_rule", H, False, False),
    "fla_kda_recurrent": Source("fla-core naive_recurrent_kda", lambda: fla_naive("kda"),
                                "naive_recurrent_kda", HV, True, False),
    "fla_kda_chunk": Source("fla-core naive_chunk_kda", lambda: fla_naive("kda"),
                            "naive_chunk_kda", HV, True, False),
}


def called(source, function, call):
    """(o, final_state) of the function on copies: nothing that it does in place is recorded."""
    arguments = {name: None if x is None else x.clone() for name, x in call.items()}
    first = (arguments.pop("q"), arguments.pop("k"), arguments.pop("v"))
    options = dict(use_qk_l2norm_in_kernel=True) if source.norm else {}
    own = inspect.unwrap(function)  # transformers wraps it to run kernels of a GPU in its place
    return own(*first, output_final_state=True, **arguments, **options)


# --- mistakes -------------------------------------------------------------------------------------

def rounded_input(name):
    """The function is given `name` in bf16; the capture holds what it should have been given."""
    def make(torch, source, call):
        module = source.module()
        narrow = {**call, name: call[name].to(torch.bfloat16).to(call[name].dtype)}
        return called(source, getattr(module, source.function), narrow)
    return make


def edited(*edits):
    def make(torch, source, call):
        return called(source, sabotaged(source.module(), source.function, edits), call)
    return make


def changed_output(change):
    def make(torch, source, call):
        return change(torch, call, *called(source, getattr(source.module(), source.function), call))
    return make


def final_state_bf16(torch, call, o, state):
    return o, state.to(torch.bfloat16).float()


def heads_swapped_in_state(torch, call, o, state):
    return o, state.flip(1)


def last_token_repeated(torch, call, o, state):
    o = o.clone()
    o[:, -1] = o[:, -2]
    return o, state


Planned = collections.namedtuple("Planned", "name source call make mode what")


def planned_capture(source, T, *, B=2, dtype="float32", gates="qwen", state=True, make=None,
                    mode="prefill", mistake="", what=""):
    short = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    name = f"{'sab_' + mistake + '_' if mistake else ''}{source}_{T}_{short}_{gates}"
    if mode == "mtp":
        name += "_mtp"
    call = dict(B=B, T=T, dtype=dtype, gates=gates, state=state)
    return Planned(name, source, call, make, mode, what)


def honest_captures():
    planned = []

    def add(source, T, **options):
        planned.append(planned_capture(source, T, **options))

    add("qwen3_next_recurrent", 1, B=3, mode="decode")
    add("qwen3_next_recurrent", 1, B=3, mode="decode", dtype="bfloat16", state=False)
    add("qwen3_next_recurrent", 4, mode="mtp")
    add("qwen3_next_recurrent", 5, state=False)
    add("qwen3_next_recurrent", 100, dtype="bfloat16")
    add("qwen3_next_recurrent", 130, gates="kimi")
    for T in (5, 64, 100, 130):
        add("qwen3_next_chunk", T)
    add("qwen3_next_chunk", 100, gates="mild")
    add("qwen3_next_chunk", 130, dtype="bfloat16", gates="kimi")
    add("qwen3_next_chunk", 64, dtype="bfloat16")
    add("kimi_linear_recurrent", 1, mode="decode", gates="kimi")
    add("kimi_linear_recurrent", 100, gates="kimi")
    add("kimi_linear_chunk", 64)
    add("kimi_linear_chunk", 130, gates="kimi")
    add("kimi_linear_chunk", 100, dtype="bfloat16", gates="kimi")
    add("fla_gdn_recurrent", 64)
    add("fla_gdn_chunk", 5)
    add("fla_gdn_chunk", 100)
    add("fla_gdn_chunk", 130, dtype="bfloat16", gates="kimi")
    add("fla_kda_recurrent", 100, gates="kimi")
    add("fla_kda_chunk", 64)
    add("fla_kda_chunk", 128, B=1, gates="kimi")  # takes whole chunks only
    return planned


def sabotaged_captures():
    planned = []

    def sabotage(mistake, source, T, make, what, **options):
        planned.append(planned_capture(source, T, make=make, mistake=mistake, what=what, **options))

    sabotage("g_bf16", "qwen3_next_chunk", 100, rounded_input("g"), "g rounded to bf16",
             gates="kimi")
    sabotage("beta_bf16", "qwen3_next_chunk", 64, rounded_input("beta"), "beta rounded to bf16",
             gates="kimi")
    sabotage("cumsum_bf16", "qwen3_next_chunk", 130,
             edited(("decay.cumsum(dim=3)", "decay.cumsum(dim=3).bfloat16().float()")),
             "cumulated gates rounded to bf16", gates="kimi")
    sabotage("kcumdecay_no_decay", "qwen3_next_chunk", 130,
             edited(("decayed_k_beta = k_beta * cum_decay.exp().unsqueeze(-1)",
                     "decayed_k_beta = k_beta")),
             "the correction by the old state is not decayed inside a chunk", gates="mild")
    sabotage("padding_decays", "qwen3_next_chunk", 100,
             edited(("beta, decay = (F.pad(x, (0, pad_size)) for x in (beta, decay))",
                     "beta = F.pad(beta, (0, pad_size)); "
                     "decay = F.pad(decay, (0, pad_size), value=-0.1)")),
             "padding tokens decay by exp(-0.1): only the final state is wrong", gates="kimi")
    sabotage("eps_1e-3", "qwen3_next_recurrent", 64, edited(("eps=1e-6", "eps=1e-3")),
             "l2 eps 1e-3 for 1e-6", gates="mild")
    sabotage("eps_1e-3", "qwen3_next_chunk", 64, edited(("eps=1e-6", "eps=1e-3")),
             "l2 eps 1e-3 for 1e-6", gates="mild")
    sabotage("snapshots_reversed", "qwen3_next_recurrent", 4, None,
             "intermediate states most recent first", mode="mtp", gates="mild")
    sabotage("final_state_bf16", "qwen3_next_chunk", 100, changed_output(final_state_bf16),
             "final state rounded to bf16, stored as f32")
    sabotage("g_bf16", "kimi_linear_recurrent", 100, rounded_input("g"), "g rounded to bf16",
             gates="kimi")
    sabotage("cumsum_bf16", "kimi_linear_chunk", 100,
             edited(("g = g.cumsum(dim=-2)", "g = g.cumsum(dim=-2).bfloat16().float()")),
             "cumulated gates rounded to bf16", gates="kimi")
    sabotage("read_after_decay", "kimi_linear_recurrent", 64,
             edited(("delta = (v_i", "before = last_recurrent_state; delta = (v_i"),
                    ("(last_recurrent_state * q_i", "(before * q_i")),
             "o reads the decayed state before the token is written", gates="kimi")
    sabotage("state_bf16_each_token", "fla_gdn_recurrent", 64,
             edited(("h = h.clone() + b_k.unsqueeze(-1) * b_v.unsqueeze(-2)",
                     "h = (h.clone() + b_k.unsqueeze(-1) * b_v.unsqueeze(-2)).bfloat16().float()")),
             "the state is rounded to bf16 after each token", gates="kimi")
    sabotage("correction_dropped", "fla_gdn_chunk", 130,
             edited(("v_new = v_i - v_prime", "v_new = v_i - v_prime * (i == 0)")),
             "the old state is not subtracted from the second chunk on", gates="mild")
    sabotage("state_heads_reversed", "fla_kda_chunk", 64, changed_output(heads_swapped_in_state),
             "heads of the final state reversed", gates="kimi")
    sabotage("last_token_repeated", "fla_kda_recurrent", 5, changed_output(last_token_repeated),
             "the last o is that of the token before", gates="kimi")
    return planned


def plan():
    """Every capture: its name, its source, how it is called, and the mistake in it. The place of a
    capture decides its seed."""
    return honest_captures() + sabotaged_captures()


# --- captures -------------------------------------------------------------------------------------

def write(torch, planned, seed, folder):
    from goldenrule_capture import write_capture

    source = SOURCES[planned.source]
    module = source.module()
    options = {**planned.call, "dtype": getattr(torch, planned.call["dtype"])}
    call = tensors(torch, seed, heads=source.heads, kda=source.kda, unit=not source.norm, **options)
    outputs = {}
    if planned.mode == "mtp":  # one call of the function for each token
        step, states, rows = dict(call), [], []
        for t in range(planned.call["T"]):
            for name in ("q", "k", "v", "g", "beta"):
                step[name] = call[name][:, t:t + 1]
            o, step["initial_state"] = called(source, getattr(module, source.function), step)
            rows.append(o)
            states.append(step["initial_state"])
        o, state = torch.cat(rows, dim=1), states[-1]
        if planned.name.startswith("sab_"):
            states.reverse()
        outputs["intermediate_states"] = torch.stack(states, dim=1)
    elif planned.make is None:
        o, state = called(source, getattr(module, source.function), call)
    else:
        o, state = planned.make(torch, source, call)
    path = folder / f"{planned.name}.h5"
    convention = dict(state_layout="kv", gate="log", beta="direct", scale=None,
                      qk_l2norm="rsqrt_sum_eps" if source.norm else "none")
    write_capture(path, op="kda" if source.kda else "gated_delta_rule", mode=planned.mode,
                  source=f"{source.title}{': ' + planned.what if planned.what else ''}",
                  convention=convention, inputs=call,
                  outputs=dict(o=o, final_state=state, **outputs))
    return path


def kimi_with_its_gate(torch, seed, folder):
    """kimi_linear with a, A_log [1,1,H,1] and dt_bias [H*K] of its own gate module, in fp32."""
    from goldenrule_capture import write_capture

    module = transformers_model("kimi_linear")
    configuration = imported("transformers.models.kimi_linear.configuration_kimi_linear")
    config = configuration.KimiLinearConfig(hidden_size=16, linear_head_dim=K, linear_num_heads=H)
    torch.manual_seed(seed)
    gate = module.KimiLinearForgetGate(config)
    with torch.no_grad():
        gate.A_log.uniform_(1, 16).log_()
        step = torch.exp(torch.rand(H * K) * math.log(100) + math.log(1e-3))
        gate.dt_bias.copy_(step + torch.log(-torch.expm1(-step)))
        hidden = torch.randn(2, 5, 16)
        a = gate.f_b_proj(gate.f_a_proj(hidden))
        g = gate(hidden)
    source = SOURCES["kimi_linear_recurrent"]
    call = tensors(torch, seed, B=2, T=5, heads=H, kda=True, dtype=torch.float32, gates="mild",
                   state=True)
    o, state = called(source, module.recurrent_kimi_delta_attention, {**call, "g": g})
    path = folder / "kimi_linear_recurrent_5_f32_with_its_gate.h5"
    write_capture(path, op="kda", mode="prefill", source=f"{source.title} and KimiLinearForgetGate",
                  convention=dict(state_layout="kv", beta="direct", scale=None),
                  inputs={**call, "g": None, "a": a.view(2, 5, H, K), "A_log": gate.A_log,
                          "dt_bias": gate.dt_bias},
                  outputs=dict(o=o, final_state=state))
    return path


def verdict(program, path, contract, explain):
    """(passes or None, a text): what the program says of one capture."""
    report = path.with_suffix(".json")
    options = ["--contract", contract] if contract else []
    options += [] if explain else ["--no-explain"]
    done = subprocess.run([program, "check", path, *options, "--json", report],
                          capture_output=True, text=True, check=False)
    if not report.is_file():
        return None, done.stderr.strip() or done.stdout.strip()
    (case,) = json.loads(report.read_text())["cases"]
    report.unlink()
    if done.returncode not in (0, 1):
        return None, f"{case['verdict']} {case['reason']}"
    ratio = max(float(t["max_ratio"] or 0) for t in case["tensors"])
    text = f"{case['contract']} {case['verdict']} {ratio:.3g}"
    for found in (case.get("explanation") or [])[:1]:
        text += f", {'explained by' if found['explains'] else 'nearest'} {found['mistake']}"
    if done.returncode == 1 and explain and not case.get("explanation"):
        text += ", not explained"
    return done.returncode == 0, text


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("program")
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--contract", action="append", default=[])
    arguments.add_argument("--only", default="", help="captures whose name contains this")
    arguments.add_argument("--no-explain", action="store_true", help="verdicts alone")
    chosen = arguments.parse_args()
    warnings.simplefilter("ignore")  # of the software under test
    try:
        torch = imported("torch")
    except NotHere as reason:
        print(f"SKIPPED: torch: {reason}")
        return SKIPPED
    torch.set_grad_enabled(False)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    jobs = [(p.name, p.what, lambda seed, p=p: write(torch, p, seed, chosen.folder))
            for p in plan()]
    jobs.append(("kimi_linear_recurrent_5_f32_with_its_gate", "",
                 lambda seed: kimi_with_its_gate(torch, seed, chosen.folder)))
    lines, skipped, code = [], {}, 0
    for number, (name, what, job) in enumerate(jobs):
        if chosen.only not in name:
            continue
        try:
            path = job(7001 + number)
        except NotHere as reason:
            skipped.setdefault(str(reason), []).append(name)
            continue
        honest = not name.startswith("sab_")
        lines.append(f"- `{path.name}`: {'honest' if honest else 'sabotaged: ' + what}")
        print(f"{path.name:60} {'must pass' if honest else 'must fail'}", flush=True)
        for contract in ("", *chosen.contract):
            passes, text = verdict(chosen.program, path, contract, not chosen.no_explain)
            as_it_must = passes is not None and passes == honest
            print(f"    {'' if as_it_must else 'NOT AS IT MUST: '}{text}", flush=True)
            if not contract:
                code = max(code, 2 if passes is None else int(passes != honest))
    for reason, names in skipped.items():
        print(f"skipped {len(names)}: {reason} ({', '.join(names)})")
    if not lines:
        return SKIPPED
    versions = {name: getattr(sys.modules.get(name), "__version__", None)
                for name in ("torch", "transformers")}
    title = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    (chosen.folder / "README.md").write_text(
        f"# Captures of real implementations ({title})\n\n" + "\n".join(lines) + "\n")
    print(f"{len(lines)} captures in {chosen.folder}, exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())

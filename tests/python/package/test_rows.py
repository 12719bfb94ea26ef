# SPDX-License-Identifier: Apache-2.0
"""The rows of the recorder for functions that need a GPU, on functions in their place: of the same
name and parameters, with arguments and states in the forms of that library, computing by what the
library expects of the case. Whether a row says the same as the kernel is seen on a GPU alone."""

import ast
import importlib.metadata
import importlib.util
import sys
import types
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import goldenrule
from goldenrule._rows import ROWS

GDN, KDA, FI = "fla.ops.gated_delta_rule.", "fla.ops.kda.", "flashinfer.gdn_"
FLA_RECURRENT = (GDN + "fused_recurrent.fused_recurrent_gated_delta_rule",
                 KDA + "fused_recurrent.fused_recurrent_kda")
FLA_CHUNK = GDN + "chunk.chunk_gated_delta_rule", KDA + "chunk.chunk_kda"
DECODE = FI + "decode.gated_delta_rule_decode_pretranspose"
MTP = FI + "decode.gated_delta_rule_mtp"
PREFILL = FI + "prefill.chunk_gated_delta_rule"
# Parameters with these defaults; all others have None where they may be left out.
DEFAULTS = {
    "output_final_state": False, "use_qk_l2norm_in_kernel": False, "use_gate_in_kernel": False,
    "use_beta_sigmoid_in_kernel": False, "allow_neg_eigval": False, "state_v_first": False,
    "safe_gate": False, "disable_recompute": False, "return_intermediate_states": False,
    "use_graph": False, "use_qk_l2norm": True, "cache_replayssm": False, "backend": "auto",
    "checkpoint_every_n_tokens": 0, "use_cp": "auto"}
HEADS = "H=1 HV=2 K=16 V=8"
ONE, LENGTHS = "mode=decode B=3", "mode=prefill lens=5,0,7"
RAW = "gate=softplus beta=sigmoid state_layout=vk"
GIVEN = "gate=log beta=direct qk_l2norm=none state_layout=kv h0=1"


def row(function):
    (found,) = [row for row in ROWS if row.function == function]
    return found


def fla(case):
    """The arguments of flash-linear-attention's kernels: gate and beta by flags, [1,T,..] packed."""
    call = case.call()
    c, x = call.convention, call.inputs
    arguments = {"q": x["q"], "k": x["k"], "v": x["v"], "g": x.get("a", x.get("g")),
                 "beta": x.get("b", x.get("beta"))}
    if call.mode == "prefill":
        arguments = {name: value[None] for name, value in arguments.items()}
        arguments["cu_seqlens"] = x["cu_seqlens"]
    arguments |= dict(initial_state=x.get("initial_state"), output_final_state=True,
                      use_qk_l2norm_in_kernel=c.get("qk_l2norm") != "none",
                      use_beta_sigmoid_in_kernel=c.get("beta", "sigmoid") != "direct",
                      allow_neg_eigval=c.get("beta") == "sigmoid2",
                      state_v_first=c.get("state_layout", "vk") == "vk")
    if "A_log" in x:
        arguments |= dict(use_gate_in_kernel=True, A_log=x["A_log"],
                          dt_bias=x["dt_bias"].reshape(-1))
    if c.get("gate") == "bounded":
        arguments |= dict(lower_bound=c.get("lower_bound", -5.0))
    return arguments


def flashinfer(case):
    """Those of FlashInfer: without a pool `state`, with one `initial_state` and its indices."""
    call = case.call()
    x = {name: value for name, value in call.inputs.items() if name != "state_indices"}
    c = call.convention
    if call.mode == "prefill":
        return x | dict(output_final_state=True, state_indices=call.inputs.get("state_indices"),
                        use_qk_l2norm_in_kernel=c.get("qk_l2norm") != "none",
                        output_state=x["initial_state"] if "state_indices" in call.inputs else None)
    if "state_indices" in call.inputs:
        x["initial_state_indices"] = call.inputs["state_indices"]
        x.setdefault("state", None)
    else:
        x["state"] = x.pop("initial_state")
    x["use_qk_l2norm"] = c.get("qk_l2norm") != "none"
    if call.mode == "mtp":
        x.pop("state", None)
        x["disable_state_update"] = bool(c.get("disable_state_update", 0))
        if "ssm_state_indices" not in x:
            B, T = x["q"].shape[:2]
            x["intermediate_states_buffer"] = np.full((B, T, *x["initial_state"].shape[1:]), np.nan, "f4")
    return x


def stand_in(function, case, spoil=lambda outputs: None):
    """A function of that name and those parameters; returns it with its module."""
    module, _, name = function.rpartition(".")
    optional = [p for p in row(function).parameters[3:] if p != "kwargs"]

    def compute(arguments):
        outputs = {n: e.golden.astype(np.float32) for n, e in case.expected().outputs.items()}
        outputs["o"] = outputs["o"].astype(ml_dtypes.bfloat16)
        spoil(outputs)
        if arguments.get("cu_seqlens") is not None and arguments["q"].ndim == 4:
            outputs["o"] = outputs["o"][None]
        buffer = arguments.get("intermediate_states_buffer")
        if buffer is not None:
            buffer[:] = outputs["intermediate_states"]
        pool = arguments.get("initial_state")
        pool = arguments.get("state") if pool is None else pool
        if function.startswith("flashinfer") and pool is not None:
            pool[:] = outputs.get("final_state", pool)
            return outputs["o"], pool
        return outputs["o"], outputs["final_state"] if arguments["output_final_state"] else None

    parameters = ["q", "k", "v", *(f"{p}={DEFAULTS.get(p)!r}" for p in optional)]
    parameters += ["**kwargs"] if "kwargs" in row(function).parameters else []
    scope = {"compute": compute}
    exec(f"def {name}({', '.join(parameters)}):\n    return compute(locals())", scope)
    made = types.ModuleType(module)
    setattr(made, name, scope[name])
    scope[name].__module__ = module
    return made, scope[name]


CALLS = [
    *((f, fla, f"{op} {line}") for f, op in zip(FLA_RECURRENT, ("op=gdn", "op=kda")) for line in (
        f"{ONE} {HEADS} gate=log beta=direct state_layout=kv", f"{ONE} {HEADS} {RAW}",
        f"{LENGTHS} {HEADS} {GIVEN}", f"{LENGTHS} {HEADS} {RAW} h0=1")),
    *((f, fla, f"{op} {line}") for f, op in zip(FLA_CHUNK, ("op=gdn", "op=kda")) for line in (
        f"{LENGTHS} {HEADS} {GIVEN}", f"{LENGTHS} {HEADS} {RAW} h0=1",
        f"mode=prefill lens=1,1 {HEADS} gate=softplus beta=sigmoid2 state_layout=vk")),
    (FLA_CHUNK[1], fla, f"op=kda {LENGTHS} {HEADS} gate=bounded lower_bound=-3 h0=1"),
    (FLA_RECURRENT[1], fla, f"op=kda {ONE} {HEADS} gate=bounded"),
    (DECODE, flashinfer, f"op=gdn {ONE} {HEADS}"),
    (DECODE, flashinfer, f"op=gdn {ONE} {HEADS} slots=padded qk_l2norm=none"),
    (DECODE, flashinfer, f"op=gdn {ONE} {HEADS} slots=separate"),
    (MTP, flashinfer, f"op=gdn mode=mtp B=3 T=3 {HEADS} slots=permuted"),
    (MTP, flashinfer, f"op=gdn mode=mtp B=3 T=3 {HEADS} slots=padded disable_state_update=1"),
    (PREFILL, flashinfer, f"op=gdn {LENGTHS} {HEADS} gate=linear beta=direct h0=1"),
    (PREFILL, flashinfer, f"op=gdn {LENGTHS} {HEADS} gate=linear beta=direct qk_l2norm=none"),
    (PREFILL, flashinfer, f"op=gdn {LENGTHS} {HEADS} gate=linear beta=direct slots=permuted"),
]


def recorded(monkeypatch, function, arguments, case, **more):
    module, made = stand_in(function, case, **more)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with goldenrule.record(made, explain=False) as calls:
        getattr(module, made.__name__)(**arguments)
    return calls


@pytest.mark.parametrize("function, form, line", CALLS)
def test_a_call_is_the_call_of_the_schema(monkeypatch, function, form, line):
    case = goldenrule.fixture(line)
    (seen,) = recorded(monkeypatch, function, form(case), case)
    assert seen.report.passed, str(seen.report)
    # It is the same call, in every convention that its op and mode use: its exact outputs are the same.
    expected, found = case.expected().outputs, seen.call.expected().outputs
    assert set(found) == set(expected)
    for name, output in expected.items():
        np.testing.assert_array_equal(found[name].golden, output.golden)

    def spoil(outputs):
        outputs["o"][-1] += ml_dtypes.bfloat16(1.0)

    calls = recorded(monkeypatch, function, form(case), case, spoil=spoil)
    assert not calls.passed and calls.reports[0].tensors["o"].verdict == "OUT_OF_BUDGET"


@pytest.mark.parametrize("function, form, line", CALLS[::3])
def test_another_convention_is_another_call(monkeypatch, function, form, line):
    """The flag for the norm says the opposite of what was computed."""
    case = goldenrule.fixture(line)
    arguments = form(case)
    flag = row(function).norm
    arguments[flag] = not arguments[flag]
    assert not recorded(monkeypatch, function, arguments, case).passed


GPU = [row for row in ROWS if row.function.startswith(("flashinfer", *FLA_RECURRENT, *FLA_CHUNK))]


@pytest.mark.parametrize("known", GPU, ids=lambda known: known.function)
def test_another_signature_is_refused_with_the_release(known):
    case = goldenrule.fixture(CALLS[0][2])
    _, made = stand_in(known.function, case)
    known.check(made)
    scope = {}
    exec(f"def {made.__name__}({', '.join([*known.parameters, 'added'])}): pass", scope)
    changed = scope[made.__name__]
    changed.__module__ = made.__module__
    with pytest.raises(ValueError, match=f"expected the parameters of {known.release} .*added"):
        with goldenrule.record(changed):
            pass


@pytest.mark.parametrize("known", GPU, ids=lambda known: known.function)
def test_parameters_are_those_of_the_package(known):
    """Read in its source, where that release is installed: importing it may need a GPU."""
    module, _, name = known.function.rpartition(".")
    package, *path = module.split(".")
    found = importlib.util.find_spec(package)
    distribution, version = {"fla": ("fla-core", "0.6."),
                             "flashinfer": ("flashinfer-python", "0.7.2")}[package]
    if found is None or not importlib.metadata.version(distribution).startswith(version):
        pytest.skip(f"{known.release} is not installed")
    source = Path(found.submodule_search_locations[0], *path).with_suffix(".py").read_text()
    (given,) = [node.args for node in ast.parse(source).body
                if isinstance(node, ast.FunctionDef) and node.name == name]
    names = [each.arg for each in given.posonlyargs + given.args + given.kwonlyargs]
    assert (*names, *([given.kwarg.arg] if given.kwarg else [])) == known.parameters


def test_states_that_are_not_asked_for_are_not_judged(monkeypatch):
    for function, form, line in (CALLS[0], CALLS[-3]):
        case = goldenrule.fixture(line)
        arguments = {**form(case), "output_final_state": False}
        if form is flashinfer:
            arguments["initial_state"] = arguments["initial_state"].copy()
        (seen,) = recorded(monkeypatch, function, arguments, case)
        assert seen.report.passed and list(seen.report.tensors) == ["o"]
    (seen,) = recorded(monkeypatch, CALLS[0][0], fla(goldenrule.fixture(CALLS[0][2])),
                       goldenrule.fixture(CALLS[0][2]), spoil=lambda o: o.update(final_state=None))
    assert not seen.report.passed  # asked for, and not returned


REFUSED = [
    (FLA_CHUNK[0], fla, CALLS[8][2], dict(chunk_size=32), "chunk_size=32"),
    (FLA_CHUNK[0], fla, CALLS[8][2], dict(head_first=True), "head_first=True"),
    (FLA_RECURRENT[0], fla, CALLS[0][2], dict(gv=np.ones(3)), "gv="),
    (FLA_CHUNK[1], fla, CALLS[8][2].replace("gdn", "kda"), dict(return_intermediate_states=True),
     "return_intermediate_states"),
    (MTP, flashinfer, CALLS[-5][2], dict(cache_replayssm=True), "cache_replayssm"),
    (PREFILL, flashinfer, CALLS[-3][2], dict(checkpoint_every_n_tokens=64), "checkpoint_every"),
    (PREFILL, flashinfer, CALLS[-1][2], dict(output_state=np.zeros(3)), "another pool"),
]


@pytest.mark.parametrize("function, form, line, more, words", REFUSED)
def test_what_a_row_cannot_describe_is_refused_by_name(monkeypatch, function, form, line, more, words):
    case = goldenrule.fixture(line)
    with pytest.raises(ValueError, match=f"{function}: .*{words}.* cannot be judged"):
        recorded(monkeypatch, function, form(case) | more, case)


def test_padding_on_bf16_states_is_refused(monkeypatch):
    case = goldenrule.fixture(f"op=gdn {ONE} {HEADS} slots=padded state=bf16")
    with pytest.raises(ValueError, match="initial_state_indices has rows of padding"):
        recorded(monkeypatch, DECODE, flashinfer(case), case)


def test_a_scale_of_zero_is_the_default_in_prefill_alone(monkeypatch):
    case = goldenrule.fixture(CALLS[-3][2])
    assert recorded(monkeypatch, PREFILL, flashinfer(case) | dict(scale=0.0), case).passed
    case = goldenrule.fixture(CALLS[-8][2])
    assert not recorded(monkeypatch, DECODE, flashinfer(case) | dict(scale=0.0), case).passed

# SPDX-License-Identifier: Apache-2.0
"""The recorder around kernels of other projects on a CUDA device (FlashInfer, flash-linear-attention,
FlashQLA, cuDNN, as far as they are installed): an honest call passes, and each of ten mistakes put between
the caller and the kernel fails with its name. Without a device, the same text runs on goldenrule's own
functions of the same signatures, on the kernels compiled for the CPU. cuDNN's GDN is not here:
version 1.32 of its frontend has no engine for it on compute capability 9.0 but one that needs cuda.tile."""

import functools
import importlib
import inspect
import os

import pytest
import test_engine_rows
import test_rows
from stand_ins import row
from test_engine_rows import C_KDA, QLA
from test_rows import DECODE, FLA_CHUNK, FLA_RECURRENT, MTP, PREFILL

import goldenrule
from goldenrule._cases import as_torch

torch = pytest.importorskip("torch")
os.environ.update({"FLA_FLASH_QLA": "0", "FLA_FLASH_KDA": "0"})  # flash-linear-attention's own kernels
DECODE_KV = DECODE.replace("_pretranspose", "")

HEADS = "H=2 HV=4 K=128 V=128"
EQUAL = "H=2 HV=2 K=128 V=128"
LENGTHS = "mode=prefill lens=5,130,1,64"
GIVEN = "gate=log beta=direct h0=1"
GDN_DECODE = f"op=gdn mode=decode B=3 {HEADS}"
GDN_PREFILL = f"op=gdn {LENGTHS} {HEADS}"
KDA_PREFILL = f"op=kda {LENGTHS} {EQUAL}"
LINEAR = f"{GDN_PREFILL} gate=linear beta=direct h0=1"
HONEST = [
    (FLA_RECURRENT[0], f"{GDN_PREFILL} {GIVEN} state_layout=kv"),
    (FLA_RECURRENT[0], f"{GDN_DECODE} gate=softplus"),
    (FLA_RECURRENT[1], f"{KDA_PREFILL} {GIVEN} state_layout=kv"),
    (FLA_CHUNK[0], f"{GDN_PREFILL} {GIVEN} state_layout=kv"),
    (FLA_CHUNK[0], f"{GDN_PREFILL} gate=softplus h0=1"),
    (FLA_CHUNK[1], f"{KDA_PREFILL} {GIVEN} state_layout=kv"),
    (FLA_CHUNK[1], f"{KDA_PREFILL} gate=bounded h0=1"),
    (DECODE, GDN_DECODE),
    (DECODE, f"{GDN_DECODE} slots=padded"),
    (DECODE_KV, f"{GDN_DECODE} state_layout=kv"),
    (MTP, f"op=gdn mode=mtp B=3 T=3 {HEADS} slots=permuted"),
    (MTP, f"op=gdn mode=mtp B=3 T=4 {HEADS} slots=permuted disable_state_update=1"),
    (PREFILL, LINEAR),
    (PREFILL, f"{LINEAR} qk_l2norm=none"),
    (QLA, f"{GDN_PREFILL} {GIVEN} state_layout=kv"),
    (C_KDA, f"{KDA_PREFILL} gate=bounded h0=1"),
]


def function_of(name, device):
    """The function of that package; on the CPU goldenrule's with its signature."""
    module, _, function = name.rpartition(".")
    if device == "cpu":
        own = pytest.importorskip(f"goldenrule.ops.{module.partition('.')[0]}",
                                  reason=f"goldenrule has no {function} for the CPU")
        return getattr(own, function)
    pytest.importorskip(module.partition(".")[0])
    return getattr(importlib.import_module(module), function)


def arguments_of(name, line, device):
    """What the function is given for that case, on the device."""
    case = goldenrule.fixture(line)
    package = name.partition(".")[0]
    if package in ("fla", "flashinfer"):
        given = getattr(test_rows, package)(case)
    else:
        given = test_engine_rows.arguments(name, case)
    arrays = {key: value for key, value in given.items() if hasattr(value, "__array_interface__")}
    return given | as_torch(arrays, device)


def judged(function, name, arguments):
    with torch.no_grad(), goldenrule.record(function, row=row(name)) as calls:
        calls.function(**arguments)
    (recorded,) = calls
    return recorded.report


@pytest.mark.parametrize("name, line", HONEST)
def test_an_honest_call_passes(device, name, line):
    function = function_of(name, device)
    report = judged(function, name, arguments_of(name, line, device))
    assert report.passed, str(report)


def tiled(x):
    """Query or key heads for all value heads, the first of them again after the last one."""
    return x.repeat(*[1] * (x.dim() - 2), 2, 1)


SABOTAGED = [
    ("gate_ignored", PREFILL, LINEAR, lambda x: dict(g=torch.ones_like(x["g"]))),
    ("beta_ignored", PREFILL, LINEAR, lambda x: dict(beta=torch.ones_like(x["beta"]))),
    ("scale_missing", PREFILL, LINEAR, lambda x: dict(scale=1.0)),
    ("head_tiled", PREFILL, LINEAR, lambda x: dict(q=tiled(x["q"]), k=tiled(x["k"]))),
    ("initial_state_ignored", FLA_CHUNK[0], HONEST[3][1], lambda x: dict(initial_state=None)),
    ("gate_log2", FLA_CHUNK[0], HONEST[3][1], lambda x: dict(g=x["g"] * 0.6931471805599453)),
    ("gate_channel_mean", FLA_CHUNK[1], HONEST[5][1],
     lambda x: dict(g=x["g"].mean(-1, keepdim=True).expand_as(x["g"]).contiguous())),
    ("state_transposed", FLA_CHUNK[1], HONEST[5][1],
     lambda x: dict(initial_state=x["initial_state"].transpose(-1, -2).contiguous())),
    ("dt_bias_ignored", DECODE, GDN_DECODE, lambda x: dict(dt_bias=torch.zeros_like(x["dt_bias"]))),
    ("a_log_reversed", DECODE, GDN_DECODE, lambda x: dict(A_log=x["A_log"].flip(0))),
]


@pytest.mark.parametrize("mistake, name, line, change", SABOTAGED,
                         ids=[line[0] for line in SABOTAGED])
def test_a_mistake_fails_with_its_name(device, mistake, name, line, change):
    function = function_of(name, device)

    @functools.wraps(function)
    def sabotaged(*args, **kwargs):
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        given |= given.pop("kwargs", {})
        return function(**given | change(given))

    report = judged(sabotaged, name, arguments_of(name, line, device))
    assert report.verdict == "OUT_OF_BUDGET"
    assert mistake in report.explanation, str(report)

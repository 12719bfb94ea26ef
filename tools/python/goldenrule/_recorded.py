# SPDX-License-Identifier: Apache-2.0
"""What the arguments of public functions mean: one row of the table for each function."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ._calls import Call


@dataclass(frozen=True)
class Row:
    """One function: its parameters, and which input or convention each of them is.

    Parameters that are neither must have the value of `fixed`, or change nothing (`ignored`).
    """

    function: str  # "package.module.function"; a module of * stands for any
    op: str
    parameters: tuple[str, ...]  # of the release that the row was made from, in their order
    inputs: Mapping[str, str]  # parameter -> input
    outputs: tuple[str, ...]  # the values that it returns, in their order
    convention: Mapping[str, Any] = field(default_factory=dict)
    norm: str = ""  # the flag that asks for the norm of q and k; empty: qk_l2norm of the convention
    scale: str = ""  # the parameter that scales q; None is K^-0.5
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # the values it may have
    ignored: tuple[str, ...] = ()
    contract: str = ""  # what its calls claim: honoured where it is tighter than mode and types imply
    release: str = ""

    def check(self, function: Callable[..., Any]) -> None:
        """Raises ValueError where the function's parameters are others."""
        actual = tuple(inspect.signature(function).parameters)
        if actual != self.parameters:
            raise ValueError(f"{_name(function)}: expected the parameters of {self.release or 'its row'}"
                             f" ({', '.join(self.parameters)}), actual {', '.join(actual)}")

    def call(self, arguments: Mapping[str, Any], results: tuple[Any, ...]) -> Call:
        """The call that these arguments and results are."""
        self._refuse_others(arguments)
        convention = dict(self.convention)
        if self.norm and not arguments[self.norm]:
            convention["qk_l2norm"] = "none"
        if self.scale and arguments[self.scale] is not None:
            convention["scale"] = float(arguments[self.scale])
        inputs = {name: arguments[parameter] for parameter, name in self.inputs.items()
                  if arguments.get(parameter) is not None}
        outputs = {name: value for name, value in zip(self.outputs, results) if value is not None}
        mode = "decode" if inputs["q"].shape[1] == 1 and "cu_seqlens" not in inputs else "prefill"
        return Call(op=self.op, mode=mode, convention=convention, inputs=inputs, outputs=outputs,
                    contract=self.contract,
                    source=f"{self.function}{f', {self.release}' if self.release else ''}")

    def _refuse_others(self, arguments: Mapping[str, Any]) -> None:
        known = {*self.inputs, *self.ignored, self.norm, self.scale}
        for name, value in arguments.items():
            if name in known or any(_same(value, one) for one in self.fixed.get(name, (None,))):
                continue
            raise ValueError(f"{self.function}: {name}={value!r} is not in its row: this call cannot "
                             "be judged")


def _same(value: Any, other: Any) -> bool:
    plain = isinstance(value, (bool, int, float, str))  # of a tensor, == is a tensor
    return value is other or (plain and value == other)


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__name__}"


def _is(row: Row, function: Callable[..., Any]) -> bool:
    module, _, name = row.function.rpartition(".")
    head, star, tail = module.partition("*")
    actual = function.__module__
    fits = actual.startswith(head) and actual.endswith(tail) if star else actual == module
    return name == function.__name__ and fits


def row_of(function: Callable[..., Any]) -> Row:
    """The row of a public function; ValueError names those that there are."""
    for row in ROWS:
        if _is(row, function):
            return row
    raise ValueError(f"expected one of {', '.join(row.function for row in ROWS)}, or a row of "
                     f"your own, actual {_name(function)}")


# Beta and the gate are what the model has computed from its projections: beta itself, and log alpha.
_GIVEN = {"gate": "log", "beta": "direct", "state_layout": "kv"}
_QKV = {"query": "q", "key": "k", "value": "v", "g": "g", "beta": "beta",
        "initial_state": "initial_state"}
# All of them compute in fp32, whatever their tensors are.
_RECURRENT = dict(contract="recurrent_f32")
_CHUNKS = dict(contract="chunk64_f32", fixed={"chunk_size": (16, 32, 64)})
_TRANSFORMERS = dict(
    inputs=_QKV, outputs=("o", "final_state"), norm="use_qk_l2norm_in_kernel",
    convention={**_GIVEN, "qk_l2norm": "rsqrt_sum_eps", "l2_eps": 1e-6},
    ignored=("output_final_state",), release="transformers 5.23")
_FLA = dict(
    inputs={name: name for name in ("q", "k", "v", "g", "beta", "initial_state")},
    outputs=("o", "final_state"), convention={**_GIVEN, "qk_l2norm": "none"}, scale="scale",
    ignored=("output_final_state",), release="fla-core 0.6")
_MODELS = "transformers.models.*"

ROWS = (
    Row(f"{_MODELS}.torch_chunk_gated_delta_rule", "gated_delta_rule",
        ("query", "key", "value", "g", "beta", "chunk_size", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "kwargs"), **_TRANSFORMERS, **_CHUNKS),
    Row(f"{_MODELS}.torch_recurrent_gated_delta_rule", "gated_delta_rule",
        ("query", "key", "value", "g", "beta", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "kwargs"), **_TRANSFORMERS, **_RECURRENT),
    Row(f"{_MODELS}.chunk_kimi_delta_attention", "kda",
        ("query", "key", "value", "g", "beta", "chunk_size", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "kwargs"), **_TRANSFORMERS, **_CHUNKS),
    Row(f"{_MODELS}.recurrent_kimi_delta_attention", "kda",
        ("query", "key", "value", "g", "beta", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "kwargs"), **_TRANSFORMERS, **_RECURRENT),
    Row("fla.ops.gated_delta_rule.naive.naive_recurrent_gated_delta_rule", "gated_delta_rule",
        ("q", "k", "v", "beta", "g", "scale", "initial_state", "output_final_state"), **_FLA, **_RECURRENT),
    Row("fla.ops.gated_delta_rule.naive.naive_chunk_gated_delta_rule", "gated_delta_rule",
        ("q", "k", "v", "g", "beta", "chunk_size", "scale", "initial_state", "output_final_state"),
        **_FLA, **_CHUNKS),
    Row("fla.ops.kda.naive.naive_recurrent_kda", "kda",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state"), **_FLA, **_RECURRENT),
    Row("fla.ops.kda.naive.naive_chunk_kda", "kda",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state", "chunk_size"),
        **_FLA, **_CHUNKS),
)

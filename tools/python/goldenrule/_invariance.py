# SPDX-License-Identifier: Apache-2.0
"""The same call made in another way. What must be the same bits then, or differ by no more than the budgets
of both calls, needs no exact result: it is the relations of the library over a kernel of the caller."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from . import _core
from ._calls import Call, mapping, packed, unpacked
from ._cases import Case, as_torch, call_of, require_gpu, taken
from ._outcomes import Departure, Invariance, Outcome
from ._words import contract_text

# What may be asked, and the relations of the library that it is.
RELATIONS = {
    "batch": ("rows_alone",),
    "order": ("rows_reversed", "slots_permuted"),
    "split": ("split", "restart"),
    "repeat": ("repeated",),
    "neighbours": ("neighbour_nan",),
    "cuda_graph": ("repeated", "rows_reversed", "slots_permuted", "counts_changed"),
}
# The same of a backward pass. The first four are about no other operation.
GRADIENT_RELATIONS = {
    "linear": ("power_of_two", "linearity"),
    "euler": ("euler",),
    "symmetry": ("query_scale", "key_scale", "state_scale", "rotation", "parameters"),
    "causal": ("later_zero", "truncated"),
    "batch": ("rows_alone",),
    "split": ("split",),
}
# Of cuda_graph they make the calls alone: each is made with the graph and without. A graph of a prefill need not
# take other lengths.
OF_PREFILL = ("repeated",)
GRAPH = "replays of one CUDA graph, with other values, rows, slots and counts, beside the same calls without it"
Kernel = Callable[..., Mapping[str, Any]]


def invariant(kernel: Kernel, case: Case | Call, over: str | Iterable[str] | None = None, *,
              device: Any = None, same_bits: bool = True, contract: str | Mapping[str, Any] | None = None,
              repeats: int = 1) -> Invariance:
    """Makes a call of a kernel again in other ways, and compares every element of what it returns.

    kernel: as in case.call(kernel): it takes the inputs by name and returns {"o": .., "final_state": ..}. It is
    called on the thread of the caller with arrays of its own each time, NumPy or, on a device, torch.
    over, by default all but cuda_graph:
      batch       every row (sequence) in a call of its own
      order       the rows in reverse order; the slots of a pool renamed
      split       a prefill cut in two calls, or begun again at a checkpoint
      repeat      the same call again, after one with other values
      neighbours  NaN in the other rows, their states, padding and slots that nobody reads
      cuda_graph  the call captured into a CUDA graph and replayed, beside the call without; on a GPU, "cuda" by default
    Of a backward pass (the kernel takes do and dfinal_state as well, and returns the gradients that it has):
      linear      do and dfinal_state times 8, or in two parts that add up
      euler       <v, dv> + <initial_state, dinitial_state> = <do, o> + <dfinal_state, final_state>, o by the library
      symmetry    what scales and rotations of q, k, v and the states leave as it is ties dq, dk, dv, dg and dbeta
                  to each other, token by token, and ddt_bias and dA_log to da; o and final_state by the library
      causal      do = 0 in the second half of every sequence
      batch       as above
      split       the second half of every sequence, whose dinitial_state is dfinal_state of the first half
    same_bits=False: a row may be summed in another order where it stands elsewhere in the batch (batch, order):
    it then differs by no more than the budgets of both calls, under `contract` (default: by mode and types).
    split always does; repeat, neighbours, cuda_graph and renamed slots demand the same bits of every kernel.
    repeats: how often the call is made again for repeat and cuda_graph.

    Raises ValueError for another operation than the delta rule and its backward pass, what the library refuses, and what the kernel raises.
    """
    call = call_of(case)
    line = case.line if isinstance(case, Case) else call.case or f"{call.op} {call.mode}"
    asked = _core.AskedRelations()
    asked.contract, asked.same_bits, asked.repeats = contract_text(contract), bool(same_bits), _count(repeats)
    original, outcomes = packed(call, wants_outputs=False), []
    relations = GRADIENT_RELATIONS if call.op.endswith("_backward") else RELATIONS
    built_in = case.built_in if isinstance(case, Case) else frozenset()
    for name in _asked(over, relations):
        asked.names = [relation for relation in relations[name]
                       if relation != "slots_permuted" or "state_indices" in call.inputs]
        if name == "cuda_graph":
            outcomes.append(_graphed(kernel, line, call, original, device, built_in, asked))
            continue
        made = _Made(kernel, line, call, device, built_in)
        for row in _core.relations(original, made, asked):
            departures = tuple(Departure(**departure) for departure in row.pop("departures"))
            outcomes.append(Outcome(over=name, relation=row.pop("name"), departures=departures, **row))
    return Invariance(line, tuple(outcomes))


def over(*names: str) -> Any:
    """For a test with an argument `over`: it runs once for each of these, by default all but cuda_graph."""
    import pytest

    return pytest.mark.parametrize("over", _asked(names or None, {**RELATIONS, **(GRADIENT_RELATIONS if names else {})}))


def _asked(over: str | Iterable[str] | None, relations: Mapping[str, Any]) -> list[str]:
    names = [name for name in relations if name != "cuda_graph"] if over is None \
        else [over] if isinstance(over, str) else list(over)
    for name in names or ["none"]:
        if name not in relations:
            raise ValueError(f"over: expected some of {', '.join(relations)}, actual {name!r}")
    return names


def _count(repeats: Any) -> int:
    if not isinstance(repeats, int) or repeats < 1:
        raise ValueError(f"repeats: expected a whole number that is at least 1, actual {repeats!r}")
    return repeats


class _Made:
    """A call that the library makes, as its kernel takes it, with what that returns."""

    def __init__(self, kernel: Kernel, line: str, original: Call, device: Any,
                 built_in: frozenset[str]) -> None:
        self.kernel, self.line, self.device, self.built_in = kernel, line, device, built_in
        self.names = original.inputs.keys()

    def outputs(self, call: Call, given: Mapping[str, Any]) -> dict[str, Any]:
        return mapping("outputs", self.kernel(**given))

    def __call__(self, made: Mapping[str, Any]) -> dict[str, Any]:
        call = unpacked(made)
        inputs = dict(call.inputs)
        # A kernel without a pool is given the states of its rows.
        slots = None if "state_indices" in self.names else inputs.pop("state_indices", None)
        pool = inputs.get("initial_state")
        if slots is not None and pool is not None:
            inputs["initial_state"] = pool[slots]
        given = inputs if self.device is None else as_torch(inputs, self.device)
        outputs = self.outputs(call, taken(self.kernel, self.line, given, call.convention,
                                           self.built_in))
        if slots is not None and pool is not None and outputs.get("final_state") is not None:
            states = outputs["final_state"]
            outputs["final_state"] = _scattered(pool, slots, states)
        call.outputs = outputs
        return packed(call, wants_outputs=False)  # the library says which are missing


def _scattered(pool: Any, slots: Any, states: Any) -> Any:
    """The pool with the states of the rows, in the type in which the kernel returns them."""
    if hasattr(states, "detach"):
        import torch

        whole = as_torch({"pool": pool}, states.device)["pool"].to(states.dtype, copy=True)
        whole[torch.as_tensor(slots.astype(np.int64), device=states.device)] = states.detach()
        return whole
    whole = pool.astype(states.dtype)
    whole[slots] = states
    return whole


def _graphed(kernel: Kernel, line: str, call: Call, original: Mapping[str, Any], device: Any,
             built_in: frozenset[str], asked: Any) -> Outcome:
    device = "cuda" if device is None else device
    if not str(device).startswith("cuda"):
        raise ValueError(f'cuda_graph: expected device="cuda", actual {device!r}')
    require_gpu(device)
    if call.mode == "prefill":
        asked.names = [name for name in asked.names if name in OF_PREFILL]
    made = _Graphed(kernel, line, call, device, built_in)
    _core.relations(original, made, asked)
    return Outcome(over="cuda_graph", relation="cuda_graph", meaning=GRAPH, applies=True, bits=True,
                   compared=made.compared, bound_to_signal=0.0, departures=tuple(made.departures.values()))


class _Graphed(_Made):
    """Each call is made without a graph and by a replay of that of the first call."""

    def __init__(self, kernel: Kernel, line: str, original: Call, device: Any,
                 built_in: frozenset[str]) -> None:
        super().__init__(kernel, line, original, device, built_in)
        self.graph: Any = None
        self.inputs: dict[str, Any] = {}
        self.replayed: dict[str, Any] = {}
        self.compared = 0
        self.departures: dict[str, Departure] = {}  # by output: of the first call that differs

    def outputs(self, call: Call, given: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        alone = _copied(self.kernel(**_copied(given)))
        if self.graph is None:
            self._capture(given)
        for name, value in given.items():
            if torch.is_tensor(value):
                self.inputs[name].copy_(value)
        self.graph.replay()
        torch.cuda.synchronize()
        for name, value in alone.items():
            self._compare(call, name, value, self.replayed[name])
        return alone

    def _capture(self, given: Mapping[str, Any]) -> None:
        import torch

        self.inputs = _copied(given)
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):  # what is compiled or allocated by a first call is so here
            self.kernel(**_copied(given))
        torch.cuda.current_stream().wait_stream(beside)
        self.graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self.graph):
                self.replayed = dict(self.kernel(**self.inputs))
        except RuntimeError as error:
            first = error  # the end of a capture that was broken complains once more
            while isinstance(first.__context__, RuntimeError):
                first = first.__context__
            raise RuntimeError("cuda_graph: expected a kernel that a CUDA graph can capture, actual "
                               f"{str(first).partition(chr(10))[0]}") from error

    def _compare(self, call: Call, name: str, alone: Any, replayed: Any) -> None:
        a, b = alone.double(), replayed.double()
        no_numbers = a.isnan() & b.isnan()
        differ = (a != b) & ~no_numbers
        self.compared += a.numel() - int(no_numbers.sum())
        count = int(differ.sum())
        if count == 0 or name in self.departures:
            return
        error = (a - b).abs().where(differ, a.new_zeros(()) - 1).nan_to_num(nan=float("inf"))
        worst = int(error.argmax())
        made = packed(call, wants_outputs=False)
        places = [_core.coordinates(made, name, _index(at, a.shape))
                  for at in (int(differ.flatten().nonzero()[0]), worst)]
        self.departures[name] = Departure(
            tensor=name, violations=count, first=places[0], worst=places[1], value=float(a.flatten()[worst]),
            other=float(b.flatten()[worst]), error=float(error.flatten()[worst]), bound=0.0)


def _index(at: int, shape: Any) -> list[int]:
    return [int(i) for i in np.unravel_index(at, tuple(shape))]


def _copied(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.clone() if hasattr(value, "clone") else value for name, value in inputs.items()}

# SPDX-License-Identifier: Apache-2.0
"""The backward passes of a recorded call, which its host makes when it likes.

Hooks on nodes of the host's own graph read what passes through them: the gradients by the outputs where they
enter the nodes of the call, and those by the inputs where they leave these. No node is added, no tensor is
replaced and no hook returns anything, so the host computes what it computes without them, bit by bit.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ._autograd import is_floating, torch_module


@dataclass
class Pass:
    """What one backward pass brought to a call and took from it, copied to the host."""

    given: dict[str, Any] = field(default_factory=dict)  # gradients by outputs
    gradients: dict[str, Any] = field(default_factory=dict)  # by inputs
    absent: tuple[str, ...] = ()  # those of which autograd has none (None): zeros, for it adds nothing


def sequence_number() -> int | None:
    """Autograd's number of the next node of this thread; None where no graph is made."""
    torch = torch_module()
    return torch._C._autograd._get_sequence_nr() if torch.is_grad_enabled() else None


class Followed:
    """Hooks on the nodes of one call.

    inputs, outputs: tensors of the call by the names of the schema; begin: sequence_number() before it;
    noted: what catches an error of a hook; finished: called at the end of each backward pass.
    """

    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], begin: int,
                 noted: Callable[[], AbstractContextManager[None]], copy: Callable[[Any], Any],
                 finished: Callable[[Pass], None]) -> None:
        self.noted, self.copy, self.finished = noted, copy, finished
        self.lock = threading.Lock()
        self.now: Pass | None = None
        edges = self._edges(inputs)
        followed = {name: value for name, value in outputs.items()
                    if is_floating(value) and value.grad_fn is not None}
        for name, value in followed.items():
            value.grad_fn.register_prehook(self._given(name, value.output_nr))
        inner = list(_nodes_of([value.grad_fn for value in followed.values()], edges, begin))
        self.wanted = {name: (inputs[name].shape, inputs[name].dtype) for name in edges.values()}
        self.reached = {name for _, places in inner for _, name in places}
        for node, places in inner:
            own = isinstance(node, torch_module().autograd.function.BackwardCFunction)
            node.register_hook(self._taken(places, own))

    def _edges(self, inputs: Mapping[str, Any]) -> dict[Any, str]:
        """Where the gradient by an input goes, by the name of the input."""
        edges: dict[Any, str] = {}
        for name, value in inputs.items():
            if not is_floating(value) or not value.requires_grad:
                continue
            edge = tuple(torch_module().autograd.graph.get_gradient_edge(value))[:2]
            if edge in edges:
                raise ValueError(f"{edges[edge]} and {name} are one tensor, of whose gradient nobody can say which "
                                 "part is by which")
            edges[edge] = name
        return edges

    def _given(self, name: str, place: int) -> Callable[[Any], None]:
        def hook(gradients: Any) -> None:
            with self.noted():
                if gradients[place] is not None:
                    self._pass().given[name] = self.copy(gradients[place])

        return hook

    def _taken(self, places: list[tuple[int, str]], own: bool) -> Callable[[Any, Any], None]:
        """own: a Function of Python, whose None is a gradient that it does not have. Of torch's nodes it may
        be one that this pass does not want."""
        def hook(gradients: Any, _: Any) -> None:
            with self.noted():
                found = self._pass().gradients
                for place, name in places:
                    if gradients[place] is None:
                        if own:
                            found.setdefault(name, None)
                        continue
                    part = self.copy(gradients[place].to(self.wanted[name][1]))
                    found[name] = part if found.get(name) is None else found[name] + part

        return hook

    def _pass(self) -> Pass:
        """That which runs; the engine calls back at its end."""
        with self.lock:
            if self.now is None:
                self.now = Pass()
                torch_module().autograd.Variable._execution_engine.queue_callback(self._end)
            return self.now

    def _end(self) -> None:
        with self.noted():
            with self.lock:
                done, self.now = self.now, None
            if done is None or not done.given:
                return
            done.absent = tuple(name for name in self.wanted
                                if name not in self.reached or done.gradients.get(name, self) is None)
            for name in done.absent:
                shape, kind = self.wanted[name]
                done.gradients[name] = torch_module().zeros(shape, dtype=kind)
            self.finished(done)


def _nodes_of(roots: list[Any], edges: Mapping[Any, str],
              begin: int) -> Iterator[tuple[Any, list[tuple[int, str]]]]:
    """The nodes of a call that hand a gradient to an input: (node, [(its place there, name)])."""
    seen, stack = set(), list(roots)
    while stack:
        node = stack.pop()
        if node in seen or node._sequence_nr() < begin:
            continue
        seen.add(node)
        places = []
        for place, edge in enumerate(node.next_functions):
            if edge in edges:
                places.append((place, edges[edge]))
            elif edge[0] is not None:
                stack.append(edge[0])
        if places:
            yield node, places

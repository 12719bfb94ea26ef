# SPDX-License-Identifier: Apache-2.0
"""Recording the calls of a function: an engine's own tests become tests against the oracle without a
change to them.

A row (_recorded.py) says how the arguments of one public function are those of the schema. While a
function is recorded, every module that holds it under its name holds a wrapper instead, which copies
what goes in before the call (states that are updated in place included), calls the function, and
judges or stores what came out. It raises nothing into the caller, and changes nothing that is computed
there. Whoever keeps the function elsewhere (in an instance, in a closure) calls it unrecorded: the list of
calls says how many were seen. Blocks of one function may overlap in any order, in threads too: each sees all
calls, and with the last of them the modules hold the function itself again.
"""

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._autograd import backward_call, check_backward
from ._calls import Call, check_options
from ._followed import Followed, Pass, sequence_number
from ._recorded import Row, holder_of, reads_others, require_function, row_of, shown, signature_of
from ._seen import Calls, Recorded, copied, is_backward
from ._words import check_contract


@contextmanager
def record(function: Callable[..., Any], *, row: Row | None = None, judge: bool = True,
           keep: str | os.PathLike[str] | None = None, allow_unjudged: bool = False, gradients: bool = False,
           backward_contract: str | Mapping[str, Any] | None = None, **options: Any) -> Iterator[Calls]:
    """Records the calls of a function in the block.

        with goldenrule.record(modeling_qwen3_next.torch_chunk_gated_delta_rule) as calls:
            model(**batch)
        assert calls.passed, calls.reports

    judge=False: do not judge them, only keep them; keep=DIR: store each as a capture; other options
    are those of goldenrule.judge. row: what its arguments mean, for a function that goldenrule does
    not know, or a known one's row (goldenrule.row_of) with other arguments beside (Row.replace).

        with goldenrule.record(modeling_qwen3_next.torch_chunk_gated_delta_rule, gradients=True) as calls:
            model(**batch).loss.backward()

    gradients=True: a backward pass that reaches a call in the block is a call of the list as well, of the
    operation's backward one: the gradients of the tensors that the call was given, of as many as the pass asks
    for. One that autograd has none of is judged as zeros. backward_contract: theirs.

    The function's caller sees no difference: nothing is raised into it. A call that the row cannot
    describe, or that cannot be judged, is recorded with its `reason`, and the end of the block raises
    ValueError with how many there were and why, unless allow_unjudged. Arguments that the function takes
    in its ** and does not read are left out; the call's `notes` name them.

    Raises ValueError at once for an unknown function, for one whose parameters are not those of the release of its
    row, and for a contract that cannot judge its calls; TypeError for what is no function or an unknown option.
    """
    require_function(function)
    check_options(options)
    row = row_of(function) if row is None else row
    row.check(function)
    check_contract(options.get("contract"), row.op)
    if gradients:
        check_backward(row.op, backward_contract)
    given, function = function, _on_top(function)
    looked = _Looked(function, row, judge, keep, options, gradients, backward_contract)

    @functools.wraps(function)
    def recorded_function(*args: Any, **kwargs: Any) -> Any:
        if looked.closed:
            return function(*args, **kwargs)
        before = looked.before(args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            looked.raised(error)
            raise
        looked.after(before, result)
        return result

    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    if compiler is not None:  # a compiled caller leaves its graph for the call
        recorded_function = compiler.disable(recorded_function)
    calls = looked.calls
    calls.function = recorded_function
    with _in_place_of((given, function), recorded_function, looked):
        yield calls
    if calls.unjudged and not allow_unjudged:
        raise ValueError(f"{row.function}: {calls!r}")


@dataclass
class _Before:
    """What was seen of a call before it ran."""

    recorded: Recorded
    arguments: Mapping[str, Any] = field(default_factory=dict)
    copies: Mapping[str, Any] = field(default_factory=dict)
    begin: int | None = None  # autograd's number of the next node; None: gradients are not recorded


class _Looked:
    """Looks at calls from both sides; what goes wrong in looking is written into the call's record."""

    def __init__(self, function: Callable[..., Any], row: Row, judge: bool,
                 keep: str | os.PathLike[str] | None, options: Mapping[str, Any], gradients: bool,
                 backward_contract: str | Mapping[str, Any] | None) -> None:
        self.function, self.row, self.judge, self.options = function, row, judge, options
        self.folder = None if keep is None else Path(keep)
        self.reads_others = reads_others(function)
        self.calls = Calls()
        self.calls.gradients = gradients
        self.backward_contract = backward_contract
        self.closed = False  # the block has ended: nobody looks at what comes
        self.lock = threading.Lock()

    def before(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Before:
        seen = _Before(Recorded())
        with _noted(seen.recorded):
            if _is_capturing((*args, *kwargs.values())):
                raise ValueError("a CUDA graph is being captured, into which no copy may go")
            arguments, others = _arguments(self.function, args, kwargs)
            unread = [] if self.reads_others else [name for name in others if not self.row.knows(name)]
            seen.recorded.notes = tuple(f"{name}={shown(others[name])} is not read by {self.row.function}"
                                        for name in unread if others[name] is not None)
            seen.arguments = {name: value for name, value in (arguments | others).items()
                              if name not in unread}
            seen.copies = {name: copied(value) for name, value in seen.arguments.items()}
            if self.calls.gradients and "torch" in sys.modules:
                seen.begin = sequence_number()
        return seen

    def after(self, seen: _Before, result: Any) -> None:
        recorded = seen.recorded
        with self.lock:
            self.calls.append(recorded)
            number = len(self.calls)
        if recorded.reason:
            return
        with _noted(recorded):
            refusal = self.row.refuses(seen.arguments)
            if refusal:
                raise ValueError(refusal)
            written = {name: copied(seen.arguments.get(name)) for name in self.row.written}
            recorded.call = self.row.call(seen.copies, copied(_results(result)), written)
            self._keep(recorded, number)
            if self.judge:
                recorded.report = recorded.call.judge(**{"only": self.row.only(seen.copies),
                                                         **self.options})
        if seen.begin is not None and recorded.call is not None:
            with self._of_backward():
                self._follow(seen, seen.begin, recorded.call, result)

    def raised(self, error: BaseException) -> None:
        """The function gave no result: there is nothing to judge."""
        with self.lock:
            self.calls.raised += (type(error).__name__,)

    def _keep(self, recorded: Recorded, number: int) -> None:
        if self.folder is None or recorded.call is None:
            return
        what = "_backward" if is_backward(recorded.call) else ""
        file = self.folder / f"{self.function.__name__}{what}_{number}.h5"
        file.parent.mkdir(parents=True, exist_ok=True)
        recorded.call.save(file)
        recorded.file = file

    def _follow(self, seen: _Before, begin: int, forward: Call, result: Any) -> None:
        """The tensors of the call that are arguments of the function, not what its row makes of them."""
        given = [value for value in seen.arguments.values() if hasattr(value, "requires_grad")]
        inputs = {name: value for name, value in self.row.meaning(seen.arguments).inputs.items()
                  if any(value is each for each in given)}
        outputs = {name: value for name, value in zip(self.row.outputs, self.row.returned(_results(result)))
                   if name in ("o", "final_state")}
        Followed(inputs, outputs, begin, self._of_backward, copied,
                 lambda done: self._backward(forward, done))

    def _backward(self, forward: Call, done: Pass) -> None:
        """At the end of a backward pass that went through the call."""
        if self.closed:
            return
        recorded = Recorded(notes=tuple(f"{name}: autograd has no gradient (None)" for name in done.absent))
        with self.lock:
            self.calls.append(recorded)
            number = len(self.calls)
        with _noted(recorded):
            recorded.call = backward_call(forward, done.given, done.gradients, self.row.backward_contract)
            self._keep(recorded, number)
            if self.judge:
                options = {name: value for name, value in self.options.items()
                           if name not in ("only", "contract")}
                recorded.report = recorded.call.judge(only=tuple(recorded.call.outputs), contract=self.backward_contract, **options)

    @contextmanager
    def _of_backward(self) -> Iterator[None]:
        """What goes wrong in a hook is a record of its own, and nothing is raised into the engine."""
        recorded = Recorded()
        with _noted(recorded):
            yield
        if recorded.reason and not self.closed:
            with self.lock:
                self.calls.append(recorded)


@contextmanager
def _noted(recorded: Recorded) -> Iterator[None]:
    """An error is the reason why the call is not judged, and ends here; who interrupts goes on. Modes of the
    host, which see or change every operation of torch, take no part in looking."""
    try:
        with ExitStack() as stack:
            torch = sys.modules.get("torch")
            if hasattr(torch, "_C"):
                stack.enter_context(torch._C.DisableTorchFunction())
                stack.enter_context(torch.utils._python_dispatch._disable_current_modes())
            yield
    except BaseException as error:
        plain = isinstance(error, ValueError) and str(error)
        recorded.reason = str(error) if plain else f"{type(error).__name__}: {error}"
        if not isinstance(error, Exception):
            raise


def _arguments(function: Callable[..., Any], args: tuple[Any, ...],
               kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Name to value with the defaults, and what ** takes beside them."""
    bound = signature_of(function).bind(*args, **kwargs)
    bound.apply_defaults()
    named, others = dict(bound.arguments), {}
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            others = named.pop(name)
    return named, others


@contextmanager
def _in_place_of(functions: tuple[Callable[..., Any], ...], recorded_function: Callable[..., Any],
                 looked: _Looked) -> Iterator[None]:
    """Modules hold the wrapper in the block."""
    recorded_function._goldenrule_looked = looked  # type: ignore[attr-defined]
    places = [(namespace, name, each) for each in set(functions) for namespace, name in _places(each)]
    for namespace, name, _ in places:
        setattr(namespace, name, recorded_function)
    try:
        yield
    finally:
        looked.closed = True
        for namespace, name, held in places:
            if getattr(namespace, name, None) is recorded_function:
                setattr(namespace, name, _without_closed(held))


def _places(function: Callable[..., Any]) -> list[tuple[Any, str]]:
    """The modules that hold the function under its own name, or the class that a method is of."""
    name, holder = function.__name__, holder_of(function)
    if holder:
        return [(getattr(sys.modules[function.__module__], holder), name)]
    return [(module, name) for module in list(sys.modules.values())
            if getattr(module, "__dict__", {}).get(name) is function]


def _looked_by(function: Callable[..., Any]) -> _Looked | None:
    """Of the wrapper of a block; none for another function, also for one that took over its attributes."""
    looked = getattr(function, "_goldenrule_looked", None)
    return looked if looked is not None and looked.calls.function is function else None


def _without_closed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function beneath the wrappers of blocks that have ended."""
    while (looked := _looked_by(function)) is not None and looked.closed:
        function = looked.function
    return function


def _on_top(function: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper that a function's own module holds in its place while another block records it."""
    held = inner = getattr(sys.modules.get(function.__module__), function.__name__, None)
    while (looked := _looked_by(inner)) is not None:
        inner = looked.function
        if inner is function:
            return held
    return function


def _is_capturing(values: tuple[Any, ...]) -> bool:
    if not any(getattr(value, "is_cuda", False) is True for value in values):
        return False
    return bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def _results(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)

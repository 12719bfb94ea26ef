# SPDX-License-Identifier: Apache-2.0
"""Recording the calls of a function: an engine's own tests become tests against the oracle without a
change to them.

A row (_recorded.py) says how the arguments of one public function are those of the schema. While a
function is recorded, every module that holds it under its name holds a wrapper instead, which copies
what goes in before the call (states that are updated in place included), calls the function, and
judges or stores what came out. It raises nothing into the caller, and changes nothing that is computed
there. Whoever keeps the function elsewhere (in an instance, in a closure) calls it unrecorded: the list of
calls says how many were seen.
"""

import functools
import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._calls import Call
from ._recorded import Row, holder_of, reads_others, row_of, shown, signature_of
from ._report import Report


@dataclass
class Recorded:
    """One call: what was recorded, its report where it was judged, its file where it was kept."""

    call: Call | None = None
    report: Report | None = None
    file: Path | None = None
    reason: str = ""  # why it was not judged
    notes: tuple[str, ...] = ()  # arguments that were left out, as the function does not read them


class Calls(list[Recorded]):
    """The calls in their order; printed, how many had which verdict. `function` is the wrapper, for
    whoever holds the function itself."""

    function: Callable[..., Any]

    @property
    def reports(self) -> list[Report]:
        return [recorded.report for recorded in self if recorded.report is not None]

    @property
    def unjudged(self) -> list[Recorded]:
        """Those with a reason why they were not judged."""
        return [recorded for recorded in self if recorded.reason]

    @property
    def passed(self) -> bool:
        """Whether there were calls, each could be judged, and all that were judged pass."""
        return (len(self) > 0 and not self.unjudged
                and all(report.passed for report in self.reports))

    def __repr__(self) -> str:
        counts = Counter(report.answer for report in self.reports)
        counts.update(f"not judged, because {recorded.reason}" for recorded in self.unjudged)
        said = "".join(f", {count} {what}" for what, count in counts.items())
        if not self:
            said = (": a module's name of the function was not called; a renamed or local import keeps the "
                    "original, and `calls.function` is the recorded one")
        return f"{len(self)} call{'' if len(self) == 1 else 's'}{said}"


@contextmanager
def record(function: Callable[..., Any], *, row: Row | None = None, judge: bool = True,
           keep: str | os.PathLike[str] | None = None, allow_unjudged: bool = False,
           **options: Any) -> Iterator[Calls]:
    """Records the calls of a function in the block.

        with goldenrule.record(modeling_qwen3_next.torch_chunk_gated_delta_rule) as calls:
            model(**batch)
        assert calls.passed, calls.reports

    judge=False: do not judge them, only keep them; keep=DIR: store each as a capture; other options
    are those of goldenrule.judge. row: what its arguments mean, for a function that goldenrule does
    not know, or a known one's row (goldenrule.row_of) with other arguments beside (Row.replace).

    The function's caller sees no difference: nothing is raised into it. A call that the row cannot
    describe, or that cannot be judged, is recorded with its `reason`, and the end of the block raises
    ValueError with how many there were and why, unless allow_unjudged. Arguments that the function takes
    in its ** and does not read are left out; the call's `notes` name them.

    Raises ValueError at once for an unknown function, and for one whose parameters are not those of the
    release that its row was made from.
    """
    row = row_of(function) if row is None else row
    row.check(function)
    looked = _Looked(function, row, judge, keep, options)
    calls = looked.calls

    @functools.wraps(function)
    def recorded_function(*args: Any, **kwargs: Any) -> Any:
        before = looked.before(args, kwargs)
        result = function(*args, **kwargs)
        looked.after(before, result)
        return result

    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    if compiler is not None:  # a compiled caller leaves its graph for the call
        recorded_function = compiler.disable(recorded_function)
    calls.function = recorded_function
    places = _places(function)
    for namespace, name in places:
        setattr(namespace, name, recorded_function)
    try:
        yield calls
    finally:
        for namespace, name in places:
            if getattr(namespace, name, None) is recorded_function:
                setattr(namespace, name, function)
    if calls.unjudged and not allow_unjudged:
        raise ValueError(f"{row.function}: {calls!r}")


@dataclass
class _Before:
    """What was seen of a call before it ran."""

    recorded: Recorded
    arguments: Mapping[str, Any] = field(default_factory=dict)
    copies: Mapping[str, Any] = field(default_factory=dict)


class _Looked:
    """Looks at calls from both sides; what goes wrong in looking is written into the call's record."""

    def __init__(self, function: Callable[..., Any], row: Row, judge: bool,
                 keep: str | os.PathLike[str] | None, options: Mapping[str, Any]) -> None:
        self.function, self.row, self.judge, self.options = function, row, judge, options
        self.folder = None if keep is None else Path(keep)
        self.reads_others = reads_others(function)
        self.calls = Calls()
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
            seen.copies = {name: _copy(value) for name, value in seen.arguments.items()}
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
            written = {name: _copy(seen.arguments.get(name)) for name in self.row.written}
            recorded.call = self.row.call(seen.copies, _copied_result(result), written)
            if self.folder is not None:
                file = self.folder / f"{self.function.__name__}_{number}.h5"
                file.parent.mkdir(parents=True, exist_ok=True)
                recorded.call.save(file)
                recorded.file = file
            if self.judge:
                recorded.report = recorded.call.judge(**{"only": self.row.only(seen.copies),
                                                         **self.options})


@contextmanager
def _noted(recorded: Recorded) -> Iterator[None]:
    """An error is the reason why the call is not judged, and ends here; who interrupts goes on."""
    try:
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


def _places(function: Callable[..., Any]) -> list[tuple[Any, str]]:
    """The modules that hold the function under its own name, or the class that a method is of."""
    name, holder = function.__name__, holder_of(function)
    if holder:
        return [(getattr(sys.modules[function.__module__], holder), name)]
    return [(module, name) for module in list(sys.modules.values())
            if getattr(module, "__dict__", {}).get(name) is function]


def _copy(value: Any) -> Any:
    """A tensor on the host that nobody else writes to, tuples of them; other values as they are."""
    if type(value) is tuple:
        return tuple(_copy(each) for each in value)
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        return value.detach().to("cpu", copy=True)
    return value.copy() if hasattr(value, "__array_interface__") else value


def _is_capturing(values: tuple[Any, ...]) -> bool:
    if not any(getattr(value, "is_cuda", False) is True for value in values):
        return False
    return bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def _copied_result(result: Any) -> tuple[Any, ...]:
    results = result if isinstance(result, tuple) else (result,)
    return tuple(_copy(value) for value in results)

# SPDX-License-Identifier: Apache-2.0
"""Recording the calls of a function: an engine's own tests become tests against the oracle without a
change to them.

A row (_recorded.py) says how the arguments of one public function are those of the schema. While a
function is recorded, every module that holds it under its name holds a wrapper instead, which copies
what goes in before the call (states that are updated in place included), calls the function, and
judges or stores what came out. Whoever keeps the function elsewhere (in an instance, in a closure)
calls it unrecorded: the list of calls says how many were seen.
"""

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._calls import Call
from ._recorded import Row, holder_of, known_row, signature_of
from ._report import Report


@dataclass
class Recorded:
    """One call: what was recorded, its report where it was judged, its file where it was kept."""

    call: Call
    report: Report | None = None
    file: Path | None = None


class Calls(list[Recorded]):
    """The calls in their order. `function` is the wrapper, for whoever holds the function itself;
    `refusals`: why calls were not judged, also where the caller has caught what was raised."""

    function: Callable[..., Any]

    def __init__(self) -> None:
        super().__init__()
        self.refusals: list[BaseException] = []

    @property
    def reports(self) -> list[Report]:
        return [recorded.report for recorded in self if recorded.report is not None]

    @property
    def passed(self) -> bool:
        """Whether there were calls, none was refused, and all that were judged pass."""
        return (len(self) > 0 and not self.refusals
                and all(report.passed for report in self.reports))


@contextmanager
def record(function: Callable[..., Any], *, row: Row | None = None, judge: bool = True,
           keep: str | os.PathLike[str] | None = None, **options: Any) -> Iterator[Calls]:
    """Records the calls of a function in the block.

        with goldenrule.record(modeling_qwen3_next.torch_chunk_gated_delta_rule) as calls:
            model(**batch)
        for recorded in calls:
            print(recorded.report)

    judge=False: do not judge them, only keep them; keep=DIR: store each as a capture; other options
    are those of goldenrule.judge. row: what its arguments mean, for a function that goldenrule does
    not know.

    Raises ValueError for an unknown function, and for one whose parameters are not those of the
    release that its row was made from. A call that the row cannot describe raises ValueError too,
    after the function has returned.
    """
    row = known_row(function) if row is None else row
    row.check(function)
    calls = Calls()
    lock = threading.Lock()

    @functools.wraps(function)
    def recorded_function(*args: Any, **kwargs: Any) -> Any:
        arguments = _arguments(function, args, kwargs)
        with _noted(calls.refusals):
            before = {name: _copy(value) for name, value in arguments.items()}
        result = function(*args, **kwargs)
        with _noted(calls.refusals):
            look_at(arguments, before, result)
        return result

    def look_at(arguments: Mapping[str, Any], before: Mapping[str, Any], result: Any) -> None:
        after = {name: _copy(arguments.get(name)) for name in row.written}
        recorded = Recorded(_described(row, arguments, before, result, after))
        with lock:
            calls.append(recorded)
            number = len(calls)
        if keep is not None:
            recorded.file = Path(keep) / f"{function.__name__}_{number}.h5"
            recorded.file.parent.mkdir(parents=True, exist_ok=True)
            recorded.call.save(recorded.file)
        if judge:
            recorded.report = recorded.call.judge(**{"only": row.only(before), **options})

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


def _described(row: Row, arguments: Mapping[str, Any], before: Mapping[str, Any], result: Any,
               after: Mapping[str, Any]) -> Call:
    try:
        refusal = row.refuses(arguments)
        if not refusal:
            return row.call(before, _copied_result(result), after)
    except (AttributeError, IndexError, KeyError) as error:  # tensors in a form that the row has not
        refusal = f"{type(error).__name__}: {error}"
    raise ValueError(f"{row.function}: {refusal}: this call cannot be judged")


@contextmanager
def _noted(refusals: list[BaseException]) -> Iterator[None]:
    """An engine may catch what is raised here, and go on with another kernel."""
    try:
        yield
    except BaseException as error:
        refusals.append(error)
        raise


def _arguments(function: Callable[..., Any], args: tuple[Any, ...],
               kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Name to value with the defaults; what **kwargs takes stands beside the others."""
    bound = signature_of(function).bind(*args, **kwargs)
    bound.apply_defaults()
    named = dict(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named.update(named.pop(name))
    return named


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


def _copied_result(result: Any) -> tuple[Any, ...]:
    results = result if isinstance(result, tuple) else (result,)
    return tuple(_copy(value) for value in results)

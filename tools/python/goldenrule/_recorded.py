# SPDX-License-Identifier: Apache-2.0
"""What the arguments of public functions mean: a row of the table (_rows.py) for each function."""

import ast
import dis
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._calls import Call


GIVEN = object()  # of a condition: anything but None


@dataclass(frozen=True)
class When:
    """What flags of a function change, where all of them have these values."""

    arguments: Mapping[str, Any]
    convention: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)  # instead of those of the row
    attribute: str = ""  # of the convention, which the last of the arguments gives
    op: str = ""  # instead of that of the row
    mode: str = ""  # instead of those of the row

    def holds(self, arguments: Mapping[str, Any]) -> bool:
        return all(_has(arguments.get(name), value) for name, value in self.arguments.items())


def _anything(arguments: Mapping[str, Any]) -> str:
    """Refuses nothing."""
    return ""


@dataclass(frozen=True)
class Meaning:
    """What arguments say, in the words of the schema."""

    op: str
    mode: str
    convention: dict[str, Any]
    inputs: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One function: its parameters, and which input or convention each of them is.

    Parameters that are neither must have the value of `fixed`, or change nothing (`ignored`). It is read in
    both directions: `call` is the call that arguments are, `arguments` those that a call needs.
    """

    function: str  # "package.module.function"; a module of * stands for any
    op: str
    parameters: tuple[str, ...]  # of the release that the row was made from, in their order
    inputs: Mapping[str, str]  # parameter -> input
    outputs: tuple[str, ...]  # the values that it returns, in their order
    convention: Mapping[str, Any] = field(default_factory=dict)
    norm: str = ""  # the flag that asks for the norm of q and k; empty: qk_l2norm of the convention
    scale: str = ""  # the parameter that scales q
    unscaled: tuple[float, ...] = ()  # its values that mean K^-0.5, as None does
    when: tuple[When, ...] = ()  # later ones count
    written: Mapping[str, str] = field(default_factory=dict)  # parameter -> output that it holds after
    room: Mapping[str, str] = field(default_factory=dict)  # parameter -> output that is returned in it
    asks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # output -> flags that ask for it
    modes: tuple[str, str] = ("decode", "prefill")  # of one token per sequence, and of more
    arranged: Callable[[Mapping[str, Any]], dict[str, Any]] = dict  # arguments in the schema's shapes
    taken: Callable[[Mapping[str, Any]], dict[str, Any]] = dict  # inputs of the schema in the function's
    returned: Callable[[tuple[Any, ...]], tuple[Any, ...]] = tuple  # results in the schema's shapes
    refuses: Callable[[Mapping[str, Any]], str] = _anything  # why a call cannot be judged
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # the values it may have
    ignored: tuple[str, ...] = ()
    contract: str = ""  # what its calls claim: honoured where it is tighter than mode and types imply
    backward_contract: str = ""  # the same of gradients that autograd takes through it
    release: str = ""

    def replace(self, **changes: Any) -> "Row":
        """This row with some of its fields changed: row.replace(ignored=(*row.ignored, "verbose")).
        Raises TypeError for a field that there is not."""
        return replace(self, **changes)

    def check(self, function: Callable[..., Any]) -> None:
        """Raises ValueError where the function's parameters are others."""
        actual = tuple(signature_of(function).parameters)
        if actual != self.parameters:
            raise ValueError(f"{_name(function)}: expected the parameters of {self.release or 'its row'}"
                             f" ({', '.join(self.parameters)}), actual {', '.join(actual)}")

    def call(self, arguments: Mapping[str, Any], results: tuple[Any, ...],
             after: Mapping[str, Any] | None = None) -> "Call":
        """The call that these arguments and results are; `after`: what it has written into."""
        from ._calls import Call  # here: a row says what it says where there is no library, too

        meant = self.meaning(arguments)
        return Call(op=meant.op, mode=meant.mode, convention=meant.convention, inputs=meant.inputs,
                    outputs=self.named(arguments, results, after, meant.inputs), contract=self.contract,
                    source=f"{self.function}{f', {self.release}' if self.release else ''}")

    def arguments(self, call: Any, *, room: Mapping[str, Any] | None = None,
                  wants: tuple[str, ...] = ("final_state",), **more: Any) -> dict[str, Any]:
        """The arguments by which the function computes a call, which has op, convention and inputs.

        room: output -> the tensor that it goes to, for those that the row has a parameter for; wants: the
        outputs that are asked for by a flag; more: arguments that change nothing of what is computed.
        Raises ValueError where the function cannot be told the call, and says what it lacks.
        """
        from ._inverse import arguments_of

        return arguments_of(self, call, room or {}, wants, more)

    def meaning(self, arguments: Mapping[str, Any]) -> Meaning:
        """What these arguments say."""
        self._refuse_others(arguments)
        arguments = self.arranged(arguments)
        op, mode = self.op, ""
        convention, names = dict(self.convention), dict(self.inputs)
        for when in self.when:
            if when.holds(arguments):
                op, mode = when.op or op, when.mode or mode
                convention.update(when.convention)
                names.update(when.inputs)
                if when.attribute:
                    convention[when.attribute] = arguments[list(when.arguments)[-1]]
        if self.norm and not arguments[self.norm]:
            convention["qk_l2norm"] = "none"
        scale = arguments[self.scale] if self.scale else None
        if scale is not None and float(scale) not in self.unscaled:
            convention["scale"] = float(scale)
        inputs = {name: arguments[parameter] for parameter, name in names.items()
                  if arguments.get(parameter) is not None}
        one = inputs["q"].shape[1] == 1 and "cu_seqlens" not in inputs
        return Meaning(op, mode or self.modes[0 if one else 1], convention, inputs)

    def named(self, arguments: Mapping[str, Any], results: tuple[Any, ...],
              after: Mapping[str, Any] | None, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by their names: of what it returned, and of what it has written into."""
        unasked = self._unasked(arguments)
        outputs = {name: value for name, value in zip(self.outputs, self.returned(results))
                   if value is not None and name not in unasked}
        outputs |= {self.written[name]: value for name, value in (after or {}).items()
                    if name in self.written and value is not None
                    and self.written[name] not in unasked}
        # By row, a buffer may have more rows and steps than the call.
        if "intermediate_states" in outputs and "intermediate_state_indices" not in inputs:
            rows, steps = inputs["q"].shape[:2]
            outputs["intermediate_states"] = outputs["intermediate_states"][:rows, :steps]
        return outputs

    def only(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The outputs that the call asks for, where it asks for fewer than there are."""
        unasked = self._unasked(arguments)
        outputs = (*self.outputs, *self.written.values())
        return tuple(name for name in outputs if name not in unasked) if unasked else ()

    def _unasked(self, arguments: Mapping[str, Any]) -> set[str]:
        return {output for output, flags in self.asks.items()
                if not any(arguments.get(flag) for flag in flags)}

    def knows(self, name: str) -> bool:
        """Whether the row says what this argument means, or that it changes nothing."""
        return (name in (*self.inputs, *self.ignored, *self.written, *self.room, *self.fixed, self.norm,
                         self.scale)
                or any(name in flags for flags in self.asks.values())
                or any(name in when.arguments or name in when.inputs for when in self.when))

    def _refuse_others(self, arguments: Mapping[str, Any]) -> None:
        for name, value in arguments.items():
            values = self.fixed.get(name, () if self.knows(name) else (None,))
            if values and not any(_same(value, one) for one in values):
                raise ValueError(f"{name}={shown(value)} is not in its row")


def shown(value: Any) -> str:
    """In one line."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a tensor of {value.dtype} {tuple(value.shape)}"
    return " ".join(repr(value).split())


def _has(value: Any, wanted: Any) -> bool:
    """Flags are true as the function takes them: 1 and numpy.True_ are, too."""
    if wanted is GIVEN:
        return value is not None
    return bool(value) if wanted is True else _same(value, wanted)


def _same(value: Any, other: Any) -> bool:
    plain = isinstance(value, (bool, int, float, str))  # of a tensor, == is a tensor
    return value is other or (plain and value == other)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Of a builtin without one, what the first line of its documentation says."""
    try:
        return inspect.signature(function)
    except ValueError:
        head, _, _ = (function.__doc__ or "").partition("->")
        try:
            (said,) = ast.parse(f"def {head.strip()}: pass").body
        except (SyntaxError, ValueError):
            raise ValueError(f"{_name(function)}: expected a function whose parameters can be "
                             "read, actual a builtin that does not say them") from None
    assert isinstance(said, ast.FunctionDef)
    names = [each.arg for each in said.args.args]
    defaults = [ast.literal_eval(each) for each in said.args.defaults]
    given = dict(zip(reversed(names), reversed(defaults)))
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([
        inspect.Parameter(name, kind, default=given.get(name, inspect.Parameter.empty))
        for name in names])


def ran_instead(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function of another package that runs where this one is called; none: its own code.

    transformers wraps its torch functions so that they run flash-linear-attention's kernels where that
    is installed: what wraps holds the chosen one as `implementation`.
    """
    own = inspect.unwrap(function)
    while inspect.isfunction(function):
        chosen = inspect.getclosurevars(function).nonlocals.get("implementation", own)
        if callable(chosen) and inspect.unwrap(chosen) is not own:
            return inspect.unwrap(chosen)
        function = getattr(function, "__wrapped__", None)
    return None


def require_function(function: Any) -> None:
    """Raises TypeError for what has no name by which modules hold it."""
    if not callable(function) or not hasattr(function, "__qualname__"):
        wrapped = getattr(function, "func", None)
        raise TypeError(f"expected a function or a method of a class, actual {shown(function)}"
                        + (f": {_name(wrapped)} is the function in it" if hasattr(wrapped, "__qualname__") else ""))


def holder_of(function: Callable[..., Any]) -> str:
    """The class that a method is of, by its name in its module; empty for a function."""
    holder, _, _ = function.__qualname__.rpartition(".")
    return "" if "<locals>" in holder or inspect.isbuiltin(function) else holder


def _name(function: Callable[..., Any]) -> str:
    holder = holder_of(function)
    return f"{function.__module__}.{f'{holder}.' if holder else ''}{function.__name__}"


def _is(row: Row, function: Callable[..., Any]) -> bool:
    module, _, name = row.function.rpartition(".")
    head, star, tail = module.partition("*")
    actual = _name(function).rpartition(".")[0]
    fits = actual.startswith(head) and actual.endswith(tail) if star else actual == module
    return name == function.__name__ and fits


def _shipped_row(function: Callable[..., Any]) -> Row:
    from ._rows import ROWS

    for row in ROWS:
        if _is(row, function):
            return row
    raise ValueError(f"expected one of {', '.join(row.function for row in ROWS)}, or a row of "
                     f"your own, actual {_name(function)}")


def row_of(function: Callable[..., Any]) -> Row:
    """The row of a public function, which Row.replace makes another of for goldenrule.record(row=..).

    A row's claim is of the code that it was made of: where another package's function runs instead, it is
    that one's own. Raises ValueError, which names the functions that there are, for another.
    """
    require_function(function)
    row, other = _shipped_row(function), ran_instead(function)
    if other is None:
        return row
    name = _name(other) if inspect.isroutine(other) else type(other).__name__
    try:
        claimed = _shipped_row(other) if inspect.isroutine(other) else None
    except ValueError:
        claimed = None
    return row.replace(contract=claimed.contract if claimed else "",
                       backward_contract=claimed.backward_contract if claimed else "",
                       release=f"{row.release}, which ran {name}")


def reads_others(function: Callable[..., Any]) -> bool:
    """Whether the code that runs can read what its ** takes: its name stands in it, or all names do."""
    code = getattr(ran_instead(function) or inspect.unwrap(function), "__code__", None)
    if code is None or not code.co_flags & inspect.CO_VARKEYWORDS:
        return True
    others = code.co_varnames[code.co_argcount + code.co_kwonlyargcount
                              + bool(code.co_flags & inspect.CO_VARARGS)]
    named = (each.argval for each in dis.get_instructions(code))
    return (any(others == name or (isinstance(name, tuple) and others in name) for name in named)
            or not {"locals", "vars", "eval", "exec"}.isdisjoint(code.co_names))

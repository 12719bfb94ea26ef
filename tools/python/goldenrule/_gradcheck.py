# SPDX-License-Identifier: Apache-2.0
"""Judging the backward pass of a function under torch's autograd.

The function is called as its user calls it, on fresh leaves. Its outputs are judged as a forward call, and the
gradients of the leaves as a call of the backward operation of the same inputs. A row of the recorder's table
says what the arguments of a public function mean; of any other function the caller says it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _capture
from ._autograd import backward_call, fresh, gradients, is_floating, outputs_of, plain_autograd, torch_module
from ._calls import Call, mapping
from ._recorded import Row, reads_others, row_of, shown
from ._recorder import _arguments
from ._report import Report
from ._seen import copied
from ._words import check_contract

_RETURNED = ("o", "final_state")


@dataclass(frozen=True, repr=False)
class Gradients:
    """What a function's forward and backward pass are judged to be; true where both pass."""

    function: str
    forward: Report
    backward: Report
    forward_call: Call  # save(path) keeps it as a capture
    backward_call: Call
    unwritten: tuple[str, ...] = ()  # gradients that autograd has none of, though they are not zero
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.forward.passed and self.backward.passed and not self.unwritten

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        lines = [repr(self)]
        lines += [f"  unwritten: {name}: autograd has no gradient (None), and the exact one is not zero"
                  for name in self.unwritten]
        lines += [f"  note: {note}" for note in self.notes]
        if not self.forward.passed and not self.backward.passed:
            lines.append("  look at the forward pass first")
        return "\n".join([*lines, str(self.forward), str(self.backward)])

    def __repr__(self) -> str:
        return (f"gradients of {self.function}: {'passed' if self.passed else 'not passed'}, forward "
                f"{self.forward.answer}, backward {self.backward.answer}")


def gradcheck(function: Callable[..., Any], inputs: Mapping[str, Any], do: Any,
              dfinal_state: Any = None, *, op: str | None = None,
              convention: Mapping[str, Any] | None = None, row: Row | None = None,
              contract: str | Mapping[str, Any] | None = None,
              backward_contract: str | Mapping[str, Any] | None = None,
              only: str | Iterable[str] = (), **options: Any) -> Gradients:
    """Calls function(**inputs), and judges what it returns and its gradients.

        found = goldenrule.gradcheck(chunk_kda, dict(q=q, k=k, v=v, g=g, beta=beta,
                                                     output_final_state=True), do, dstate)
        assert found, found

    function: one that the recorder knows, or `row` describes, with its own arguments by name. Any other
    needs op ("gated_delta_rule", "kda") and convention, and takes inputs by the names of the schema. It
    returns o, (o, final_state), or a mapping of them.
    inputs: torch tensors of any device and strides, and flags. Every floating-point tensor that is an input
    of the rule is copied into a fresh leaf; what requires gradients already, and its .grad, stay as they are.
    do: gradient by o, of its shape [B,T,HV,V] or [total,HV,V], type and device; expanded or strided ones are
    handed on as they are. None: that by o is zero, and dfinal_state is needed.
    dfinal_state: gradient by final_state; None where nobody uses it, or where there is none.
    contract, backward_contract: of the two passes (default: what the row claims, else by mode and types);
    only=("dq",): gradients to judge, where the others are not wanted; other options are those of
    goldenrule.judge, for both.

    A gradient that autograd has none of (None) is judged as zeros, and is `unwritten` where the exact one is
    not zero. Autocast is off during the call, which a note says.

    Raises ImportError without torch; ValueError for a function that is not known, a function without a
    backward pass, gradients that do not fit the outputs, and a contract of another family; TypeError for what is
    no torch tensor.
    """
    seen = _Seen(function, mapping("inputs", inputs), op, convention, row)
    rule = seen.forward({}).op
    check_contract(contract, rule)
    check_contract(backward_contract, f"{rule}_backward", "backward_contract")
    notes = list(seen.notes)
    given = {name: gradient for name, gradient in zip(_RETURNED, (do, dfinal_state))
             if gradient is not None}
    if not given:
        raise ValueError("do: expected the gradient by o, or dfinal_state, actual None of both")
    for name, gradient in given.items():
        if not is_floating(gradient):
            raise TypeError(f"{'do' if name == 'o' else 'dfinal_state'}: expected a torch tensor of a "
                            f"floating-point type, actual {shown(gradient)}")
    kept = {name: copied(gradient) for name, gradient in given.items()}
    with plain_autograd((*seen.arguments.values(), *given.values()), notes):
        leaves = seen.leaves()
        outputs = outputs_of(function(**seen.called), seen.returned)
        found = gradients(outputs, given, leaves, notes)
    forward = seen.forward({name: copied(value) for name, value in outputs.items()})
    backward = backward_call(forward, kept, {
        name: torch_module().zeros(leaf.shape, dtype=leaf.dtype) if found[name] is None else copied(found[name])
        for name, leaf in leaves.items()}, seen.row.backward_contract if seen.row else "")
    only = (only,) if isinstance(only, str) else tuple(only)
    absent = [f"d{name}" for name, each in found.items() if each is None]
    unwritten = _not_zero(backward, [name for name in absent if not only or name in only],
                          backward_contract)
    return Gradients(seen.name, forward.judge(contract=contract, only=seen.only(forward), **options),
                     backward.judge(contract=backward_contract, only=only, **options), forward, backward,
                     unwritten, tuple(notes))


@dataclass
class _Seen:
    """A function, its arguments, and what these are in the schema."""

    function: Callable[..., Any]
    given: dict[str, Any]
    op: str | None
    convention: Mapping[str, Any] | None
    row: Row | None
    called: dict[str, Any] = field(default_factory=dict)  # what the function is called with
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch_module()
        self.name = getattr(self.function, "__name__", type(self.function).__name__)
        if self.row is None and self.op is None:
            self.row = _known(self.function)
        elif self.row is not None and self.op is not None:
            raise ValueError("op: expected none beside a row, which says it, actual "
                             f"{self.op!r}")
        if self.row is None:
            if self.convention is None:
                raise ValueError("convention: expected that of the function, {} where all of it is the "
                                 "default, actual none")
            self.arguments, self.returned = self.given, _RETURNED
        else:
            if self.convention is not None:
                raise ValueError("convention: expected none, since the row of the function says it")
            self.row.check(self.function)
            self.returned = self.row.outputs
            self.arguments = self._of_row(self.row)
        self.copies = {name: copied(value) for name, value in self.arguments.items()}
        self._refuse_others(self._call(self.copies, {}))

    def _of_row(self, row: Row) -> dict[str, Any]:
        """Name to value with the defaults, without what the function takes and does not read."""
        if row.op not in _capture.OPS:
            raise ValueError(f"{row.function}: expected a function of {' or '.join(_capture.OPS)}, which have a "
                             f"backward operation, actual one of {row.op}")
        arguments, others = _arguments(self.function, (), self.given)
        reads = reads_others(self.function)
        for name, value in others.items():
            if reads or row.knows(name):
                arguments[name] = value
            elif value is not None:
                self.notes.append(f"{name}={shown(value)} is not read by {row.function}")
        refusal = row.refuses(arguments)
        if refusal:
            raise ValueError(refusal)
        return arguments

    def _call(self, arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> Call:
        """The forward call of these arguments; outputs by the names of the schema."""
        if self.row is None:
            return Call(op=self.op or "", mode="prefill", convention=dict(self.convention or {}),
                        inputs={name: value for name, value in arguments.items() if value is not None},
                        outputs=dict(outputs), source=self.name)
        return self.row.call(arguments, tuple(outputs.get(name) for name in self.row.outputs))

    def _refuse_others(self, call: Call) -> None:
        """What has no gradients: other operations, pools of states, tensors of another library."""
        if call.op not in _capture.OPS:
            raise ValueError(f"op: expected {' or '.join(_capture.OPS)}, actual {call.op!r}")
        known = [name for name in _capture.BACKWARD_INPUTS["prefill"] if name not in ("do", "dfinal_state")]
        for name, value in call.inputs.items():
            if name not in known:
                raise ValueError(f"inputs: expected only {', '.join(known)} where gradients are judged, actual "
                                 f"{name!r}")
            own = any(value is each for each in self.copies.values())
            if name != "cu_seqlens" and own and not is_floating(value):
                raise TypeError(f"inputs {name}: expected a torch tensor of a floating-point type, actual "
                                f"{shown(value)}")

    def leaves(self) -> dict[str, Any]:
        """{name of the schema: leaf}; the function is then called with them."""
        self.called = {name: fresh(self.arguments[name]) for name in self.given if name in self.arguments}
        now = {**self.arguments, **self.called}
        mine = [value for name, value in self.called.items() if is_floating(value)]
        found = {name: value for name, value in self._call(now, {}).inputs.items()
                 if any(value is each for each in mine)}
        for needed in ("q", "k", "v"):
            if needed not in found:
                raise ValueError(f"inputs {needed}: expected one of the function's arguments, actual one that its "
                                 "row makes of others: give a function around it, with op and convention")
        for leaf in found.values():
            leaf.requires_grad_()
        self.called |= {name: value for name, value in self.given.items() if name not in self.called}
        return found

    def forward(self, outputs: Mapping[str, Any]) -> Call:
        return self._call(self.copies, outputs)

    def only(self, forward: Call) -> tuple[str, ...]:
        if self.row is not None:
            return self.row.only(self.copies)
        return () if "final_state" in forward.outputs else ("o",)


def _known(function: Callable[..., Any]) -> Row:
    try:
        return row_of(function)
    except (ValueError, AttributeError) as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise ValueError(f"op: expected that of {name} (\"gated_delta_rule\" or \"kda\"), with its convention, "
                         "since the recorder has no row of it") from error


def _not_zero(backward: Call, names: list[str],
              contract: str | Mapping[str, Any] | None) -> tuple[str, ...]:
    """Those of the gradients whose exact values are not all zero."""
    if not names:
        return ()
    exact = backward.expected(contract=contract)
    return tuple(name for name in names if (abs(exact[name].golden) > exact[name].radius).any())

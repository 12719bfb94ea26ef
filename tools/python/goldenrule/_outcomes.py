# SPDX-License-Identifier: Apache-2.0
"""What relations found over a kernel (_invariance.py): of an output, of a relation, of the call."""

from collections.abc import Mapping
from dataclasses import dataclass

from ._report import numbered


@dataclass(frozen=True)
class Departure:
    """An output for which a relation does not hold: how many elements, the first of them, and the worst."""

    tensor: str
    violations: int
    first: dict[str, int]
    worst: dict[str, int]
    value: float  # the worst: in the call as it was given
    other: float  # and in the other one
    error: float
    bound: float  # 0: the same bits

    def __str__(self) -> str:
        return (f"{self.tensor}: {numbered(self.violations, 'element')} {'differs' if self.violations == 1 else 'differ'}, "
                f"the first at {_place(self.first)}; the worst at {_place(self.worst)}: {self.value:.9g}, in the other call {self.other:.9g}"
                + (f", {self.error:.3g} apart where {self.bound:.3g} is granted" if self.bound > 0 else ""))


@dataclass(frozen=True)
class Outcome:
    """One relation: what was asked for, what was done, and what it found."""

    over: str
    relation: str
    meaning: str
    applies: bool  # False: it says nothing of this call
    bits: bool  # True: the same bits were demanded, False: what is granted
    compared: int  # elements
    bound_to_signal: float  # from 1 on the budgets are as large as the values, and the relation says nothing
    departures: tuple[Departure, ...]

    @property
    def verdict(self) -> str:
        """HOLDS, BROKEN, or SAYS NOTHING."""
        if self.departures:
            return "BROKEN"
        return "HOLDS" if self.compared > 0 and self.bound_to_signal < 1.0 else "SAYS NOTHING"

    def __str__(self) -> str:
        if not self.applies:
            return f"{self.over}: {self.verdict}: the call has nothing of which it speaks ({self.meaning})"
        demand = "the same bits" if self.bits else "within what is granted"
        return "\n".join([f"{self.over}: {self.verdict}: {self.meaning}: {demand}, "
                          f"{numbered(self.compared, 'element')}",
                          *(f"    {departure}" for departure in self.departures)])


@dataclass(frozen=True)
class Invariance:
    """What all relations say of one kernel and call. It is true where none is broken and one holds."""

    call: str
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        verdicts = [outcome.verdict for outcome in self.outcomes]
        return "BROKEN" not in verdicts and "HOLDS" in verdicts

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return "\n".join([f"invariance of {self.call}: {'holds' if self.passed else 'does not hold'}",
                          *(f"  {line}" for outcome in self.outcomes for line in str(outcome).split("\n"))])


def _place(coordinates: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {index}" for name, index in coordinates.items())

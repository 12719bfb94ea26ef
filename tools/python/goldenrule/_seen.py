# SPDX-License-Identifier: Apache-2.0
"""What the recorder has seen: the calls of a block, each with its report or the reason why it has none."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._calls import Call
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
    gradients: bool = False  # whether backward passes are recorded, too
    raised: tuple[str, ...] = ()  # the exceptions of calls that returned nothing, by type: they are not in the list

    @property
    def reports(self) -> list[Report]:
        return [recorded.report for recorded in self if recorded.report is not None]

    @property
    def unjudged(self) -> list[Recorded]:
        """Those with a reason why they were not judged."""
        return [recorded for recorded in self if recorded.reason]

    @property
    def passed(self) -> bool:
        """Whether there were calls, with gradients=True backward passes as well, each could be judged, and all
        that were judged pass."""
        return (len(self) > 0 and not self.unjudged and not self._lacks_gradients
                and all(report.passed for report in self.reports))

    @property
    def _lacks_gradients(self) -> bool:
        return self.gradients and not any(is_backward(recorded.call) for recorded in self)

    def __repr__(self) -> str:
        counts = Counter(report.answer for report in self.reports)
        counts.update(f"not judged, because {recorded.reason}" for recorded in self.unjudged)
        said = "".join(f", {count} {what}" for what, count in counts.items())
        said += "".join(f", {count} more raised {what}" for what, count in Counter(self.raised).items())
        if not self and not self.raised:
            said = (": a module's name of the function was not called; a renamed or local import keeps the "
                    "original, and `calls.function` is the recorded one")
        elif self._lacks_gradients:
            said += ": no backward pass was seen in the block"
        return f"{len(self)} call{'' if len(self) == 1 else 's'}{said}"


def is_backward(call: Call | None) -> bool:
    return call is not None and call.op.endswith("_backward")


def copied(value: Any) -> Any:
    """A tensor on the host that nobody else writes to, tuples of them; other values as they are."""
    if type(value) is tuple:
        return tuple(copied(each) for each in value)
    torch = sys.modules.get("torch")
    if isinstance(value, getattr(torch, "Tensor", ())):  # by torch's methods: those of a subclass may say anything
        return torch.Tensor.to(torch.Tensor.detach(value), "cpu", copy=True)
    return value.copy() if hasattr(value, "__array_interface__") else value

# SPDX-License-Identifier: Apache-2.0
"""What a judgement says: the text and the JSON of `goldenrule check`, with names for its parts."""

import html
import json
from dataclasses import dataclass
from typing import Any

from . import _core

PASSES = ("EXACT", "WITHIN_BUDGET")


@dataclass(frozen=True)
class Worst:
    """The element with the largest ratio of error to budget."""

    index: tuple[int, ...]
    coordinates: dict[str, int]
    value: float
    golden: float
    error: float
    budget: float
    ulp: float

    def __str__(self) -> str:
        return ", ".join(f"{name} {index}" for name, index in self.coordinates.items())


@dataclass(frozen=True)
class TensorReport:
    """One output. `data` has everything that `goldenrule check --json` writes about it."""

    name: str
    verdict: str
    reason: str
    worst: Worst | None
    out_of_budget: int
    compared: int
    max_ratio: float
    data: dict[str, Any]


@dataclass(frozen=True)
class BadStage:
    """The first bad stage, and the worst element of its first bad chunk."""

    name: str
    worst: Worst
    data: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name} at {self.worst}"


@dataclass(frozen=True)
class Explanation:
    """A known mistake, or a pair, and whether it reproduces every wrong element."""

    name: str
    explains: bool
    data: dict[str, Any]

    @property
    def where(self) -> list[str]:
        """Of each mistake the blocks in which it is made, in words; empty: the whole call."""
        return self.data["where"]


class Report:
    """The verdict of one call. str() is what `goldenrule check` prints; it is true where it passes."""

    def __init__(self, text: str, json_text: str) -> None:
        self._text = text
        self._json = json_text
        (self.data,) = json.loads(json_text)["cases"]

    @property
    def verdict(self) -> str:
        """EXACT, WITHIN_BUDGET, OUT_OF_BUDGET, MISTRUSTED, SKIPPED or ERROR."""
        return self.data["verdict"]

    @property
    def passed(self) -> bool:
        return self.verdict in PASSES

    @property
    def reason(self) -> str:
        """Why there is no verdict, or why a pass says nothing; else empty."""
        return self.data["reason"]

    @property
    def likely_cause(self) -> str:
        """What in the inputs makes budgets that say nothing, such as keys without a norm; else empty."""
        return self.data["likely_cause"]

    @property
    def answer(self) -> str:
        """The verdict and what is said of it: "SKIPPED: o: no element to compare"."""
        cause = f"likely cause: {self.likely_cause}" if self.likely_cause else ""
        said = "; ".join(words for words in (self.reason, cause) if words)
        return f"{self.verdict}: {said}" if said else self.verdict

    @property
    def contract(self) -> str:
        return self.data["contract"]

    @property
    def tensors(self) -> dict[str, TensorReport]:
        return {data["name"]: _tensor(data) for data in self.data["tensors"]}

    @property
    def stages(self) -> dict[str, TensorReport]:
        """The stages that the kernel gave, in the order of the computation; no part of the verdict."""
        return {data["name"]: _tensor(data) for data in self.data.get("stages", {}).get("judged", [])}

    @property
    def first_bad_stage(self) -> BadStage | None:
        """The first stage that the contract does not explain, and where."""
        first = self.data.get("stages", {}).get("first_bad")
        if first is None:
            return None
        worst = _worst(first["worst"])
        assert worst is not None
        return BadStage(first["name"], worst, first)

    @property
    def worst(self) -> Worst | None:
        """The worst element of the worst output."""
        judged = [tensor for tensor in self.tensors.values() if tensor.worst]
        return max(judged, key=lambda tensor: tensor.max_ratio).worst if judged else None

    @property
    def pattern(self) -> str:
        """Where the wrong elements lie; empty where none is."""
        return self.data.get("pattern", "")

    @property
    def found(self) -> list[str]:
        """What the kernel does, found by search and not in a table: every sentence reproduces the rows it names."""
        return self.data.get("found", [])

    @property
    def explanations(self) -> list[Explanation]:
        """Known mistakes that reproduce the failure, the best first, and near misses after them."""
        return [Explanation(row["mistake"], row["explains"], row)
                for row in self.data.get("explanation", [])]

    @property
    def of_capture(self) -> list[str]:
        """What the caller may have done wrong instead of the kernel, what accounts for it first."""
        return [row["name"] for row in self.data.get("of_capture", [])]

    @property
    def explanation(self) -> str:
        """The mistake of the kernel that explains the failure; empty where none does."""
        return next((found.name for found in self.explanations if found.explains), "")

    def to_json(self) -> str:
        """What `goldenrule check --json` writes."""
        return self._json

    def to_html(self) -> str:
        """The page that `goldenrule check --html` writes: one file that needs nothing else."""
        return _core.page(self._json)

    def _repr_html_(self) -> str:
        """For notebooks: the page in a frame of its own, so that no style leaves it."""
        return (f'<iframe srcdoc="{html.escape(self.to_html())}" sandbox '
                'style="width: 100%; height: 40em; border: 0"></iframe>')

    def __str__(self) -> str:
        return self._text.rstrip("\n")

    def __repr__(self) -> str:
        return f"<goldenrule.Report {self.answer}>"

    def __bool__(self) -> bool:
        return self.passed


def numbered(n: int, noun: str) -> str:
    """"1 element", "2 elements"."""
    return f"{n} {noun}" + ("" if n == 1 else "s")


def _tensor(data: dict[str, Any]) -> TensorReport:
    return TensorReport(name=data["name"], verdict=data["verdict"], reason=data["reason"],
                        worst=_worst(data["worst"]), out_of_budget=data["out_of_budget"],
                        compared=data["compared"], max_ratio=float(data["max_ratio"]), data=data)


def _worst(data: dict[str, Any] | None) -> Worst | None:
    if data is None:
        return None
    numbers = {name: float(data[name]) for name in ("value", "golden", "error", "budget", "ulp")}
    return Worst(index=tuple(data["index"]), coordinates=data["coordinates"], **numbers)

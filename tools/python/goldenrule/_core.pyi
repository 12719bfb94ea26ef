# SPDX-License-Identifier: Apache-2.0
"""The extension; extension/module.cpp says what each function does."""

from typing import Any

import numpy as np

__version__: str

class Asked:
    name: str
    contract: str
    precision: str
    only: list[str]
    terms: list[str]
    explain: bool
    blind: bool
    explain_seconds: float | None
    def __init__(self) -> None: ...

def schema() -> str: ...
def table(what: str, /) -> str: ...
def contract(name: str, /) -> str: ...
def judge(call: dict[str, Any], asked: Asked, /) -> tuple[str, str]: ...
def expected(
    call: dict[str, Any], asked: Asked, /
) -> tuple[
    str,
    int,
    dict[str, tuple[tuple[int, ...], np.ndarray, np.ndarray, np.ndarray | None]],
]: ...
def cases(what: str, /) -> list[dict[str, Any]]: ...
def make_call(line: str, /) -> dict[str, Any]: ...
def write(path: bytes, call: dict[str, Any], /) -> None: ...
def read(path: bytes, /) -> tuple[dict[str, Any], dict[str, Any]]: ...

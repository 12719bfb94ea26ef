# SPDX-License-Identifier: Apache-2.0
"""Texts and contracts that a caller gives, checked before a function runs for them."""

import json
import re
from collections.abc import Mapping
from typing import Any

from . import _core


def text_of(what: str, text: Any) -> str:
    """Text that the library can take: a str that has a form in UTF-8, all of which it reads."""
    if not isinstance(text, str):
        raise TypeError(f"{what}: expected a text, actual {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"{what}: expected a text without null characters, actual {text!r}")
    text.encode()  # UnicodeEncodeError is a ValueError
    return text


def contract_text(contract: str | Mapping[str, Any] | None, what: str = "contract") -> str:
    """As the library reads it; empty: what the call implies."""
    if isinstance(contract, Mapping):
        try:
            contract = json.dumps(dict(contract), allow_nan=False, ensure_ascii=False)
        except RecursionError:
            raise ValueError(f"{what}: expected a JSON object, actual one nested too deep") from None
        except (TypeError, ValueError) as error:
            raise type(error)(f"{what}: expected a JSON object: {error}") from None
    return text_of(what, contract) if contract is not None and contract != "" else ""


def check_contract(contract: str | Mapping[str, Any] | None, op: str, what: str = "contract") -> None:
    """Raises ValueError or TypeError, OSError for a file, for what calls of `op` cannot be judged by, before a
    function runs for it; `what` is the caller's argument."""
    text = contract_text(contract, what)
    if not text:
        return
    try:
        _core.contract(text, op)
    except (ValueError, TypeError) as error:
        raise type(error)(re.sub(r"^contract\b", what, str(error))) from None

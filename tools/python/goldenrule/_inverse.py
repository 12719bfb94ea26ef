# SPDX-License-Identifier: Apache-2.0
"""From a call of the schema to the arguments of a public function, by the row that also reads them.

A row has no second table for this direction. What flags to set is found by reading: of the settings that
its conditions name, the fewest are taken whose meaning, as the row itself reads it, is the call's. So no
arguments are handed out that the recorder would read otherwise, and what a row takes apart on the way in
(several tensors in one, a plan in a wrapper) is refused.
"""

import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ._capture import DEFAULTS
from ._recorded import GIVEN, Row, When

_LEFT_OUT, _HOLDS, _DENIED = range(3)
_SLOTS = ("state_indices", "output_state_indices", "ssm_state_indices")


class _Unfit(Exception):
    """Why a setting is not one for this call."""


def arguments_of(row: Row, call: Any, room: Mapping[str, Any], wants: tuple[str, ...],
                 more: Mapping[str, Any]) -> dict[str, Any]:
    """See Row.arguments."""
    if row.op == "attention":
        raise ValueError(f"{row.function}: expected a function of the delta rule, actual one of attention, "
                         "whose masks and pages a row reads in one direction")
    inputs = row.taken(call.inputs)
    wanted = {"op": call.op, **_read(call.convention, inputs)}
    numbers = {**DEFAULTS, **call.convention}
    shared = {**_flags(row, call, wanted, wants), **_rooms(row, room), **more}
    unknown = [name for name in more if name not in _parameters(row)]
    if unknown:
        raise ValueError(f"{row.function}: expected parameters of {row.release or 'its row'}, actual "
                         f"{unknown[0]}")
    reasons = []
    for settings in _settings(tuple(map(_kind, row.when))):
        try:
            found = {**_placed(row, settings, inputs, numbers), **shared}
            _compare(row, settings, found, wanted, inputs)
        except _Unfit as reason:
            reasons.append(reason)
            continue
        return found
    # The setting that came furthest says it best.
    raise ValueError(f"{row.function}: {max(reasons, key=lambda reason: reason.args[1]).args[0]}")


# What is tried first: numbers are said, flags are left out as far as that can be, and that nothing is said of a
# flag means something only where there is no other way to say it.
_COSTS = {"number": {_HOLDS: 0, _LEFT_OUT: 1}, "flag": {_LEFT_OUT: 0, _HOLDS: 1, _DENIED: 2},
          "nothing": {_LEFT_OUT: 0, _HOLDS: 3}}


def _kind(when: When) -> str:
    values = when.arguments.values()
    return "number" if when.attribute else "nothing" if None in values else "flag"


@lru_cache
def _settings(kinds: tuple[str, ...]) -> list[tuple[int, ...]]:
    """For each condition, whether it is left out, holds, or is denied by a flag of False."""
    return sorted(itertools.product(*(_COSTS[kind] for kind in kinds)), key=lambda settings: sum(
        _COSTS[kind][setting] for kind, setting in zip(kinds, settings)))


def _read(convention: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a call with these inputs reads of a convention, with the defaults."""
    full = {**DEFAULTS, **convention}
    q, v = inputs["q"].shape, inputs["v"].shape
    scale = convention.get("scale")
    full["scale"] = q[-1] ** -0.5 if scale is None else float(scale)
    raw = full["gate"] in ("softplus", "bounded")
    unread = {"l2_eps": full["qk_l2norm"] == "none", "lower_bound": full["gate"] != "bounded",
              "softplus_beta": full["gate"] != "softplus", "softplus_threshold": full["gate"] != "softplus",
              "gate_head": not raw or q[-2] == v[-2], "head_map": q[-2] == v[-2],
              "pad_slot": not any(name in inputs for name in _SLOTS)}
    return {name: value for name, value in full.items() if not unread.get(name)}


def _flags(row: Row, call: Any, wanted: Mapping[str, Any], wants: tuple[str, ...]) -> dict[str, Any]:
    """Norm, scale, and what asks for outputs."""
    flags: dict[str, Any] = {names[0]: output in wants for output, names in row.asks.items()}
    if row.norm:
        flags[row.norm] = wanted["qk_l2norm"] != "none"
    if row.scale and call.convention.get("scale") is not None:
        flags[row.scale] = wanted["scale"]
    return flags


def _rooms(row: Row, room: Mapping[str, Any]) -> dict[str, Any]:
    places = {output: parameter for parameter, output in (*row.written.items(), *row.room.items())}
    for output, tensor in room.items():
        if output not in places and tensor is not None:
            raise ValueError(f"{row.function}: room: expected {' or '.join(places) or 'none'}, actual "
                             f"{output}")
    return {places[output]: tensor for output, tensor in room.items() if output in places}


def _parameters(row: Row) -> set[str]:
    """Those that can be given by their names: what ** takes is what the row says, but names of its own."""
    if "kwargs" not in row.parameters:
        return set(row.parameters)
    return {*row.parameters, *row.ignored, *(row.inputs if row.arranged is dict else ()),
            *(name for when in row.when for name in (*when.arguments, *when.inputs))}


def _placed(row: Row, settings: tuple[int, ...], inputs: Mapping[str, Any],
            numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors under the names that they have with these settings, and the settings."""
    found: dict[str, Any] = {}
    names = dict(row.inputs)
    for when, setting in zip(row.when, settings):
        if setting == _HOLDS:
            found |= dict(_said(when, numbers))
            names.update(when.inputs)
    for when, setting in zip(row.when, settings):
        if setting == _DENIED:
            denied = {name: False for name, value in when.arguments.items() if value is True}
            if set(denied) & set(found):
                raise _Unfit("a flag cannot be both", -1)
            found |= denied
    parameter_of = {name: parameter for parameter, name in names.items()}
    known = _parameters(row)
    # Of what is not given it is said that there is none: some functions have no default for it.
    tensors = itertools.chain(row.inputs, *(when.inputs for when in row.when))
    found |= {name: None for name in tensors if name in row.parameters and name not in found}
    for name, tensor in inputs.items():
        if parameter_of.get(name) not in known:
            raise _Unfit(f"expected inputs that it has a parameter for, actual {name}", 0)
        found[parameter_of[name]] = tensor
    return found


def _said(when: When, numbers: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments with which a condition holds, but tensors and what is left out."""
    for name, value in when.arguments.items():
        if value is GIVEN and when.attribute and name == list(when.arguments)[-1]:
            yield name, numbers[when.attribute]
        elif value is not GIVEN and value is not None:
            yield name, value


def _compare(row: Row, settings: tuple[int, ...], found: Mapping[str, Any],
             wanted: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """Raises where these arguments are not those settings, or the row reads them as another call."""
    absent = {name: row.fixed.get(name, (None,))[0] for name in row.parameters if name != "kwargs"}
    said = {**absent, **found}
    if [when.holds(said) for when in row.when] != [setting == _HOLDS for setting in settings]:
        raise _Unfit("flags that say something else", -1)
    try:
        meant = row.meaning(said)
    except (ValueError, RuntimeError) as error:  # of a shape: numpy's, and torch's
        raise _Unfit(str(error), 0) from error
    actual = {"op": meant.op, **_read(meant.convention, inputs)}
    same = sum(actual.get(name) == value for name, value in wanted.items())
    for name, value in wanted.items():
        if actual.get(name) != value:
            raise _Unfit(f"expected a call of {name}={actual.get(name)}, actual {value}", same)
    lacking = set(inputs) ^ set(meant.inputs)
    if lacking:
        raise _Unfit(f"expected to be told {', '.join(sorted(lacking))}, actual nowhere", same)

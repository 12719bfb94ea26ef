# SPDX-License-Identifier: Apache-2.0
"""Public kernels as the campaign and the benchmarks call them.

How a function is called says its row in the package (goldenrule/_rows.py), by which the recorder reads its
calls; here it is read the other way. Only functions that no package has, of which a recorder cannot know,
have their rows in this file. The package is that of the tree and needs no library: a row needs none.
"""

import dataclasses
import fnmatch
import functools
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import goldenrule_capture

# Where the package is installed, the module that writes captures is a part of it under this name.
sys.modules.setdefault("goldenrule._capture", goldenrule_capture)

from goldenrule._recorded import Row, When  # noqa: E402
from goldenrule._rows import ROWS  # noqa: E402

# No dispatch of flash-linear-attention to other projects' kernels.
FLA_ALONE = {"FLA_FLASH_QLA": "0", "FLA_FLASH_KDA": "0"}

# The file of FlashInfer's benchmarks with SGLang's kernels.
_TOKENS = ("q", "k", "v", "A_log", "a", "dt_bias", "b")
_TRITON = dict(op="gated_delta_rule", outputs=("o", "final_state"), scale="scale", room={"output": "o"})
_TRITON_DECODE = dict(
    **_TRITON, parameters=(*_TOKENS, "state", "scale", "output"),
    inputs={**{name: name for name in _TOKENS}, "state": "initial_state"})
_COPIES = (
    Row("gdn_triton_reference.triton_gdn_decode", **_TRITON_DECODE,
        convention={"state_layout": "kv", "l2_eps": 1e-8}),
    Row("gdn_triton_reference.triton_gdn_decode_pretranspose", **_TRITON_DECODE,
        convention={"state_layout": "vk", "l2_eps": 1e-8}),
    Row("gdn_triton_reference.triton_gdn_mtp", **_TRITON,
        parameters=(*_TOKENS, "initial_state", "initial_state_indices", "scale", "output",
                    "intermediate_states_buffer", "disable_state_update"),
        inputs={**{name: name for name in (*_TOKENS, "initial_state")},
                "initial_state_indices": "state_indices"},
        convention={"state_layout": "vk", "l2_eps": 1e-8},
        written={"intermediate_states_buffer": "intermediate_states"},
        when=tuple(When({"disable_state_update": said}, {"disable_state_update": 1})
                   for said in (True, None))),
)


@dataclasses.dataclass(frozen=True)
class Call:
    """What a kernel is to compute, in the words of the schema."""

    op: str
    convention: dict
    inputs: dict


@dataclasses.dataclass(frozen=True)
class Public:
    """A public function with its row. `named` of its methods: those of Row.arguments."""

    row: Row
    function: object

    def prepared(self, call, **named):
        """The call, ready to be made: nothing is looked up or reshaped in it."""
        return functools.partial(self.function, **self.row.arguments(call, **named))

    def outputs(self, call, **named):
        """Makes the call; its outputs by their names, o in the shape of v."""
        launch = self.prepared(call, **named)
        result = launch()
        results = result if isinstance(result, tuple) else (result,)
        outputs = self.row.named(launch.keywords, results, launch.keywords, call.inputs)
        return {**outputs, "o": outputs["o"].reshape(call.inputs["v"].shape)}


def row_named(name):
    for row in (*ROWS, *_COPIES):
        if fnmatch.fnmatch(name, row.function):
            return row
    raise ValueError(f"expected one of {', '.join(row.function for row in (*ROWS, *_COPIES))}, actual {name}")


def public(name):
    """The function of a row: module and name. Raises what its import raises."""
    module, _, function = name.rpartition(".")
    return Public(row_named(name), getattr(importlib.import_module(module), function))

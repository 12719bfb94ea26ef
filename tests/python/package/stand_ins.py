# SPDX-License-Identifier: Apache-2.0
"""Functions in the place of those that need a GPU: of the same name and parameters, computing by what the
library expects of a case; how a library takes a call and hands out its results is said by the test.
Whether a row says the same as the kernel is seen on a GPU alone."""

import sys
import types

import ml_dtypes
import numpy as np

import goldenrule
from goldenrule._rows import ROWS

# Parameters with these defaults; all others have None where they may be left out.
DEFAULTS = {
    "output_final_state": False, "use_qk_l2norm_in_kernel": False, "use_gate_in_kernel": False,
    "use_beta_sigmoid_in_kernel": False, "allow_neg_eigval": False, "state_v_first": False,
    "safe_gate": False, "disable_recompute": False, "return_intermediate_states": False,
    "use_graph": False, "use_qk_l2norm": True, "cache_replayssm": False, "backend": "auto",
    "checkpoint_every_n_tokens": 0, "use_cp": "auto", "head_first": False, "cache_ring": False,
    "match_cutedsl_decode": False, "gate_domain": "log",
    "inplace_final_state": True}


def row(function):
    (found,) = [row for row in ROWS if row.function == function]
    return found


def nothing(outputs):
    """Spoils nothing."""


def stand_in(function, case, results=None, spoil=nothing):
    """A function of that name and those parameters; returns it with its module. results(function,
    arguments, outputs): what it returns, and writes into its arguments."""
    module, _, name = function.rpartition(".")

    def compute(arguments):
        arguments.update(arguments.pop("kwargs", {}))
        outputs = {n: e.golden.astype(np.float32) for n, e in case.expected().outputs.items()}
        outputs["o"] = outputs["o"].astype(ml_dtypes.bfloat16)
        spoil(outputs)
        return results(function, arguments, outputs)

    parameters = [f"{p}={DEFAULTS.get(p)!r}" if p != "kwargs" else "**kwargs"
                  for p in row(function).parameters]
    scope = {"compute": compute}
    exec(f"def {name}({', '.join(parameters)}):\n    return compute(locals())", scope)
    made = types.ModuleType(module)
    setattr(made, name, scope[name])
    scope[name].__module__ = module
    return made, scope[name]


def recorded(monkeypatch, function, arguments, case, results, **more):
    module, made = stand_in(function, case, results, **more)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with goldenrule.record(made, explain=False) as calls:
        getattr(module, made.__name__)(**arguments)
    return calls

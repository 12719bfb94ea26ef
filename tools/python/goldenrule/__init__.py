# SPDX-License-Identifier: Apache-2.0
"""The arbiter for delta-rule attention kernels, in the process.

    import goldenrule

    report = goldenrule.judge(op="gated_delta_rule", mode="decode",
                              inputs=dict(q=q, k=k, v=v, a=a, b=b, A_log=A_log, dt_bias=dt_bias,
                                          initial_state=before, state_indices=slots),
                              outputs=dict(o=o, final_state=state),
                              convention=dict(state_layout="vk", gate="softplus"))
    print(report)               # what `goldenrule check` prints
    assert report.passed        # EXACT or WITHIN_BUDGET

Tensors are NumPy arrays, torch tensors on any device, or what numpy.asarray takes; bfloat16 is
torch.bfloat16, ml_dtypes.bfloat16, or uint16 or float32 arrays named in bf16=("q", ..). Shapes stand in
the tables of fixtures/README.md, and in `goldenrule.schema()`.

What is imported when `goldenrule` is: nothing but this file. NumPy and the library follow with the
first call.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import trace as trace
    from ._assertion import assert_delta_rule as assert_delta_rule
    from ._assertion import assert_gradients as assert_gradients
    from ._calls import Call as Call
    from ._calls import capture as capture
    from ._calls import checkpoints_at as checkpoints_at
    from ._calls import checkpoints_every as checkpoints_every
    from ._calls import expected as expected
    from ._calls import judge as judge
    from ._calls import read as read
    from ._cases import Case as Case
    from ._cases import cases as cases
    from ._cases import fixture as fixture
    from ._cases import suite as suite
    from ._expected import Expected as Expected
    from ._expected import ExpectedCall as ExpectedCall
    from ._gradcheck import Gradients as Gradients
    from ._gradcheck import gradcheck as gradcheck
    from ._outcomes import Invariance as Invariance
    from ._invariance import invariant as invariant
    from ._invariance import over as over
    from ._recorded import Row as Row
    from ._recorded import row_of as row_of
    from ._recorder import record as record
    from ._report import Report as Report
    from ._tables import contract as contract
    from ._tables import contracts as contracts
    from ._tables import patterns as patterns
    from ._tables import mistakes as mistakes
    from ._tables import schema as schema
    from ._tables import stages as stages
    from ._tables import suites as suites

_MODULE_OF = {
    "assert_delta_rule": "_assertion", "assert_gradients": "_assertion",
    "Call": "_calls", "Expected": "_expected", "ExpectedCall": "_expected", "capture": "_calls",
    "checkpoints_at": "_calls", "checkpoints_every": "_calls", "expected": "_calls",
    "judge": "_calls", "read": "_calls",
    "Case": "_cases", "cases": "_cases", "fixture": "_cases", "suite": "_cases",
    "Gradients": "_gradcheck", "gradcheck": "_gradcheck",
    "Invariance": "_outcomes", "invariant": "_invariance", "over": "_invariance",
    "record": "_recorder", "Row": "_recorded", "row_of": "_recorded",
    "Report": "_report",
    "contract": "_tables", "contracts": "_tables", "patterns": "_tables", "mistakes": "_tables",
    "schema": "_tables", "stages": "_tables", "suites": "_tables",
    "__version__": "_core",
}
_MODULES = ("trace",)
__all__ = [*(name for name in _MODULE_OF if not name.startswith("_")), *_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'goldenrule' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_MODULES})

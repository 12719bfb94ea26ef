# SPDX-License-Identifier: Apache-2.0
"""What a call of another library's function means is looked up from the second call on: by the values of
its options, and by which of its arguments are tensors."""

import pytest

torch = pytest.importorskip("torch")
from test_operators import judged, normal, rows  # noqa: E402

from goldenrule.ops import flashinfer  # noqa: E402
from goldenrule.ops._meaning import Meanings  # noqa: E402

NAME = "flashinfer.gdn_decode.gated_delta_rule_decode_pretranspose"


def test_calls_of_one_function_that_mean_different_things(device):
    pool = normal(5, 2, 32, 64, dtype=torch.float32)
    for more in ({}, dict(use_qk_l2norm=False), dict(scale=0.5), dict(scale=0.25),
                 dict(disable_state_update=True), {}):
        judged(flashinfer.gated_delta_rule_decode_pretranspose, NAME, **rows(1), **more, state=None,
               initial_state=pool.clone(), initial_state_indices=torch.tensor([3, 1]))
        judged(flashinfer.gated_delta_rule_decode_pretranspose, NAME, **rows(1), **more,
               state=pool[:2].clone())


def test_numbers_of_any_value_do_not_pile_up():
    meanings = Meanings(NAME)
    given = dict(rows(1), state=normal(2, 2, 32, 64, dtype=torch.float32), use_qk_l2norm=True)
    for n in range(600):
        assert meanings.of({**given, "scale": 1.0 + n}).options["scale"] == 1.0 + n
    assert len(meanings._known) <= 256

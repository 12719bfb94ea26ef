# SPDX-License-Identifier: Apache-2.0
"""Every peer of the campaign on drawn calls, with a function in the place of its kernel that notes what it is
called with: the row reads that as the call that was drawn. Whether the kernel takes it is seen on a GPU alone."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

TOOLS = Path(__file__).resolve().parents[3] / "tools"
SEEDS = range(6)


@pytest.fixture(scope="module")
def campaign():
    """The modules `peers`, `draw` and `public` of the tools."""
    before, names = list(sys.path), ("peers", "draw", "public", "own", "goldenrule_capture")
    sys.path[:0] = [str(TOOLS / "campaign")]
    import draw
    import peers

    yield peers, draw, peers.public
    sys.path[:] = before
    for name in names:
        sys.modules.pop(name, None)


def run(campaign, monkeypatch, name, seed):
    """The drawn call, the outputs, and [(row, arguments)] of what was called."""
    peers, draw, public = campaign
    peer, seen = peers.PEERS[name], []

    def noting(function):
        row = public.row_named(function)

        def call(**arguments):
            seen.append((row, arguments))
            o = torch.ones_like(next(arguments[name] for name, of in row.inputs.items() if of == "v"))
            buffer = arguments.get("intermediate_states_buffer")
            if buffer is not None:
                buffer.fill_(3)
            pools = [arguments.get(name) for name in ("initial_state", "state")]
            return o, next((pool for pool in pools if pool is not None), torch.zeros(1))

        return public.Public(row, call)

    monkeypatch.setattr(public, "public", noting)
    call = draw.draw_call(peer.name, seed, peer.variants, peer.limits)
    return call, peer.run(noting(peer.function), call, dict(call.inputs)), seen


def names(campaign):
    return [name for name, peer in campaign[0].PEERS.items() if peer.function]


def test_a_drawn_call_is_told_to_every_peer(campaign, monkeypatch):
    defaults = sys.modules["goldenrule._capture"].DEFAULTS
    assert len(names(campaign)) == 24
    for name in names(campaign):
        for seed in SEEDS:
            call, outputs, seen = run(campaign, monkeypatch, name, seed)
            assert outputs["o"].shape == call.inputs["v"].shape and "final_state" in outputs, call.line
            sequences = len(call.inputs["cu_seqlens"]) - 1 if "cu_seqlens" in call.inputs else 0
            assert len(seen) in (1, sequences), call.line
            for row, arguments in seen:
                fixed = {parameter: values[0] for parameter, values in row.fixed.items()}
                absent = {parameter: None for parameter in row.parameters if parameter != "kwargs"}
                meant = row.meaning({**absent, **fixed, **arguments})
                assert meant.op == call.op, call.line
                for attribute in ("gate", "beta", "state_layout", "qk_l2norm", "disable_state_update"):
                    said = {**defaults, **call.convention}[attribute]
                    assert {**defaults, **meant.convention}[attribute] == said, (call.line, attribute)
                made = {"cu_seqlens"} & (set(call.inputs) ^ set(meant.inputs))
                assert set(call.inputs) ^ set(meant.inputs) == made, call.line


def test_states_after_each_token_are_those_that_were_kept(campaign, monkeypatch):
    for name in ("flashinfer_mtp", "flashinfer_mtp_bf16", "sglang_mtp"):
        kept = 0
        for seed in SEEDS:
            call, outputs, _ = run(campaign, monkeypatch, name, seed)
            assert ("intermediate_states" in outputs) == bool(call.variant["kept"]), call.line
            if call.variant["kept"]:
                kept += 1
                rows = (*call.inputs["q"].shape[:2], *call.inputs["initial_state"].shape[1:])
                assert outputs["intermediate_states"].shape == rows, call.line
                assert bool((outputs["intermediate_states"] == 3).all()), call.line
        assert kept, name

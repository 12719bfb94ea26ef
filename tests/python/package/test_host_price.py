# SPDX-License-Identifier: Apache-2.0
"""tools/bench_gpu/host_price.py, as far as it needs no device: which rows its table has, and what it says in
the place of figures."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def host_price():
    path = Path(__file__).resolve().parents[3] / "tools" / "bench_gpu" / "host_price.py"
    spec = importlib.util.spec_from_file_location("host_price", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_call_of_another_package_follows_ours(host_price, monkeypatch):
    monkeypatch.setattr(host_price, "operators", lambda x: {"ops.decode": None})
    for calls in ("flashinfer_calls", "fla_calls"):
        monkeypatch.setattr(host_price, calls, lambda x, name=calls: {name: lambda find: find("part")})
    monkeypatch.setattr(host_price, "module_of", lambda package, part: f"{package}.{part}")
    rows = list(host_price.rows_of(None))
    assert [row[:2] for row in rows] == [
        ("goldenrule.ops", "ops.decode"),
        ("goldenrule.ops.flashinfer", "flashinfer_calls"), ("flashinfer", "flashinfer_calls"),
        ("goldenrule.ops.fla", "fla_calls"), ("fla", "fla_calls")]
    made = [make() for _, _, make in rows[1:]]
    assert [getattr(each, "__name__", each) for each in made] == [
        "goldenrule.ops.flashinfer", "flashinfer.part", "goldenrule.ops.fla", "fla.part"]


def test_what_stands_in_the_place_of_figures(host_price):
    def absent():
        return host_price.module_of("no_such_package", "part")

    def broken():
        raise RuntimeError("no kernel image\nfor this device")

    assert host_price.figures("no_such_package", absent, 2) == "not installed |"
    assert host_price.figures("other", absent, 2) == "No module named 'no_such_package' |"
    assert host_price.figures("other", broken, 2) == "RuntimeError: no kernel image |"

# SPDX-License-Identifier: Apache-2.0
import contextlib
import shutil
import sys
from pathlib import Path

import machines
import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def program():
    """The program of the wheel."""
    found = shutil.which("goldenrule", path=str(Path(sys.executable).parent))
    assert found, "the wheel has no program"
    return found


@contextlib.contextmanager
def _machine(name):
    try:
        made = machines.ALL[name]()
    except machines.Absent as why:
        pytest.skip(f"{name}: {why}")
    with made:
        yield made


@pytest.fixture(params=machines.ALL)
def machine(request):
    """Each of the machines on which the operators run, or a skip with the reason."""
    with _machine(request.param) as made:
        yield made


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Those of torch: the name of the device, on which new tensors lie."""
    with _machine(request.param) as made, made.torch.device(request.param):
        yield request.param

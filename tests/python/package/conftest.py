# SPDX-License-Identifier: Apache-2.0
import shutil
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def program():
    """The program of the wheel."""
    found = shutil.which("goldenrule", path=str(Path(sys.executable).parent))
    assert found, "the wheel has no program"
    return found

# SPDX-License-Identifier: Apache-2.0
"""What goldenrule adds to pytest, for assert_delta_rule in any test:

    --goldenrule-capture DIR   keep each failing call as a capture for `goldenrule check`
    --goldenrule-report FILE   write the reports of all calls as JSON, with the test of each, for
                               `goldenrule merge FILE.. --html PAGE`

Works under pytest-xdist: what a worker has judged travels with pytest's own reports of its tests.
"""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_NAME = "goldenrule"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup(_NAME)
    group.addoption("--goldenrule-capture", metavar="DIR", default=None,
                    help="keep each call that fails assert_delta_rule as a capture in DIR")
    group.addoption("--goldenrule-report", metavar="FILE", default=None,
                    help="write the reports of all calls of assert_delta_rule as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Keeper(config), "goldenrule_keeper")


class _Keeper:
    """What the tests of this process have judged; where tests run elsewhere, what they report."""

    def __init__(self, config: pytest.Config) -> None:
        self.folder = config.getoption("--goldenrule-capture")
        self.file = config.getoption("--goldenrule-report")
        self.is_worker = hasattr(config, "workerinput")
        if self.file and not Path(self.file).absolute().parent.is_dir():
            raise pytest.UsageError(f"--goldenrule-report: expected a file in a folder that exists, actual {self.file}")
        self.test = ""
        self.judged: list[dict[str, Any]] = []  # since the last report of the test that runs
        self.kept = self.judged_before = 0  # of its calls
        self.cases: list[dict[str, Any]] = []
        self.watching = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.test, self.judged, self.kept, self.judged_before = item.nodeid, [], 0, 0
        if not self.watching and (self.folder or self.file):
            from ._assertion import observers

            observers.append(self._keep)
            self.watching = True
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        report.goldenrule, self.judged = self.judged, []
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.cases += getattr(report, _NAME, [])

    def pytest_sessionfinish(self) -> None:
        if self.watching:
            from ._assertion import observers

            observers.remove(self._keep)
            self.watching = False
        if self.file and not self.is_worker:
            text = json.dumps({"runs": [_run(self.cases)], "cases": self.cases}, indent=1)
            partial = Path(f"{self.file}.partial")
            partial.write_text(text + "\n")
            os.replace(partial, self.file)

    def _keep(self, call: Any, report: Any) -> str:
        self.judged_before += 1
        number = f" [{self.judged_before}]" if self.judged_before > 1 else ""
        row = {"test": self.test, "case": call.case, **report.data, "file": self.test + number,
               "replay": f"pytest {shlex.quote(self.test)}"}
        note = ""
        if self.folder and report.verdict in ("OUT_OF_BUDGET", "MISTRUSTED", "ERROR"):
            path = self._path()
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                call.save(path)
            except OSError as error:  # the failure of the kernel is what the test says
                note = f"  not kept: {error}"
            else:
                row["capture"] = str(path)
                note = f"  kept: goldenrule check {path}"
        self.judged.append(row)
        return note

    def _path(self) -> Path:
        """Of the test's name, and distinct for distinct names."""
        readable = re.sub(r"[^A-Za-z0-9_.-]+", "_", self.test).strip("_")[-120:]
        digest = hashlib.sha256(self.test.encode()).hexdigest()[:8]
        self.kept += 1
        return Path(self.folder) / f"{readable}_{digest}_{self.kept}.h5"


def _run(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """What the report covers, as `goldenrule merge` asks: a whole run, named after its items."""
    from . import _core

    items = json.dumps([case["file"] for case in cases])
    return {"command": "check", "version": _core.__version__,
            "digest": hashlib.sha256(items.encode()).hexdigest(), "items": len(cases), "shards": 1,
            "have": [1]}

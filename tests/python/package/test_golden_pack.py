# SPDX-License-Identifier: Apache-2.0
"""tools/golden_pack and the judge_pack inside a pack: a changed verdict, name or capture is seen."""

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import goldenrule
import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"
RULE = """# a comment
gated_delta_rule | decode | op=gdn mode=decode B=2 H=2 HV=4 K=16 V=16 | head_map=tiled | name
draft_acceptance | greedy | op=draft_acceptance mode=greedy B=3 S=3 Z=7 page_size=4 pattern=A | draft_crop=new_start | name
gated_delta_rule | mtp | op=gdn mode=mtp B=1 T=2 H=1 HV=1 K=8 V=8 | scale=1.0 | verdict
"""


def run(*command):
    done = subprocess.run([sys.executable, "-B", *map(str, command)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pack")
    (folder / "rule.txt").write_text(RULE)
    code, text = run(TOOLS / "golden_pack", folder / "pack", "--rule", folder / "rule.txt")
    assert code == 0, text
    return folder / "pack"


@pytest.fixture
def pack(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "pack"))


def expected(pack):
    return json.loads((pack / "expected.json").read_text())


def test_a_pack_is_as_expected(pack):
    rows = {row["file"]: (row["verdict"], row["name"]) for row in expected(pack)}
    assert len(rows) == 6
    assert rows["gated_delta_rule_decode_right.h5"] == ("EXACT", "")
    assert rows["gated_delta_rule_decode_wrong.h5"] == ("OUT_OF_BUDGET", "head_tiled")
    assert rows["gated_delta_rule_mtp_wrong.h5"] == ("OUT_OF_BUDGET", None)
    code, text = run(pack / "judge_pack")
    assert code == 0, text
    assert "6 captures" in text and "0 different" in text


@pytest.mark.parametrize("key, value", [("verdict", "WITHIN_BUDGET"), ("name", "no_delta"), ("mode", "prefill")])
def test_another_expectation_is_seen(pack, key, value):
    rows = expected(pack)
    at = next(row for row in rows if row["file"] == "gated_delta_rule_decode_wrong.h5")
    before, at[key] = at[key], value
    (pack / "expected.json").write_text(json.dumps(rows))
    code, text = run(pack / "judge_pack")
    assert code == 1
    assert f"gated_delta_rule_decode_wrong.h5: {key}: expected {value!r}, actual {before!r}" in text
    assert "1 different" in text


def test_the_pack_is_judged_in_ten_seconds(tmp_path):
    """Of all cores together, so by the clock, too, on a machine that is free."""
    code, text = run(TOOLS / "golden_pack", tmp_path / "pack")
    assert code == 0, text
    rows = expected(tmp_path / "pack")
    assert {(row["op"], row["mode"]) for row in rows} == {
        (operation["name"], mode) for operation in goldenrule.schema()["operations"] for mode in operation["modes"]}
    assert sum(path.stat().st_size for path in (tmp_path / "pack").iterdir()) <= 20_000_000
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code, text = run(tmp_path / "pack/judge_pack")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert code == 0, text
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds <= 10.0, f"{seconds:.1f} s of CPU\n{text}"


def test_another_capture_is_seen(pack):
    shutil.copy(pack / "gated_delta_rule_decode_wrong.h5", pack / "gated_delta_rule_decode_right.h5")
    code, text = run(pack / "judge_pack")
    assert code == 1
    assert "verdict: expected 'EXACT', actual 'OUT_OF_BUDGET'" in text
    (pack / "gated_delta_rule_decode_right.h5").write_bytes(b"no file of HDF5")
    code, text = run(pack / "judge_pack")
    assert code == 1 and "ERROR" in text
    (pack / "gated_delta_rule_decode_right.h5").unlink()
    code, text = run(pack / "judge_pack")
    assert code == 2 and "gated_delta_rule_decode_right.h5" in text


LINE = "gated_delta_rule | decode | op=gdn mode=decode B=1 H=1 HV=1 K=8 V=8"
WRONG_CAPTURE = "public/cpu/sab_initial_state_is_final.h5"


@pytest.mark.parametrize("row, words", [
    ("gated_delta_rule | decode", "expected operation | mode | right | wrong | name or verdict"),
    (f"{LINE} | head_map=tiled | both", "expected operation | mode | right | wrong | name or verdict"),
    ("kda | decode | op=gdn mode=decode B=1 H=1 HV=1 K=8 V=8 | scale=1.0 | name", "expected a call of this operation"),
    (f"{LINE} | kda_mtp_h200.h5 | name", "expected a call of this operation"),
    (f"{LINE} | nothing=1 | name", "expected a capture FILE.h5 or a convention"),
    (f"{LINE} | none.h5 | name", "none.h5"),
    (f"{LINE} | head_map=tiled | name", "expected a wrong call"),
    (f"gated_delta_rule | decode | {WRONG_CAPTURE} | scale=1.0 | name", "expected a right call"),
    ("kda_backward | prefill | public/backward/fla_kda_slow.h5 | public/backward/fla_kda_strong.h5 | name",
     "expected a wrong call that has a name")])
def test_a_rule_that_makes_no_pack_is_refused(row, words, tmp_path):
    (tmp_path / "rule.txt").write_text(row + "\n")
    code, text = run(TOOLS / "golden_pack", tmp_path / "pack", "--rule", tmp_path / "rule.txt")
    assert code == 2 and words in text


def test_a_folder_with_files_is_left(pack):
    code, text = run(TOOLS / "golden_pack", pack)
    assert code == 2 and "expected an empty folder" in text

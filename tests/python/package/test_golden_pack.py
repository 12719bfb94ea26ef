# SPDX-License-Identifier: Apache-2.0
"""tools/golden_pack and the judge_pack inside a pack: a changed verdict, name or capture is seen."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"
RULE = """# a comment
gated_delta_rule | decode | op=gdn mode=decode B=2 H=2 HV=4 K=16 V=16 | head_map=tiled
draft_acceptance | greedy | op=draft_acceptance mode=greedy B=3 S=3 Z=7 page_size=4 pattern=A | draft_crop=new_start
gated_delta_rule | mtp | op=gdn mode=mtp B=1 T=2 H=1 HV=1 K=8 V=8 | scale=1.0
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


@pytest.mark.parametrize("row, words", [
    ("gated_delta_rule | decode", "expected operation | mode | right | wrong"),
    ("kda | decode | op=gdn mode=decode B=1 H=1 HV=1 K=8 V=8 | scale=1.0", "expected a line of this operation"),
    ("gated_delta_rule | decode | op=gdn mode=decode B=1 H=1 HV=1 K=8 V=8 | nothing=1", "expected captures or a convention"),
    ("gated_delta_rule | decode | op=gdn mode=decode B=1 H=1 HV=1 K=8 V=8 | head_map=tiled", "expected a wrong call"),
    ("attention | prefill | captures | captures", "expected a capture that does not pass")])
def test_a_rule_that_makes_no_pack_is_refused(row, words, tmp_path):
    (tmp_path / "rule.txt").write_text(row + "\n")
    code, text = run(TOOLS / "golden_pack", tmp_path / "pack", "--rule", tmp_path / "rule.txt")
    assert code == 2 and words in text


def test_a_folder_with_files_is_left(pack):
    code, text = run(TOOLS / "golden_pack", pack)
    assert code == 2 and "expected an empty folder" in text

# SPDX-License-Identifier: Apache-2.0
"""The pages for users (../examples/*.md) do what they say. A block "python FILE" is that file; of a block
"console" each command runs in bash, and the lines below it are in what it prints, in that order."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PAGES = ["kernel_author.md", "engine_developer.md", "ci_owner.md", "porter.md"]
BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(block):
    """[(command, the lines that it prints)]"""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(" ".join(line.split()))
    return found


def run(command, folder):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PATH": path, "PYTHONPATH": str(folder),
                               "OMP_WAIT_POLICY": "passive"}, timeout=300)
    return done.stdout, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_a_page(page, tmp_path):
    text = (EXAMPLES / page).read_text()
    if "import h5py" in text:
        pytest.importorskip("h5py")
    for kernel in ("my_decode.py", "my_chunks.py"):
        shutil.copy(EXAMPLES / kernel, tmp_path)
    blocks = BLOCK.findall(text)
    assert blocks
    for kind, name, block in blocks:
        if kind == "python":
            (tmp_path / name).write_text(block)
            continue
        for command, lines in commands(block):
            out, err = run(command, tmp_path)
            rest = " ".join(out.split())
            for line in lines:
                assert line in rest, f"$ {command}\n{out}{err}\nlacks: {line}"
                rest = rest[rest.index(line) + len(line):]
            assert lines or not out, f"$ {command}\nprints what the page does not show:\n{out}{err}"


def headings(path):
    return {re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in path.read_text().splitlines() if line.startswith("#")}


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page(page):
    """What they point at is there: files, and headings of other pages."""
    for link in re.findall(r"\]\(([^)]+)\)", (EXAMPLES / page).read_text()):
        file, _, heading = link.partition("#")
        assert (EXAMPLES / file).exists(), link
        assert not heading or heading in headings(EXAMPLES / file), link

# SPDX-License-Identifier: Apache-2.0
"""run.py SOURCE WORK [--define NAME=VALUE]...: builds the wheel, with the handlers of goldenrule.jax, installs
it into an empty environment in WORK, and runs its tests there.

The compiler cache has every object already where the defines are those of a build in this tree (at the
same depth: its paths are relative). Exit code 77: the packages of requirements.txt and headers.txt are not
installed and cannot be had.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77
REQUIREMENTS, HEADERS = HERE / "requirements.txt", HERE / "headers.txt"


def run(*command, **options):
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def environment(work):
    """An environment with what building and testing need; made once."""
    folder, made = work / "environment", work / "environment" / "requirements.txt"
    python = folder / "bin" / "python"
    wanted = REQUIREMENTS.read_text() + HEADERS.read_text()
    if made.is_file() and made.read_text() == wanted:
        return python
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1")
    try:
        run(sys.executable, "-m", "venv", "--clear", folder)
        run(*pip, "-r", REQUIREMENTS)
        run(*pip, "--no-deps", "-r", HEADERS)
    except subprocess.CalledProcessError as error:
        print(f"SKIPPED: no environment with {REQUIREMENTS.name} and {HEADERS.name} of {HERE.name}: exit code "
              f"{error.returncode}")
        sys.exit(SKIPPED)
    made.write_text(wanted)
    return python


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--define", action="append", default=[])
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    python = environment(asked.work)
    (headers,) = (python.parents[1] / "lib").glob("python3*/site-packages/jaxlib/include")
    asked.define.append(f"GOLDENRULE_XLA_HEADERS={headers.resolve()}")
    wheels = asked.work / "wheels"
    for old in wheels.glob("*.whl"):
        old.unlink()
    settings = [f"--config-settings=cmake.define.{define}" for define in asked.define]
    run(python, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation",
        "--no-deps", "--wheel-dir", wheels, *settings, asked.source)
    (wheel,) = wheels.glob("*.whl")
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
        "--force-reinstall", wheel)
    print(f"{wheel.name}: {wheel.stat().st_size} bytes", flush=True)
    # In another folder: what is imported is what was installed.
    run(python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5", "--basetemp",
        asked.work / "pytest", HERE, cwd=asked.work, env={**os.environ, "PYTHONPATH": str(HERE)})


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)

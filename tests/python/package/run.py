# SPDX-License-Identifier: Apache-2.0
"""run.py SOURCE WORK [--define NAME=VALUE]... [--jax]: builds the wheel, installs it into an empty
environment in WORK, and runs its tests there. --jax: with jax in the environment and its handlers in
the wheel, the tests of goldenrule.jax.

The compiler cache has every object already where the defines are those of a build in this tree (at the
same depth: its paths are relative). Exit code 77: the packages of requirements.txt are not installed
and cannot be had.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77
JAX = "jax==0.10.2"  # 620 MB with what it needs


def run(*command, **options):
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def environment(work, more):
    """An environment with what building and testing need; made once."""
    folder, made = work / "environment", work / "environment" / "requirements.txt"
    python = folder / "bin" / "python"
    wanted = "\n".join([(HERE / "requirements.txt").read_text(), *more])
    if made.is_file() and made.read_text() == wanted:
        return python
    try:
        run(sys.executable, "-m", "venv", "--clear", folder)
        run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1",
            "-r", HERE / "requirements.txt", *more)
    except subprocess.CalledProcessError as error:
        print(f"SKIPPED: no environment with {HERE.name}/requirements.txt: exit code "
              f"{error.returncode}")
        sys.exit(SKIPPED)
    made.write_text(wanted)
    return python


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--define", action="append", default=[])
    parser.add_argument("--jax", action="store_true")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    python = environment(asked.work, [JAX] if asked.jax else [])
    if asked.jax:
        headers = subprocess.run([python, "-c", "import jax; print(jax.ffi.include_dir())"], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout.strip()
        asked.define.append(f"GOLDENRULE_XLA_HEADERS={headers}")
    # A folder for each, as CMake remembers what it was told.
    folder = ["--config-settings=build-dir=build/wheel_jax"] if asked.jax else []
    wheels = asked.work / "wheels"
    for old in wheels.glob("*.whl"):
        old.unlink()
    settings = [f"--config-settings=cmake.define.{define}" for define in asked.define]
    run(python, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation",
        "--no-deps", "--wheel-dir", wheels, *settings, *folder,
        asked.source)
    (wheel,) = wheels.glob("*.whl")
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
        "--force-reinstall", wheel)
    print(f"{wheel.name}: {wheel.stat().st_size} bytes", flush=True)
    # In another folder: what is imported is what was installed.
    run(python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5", "--basetemp",
        asked.work / "pytest", HERE / "test_jax.py" if asked.jax else HERE, cwd=asked.work, env={**os.environ, "PYTHONPATH": str(HERE)})


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)

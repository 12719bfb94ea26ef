# SPDX-License-Identifier: Apache-2.0
"""run_real.py BUILD: tests on the software of others that real_software.txt pins, in an environment of its
own below BUILD/real.

The tests run without flash-linear-attention. With it beside, where transformers would call its kernels, run the
quick ones of what calls torch functions of transformers, and the programs; on the release before, the models
that are not compiled. Takes the wheel that the test `python: wheel` has left in BUILD, with the Python files of
the source in place of its own.
The last line counts; exit code 1 if a test failed, was skipped for anything but the missing GPU, or none ran.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PINS = HERE / "real_software.txt"
TESTS = HERE / "package"
ALLOWED = re.compile(r"cuda: ")  # tests/python/package/conftest.py: no GPU
QUICK = "(forward or generate or fails_with_its_name or honest)"
NOT_FLA = "not naive"
NOT_COMPILED = "not compiled"
# What runs: a name, the folders beside the environment, the tests, and which of them.
RUNS = (
    ("without", (), ("test_real_models.py", "test_real_software.py", "test_recorder.py", "test_plugin.py",
                     "test_trace.py", "test_torch_tensors.py", "test_attention_rows.py",
                     "test_operators.py", "test_operators_attention.py", "test_meanings.py", "test_cases.py",
                     "test_evaluators.py", "test_campaign.py", "test_host_price.py", "test_jax.py"), NOT_FLA),
    ("with fla", ("fla",), ("test_real_models.py", "test_real_software.py"), QUICK),
    ("before", ("before",), ("test_real_models.py",), NOT_COMPILED),
)
# Programs: options, folders beside the environment. The last two call torch functions of transformers.
SCRIPTS = (("real_draft_acceptance.py", (), ("fla",)), ("real_software.py", ("--no-explain",), ("fla",)),
           ("real_gradcheck.py", (), ("fla",)), ("real_gradcheck_traps.py", (), ("fla",)),
           ("real_gradcheck_transformers.py", (), ()), ("real_record_gradients.py", (), ()))


def run(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=True, **options)


def pinned(where):
    lines = [line.split() for line in PINS.read_text().splitlines() if line and line[0] != "#"]
    return [words[1] for words in lines if words[0] == where]


def environment(folder):
    """The environment with all that is pinned; made once for these pins."""
    python, made = folder / "environment" / "bin" / "python", folder / "made.txt"
    wanted = "".join(path.read_text() for path in (PINS, TESTS / "requirements.txt", TESTS / "headers.txt"))
    if made.is_file() and made.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder / "environment")
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, "-r", TESTS / "requirements.txt", *pinned("environment"))
    run(*pip, "--no-deps", "-r", TESTS / "headers.txt", *pinned("bare"))
    for beside in ("before", "fla"):
        run(*pip, "--no-deps", "--target", folder / beside, *pinned(beside))
    run(python, HERE / "empty_cuda.py")
    made.write_text(wanted)
    return python


def wheel_of(build):
    """The wheel of these sources."""
    wheels = sorted((build / "python" / "wheels").glob("*.whl"))
    if not wheels:
        sys.exit(f"run_real.py: expected a wheel in {build}/python/wheels, actual none: run tools/test first")
    sources = [path for folder in ("fixtures", "reference", "tools/cli", "tools/python/extension")
               for path in (ROOT / folder).rglob("*.[ch]pp")]
    newest = max(sources, key=lambda path: path.stat().st_mtime)
    if newest.stat().st_mtime > wheels[-1].stat().st_mtime:
        sys.exit(f"run_real.py: expected a wheel newer than {newest.relative_to(ROOT)}, actual an older one: "
                 f"ctest --preset ci -R 'python: wheel' makes it")
    return wheels[-1]


def install(python, wheel):
    """The wheel, with the Python files of the source."""
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
        "--force-reinstall", wheel)
    (package,) = (python.parents[1] / "lib").glob("python3*/site-packages/goldenrule")
    shutil.copytree(ROOT / "tools" / "python" / "goldenrule", package, dirs_exist_ok=True)
    shutil.copy(ROOT / "tools" / "python" / "goldenrule_capture.py", package / "_capture.py")


def counted(report):
    """passed, failed and skipped of a JUnit file, and the reasons of skips that are not allowed."""
    cases = list(xml.parse(report).iter("testcase"))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skips = [case.find("skipped") for case in cases if case.find("skipped") is not None]
    said = [f"{skip.get('message')} {skip.text or ''}" for skip in skips]
    return len(cases) - failed - len(skips), failed, len(skips), [text for text in said
                                                                  if not ALLOWED.search(text)]


def pytest(python, folder, name, beside, tests, chosen):
    report = folder / f"{name.replace(' ', '_')}.xml"
    report.unlink(missing_ok=True)
    paths = [TESTS, *(folder / each for each in beside)]
    began = time.monotonic()
    command = [python, "-B", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-W", "ignore",
               "--basetemp", folder / "pytest", f"--junitxml={report}", "-k", chosen,
               *(TESTS / test for test in tests)]
    print(f"\n== {name}", flush=True)
    subprocess.run([str(part) for part in command], cwd=folder, check=False,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))})
    counts = counted(report) if report.is_file() else (0, 1, 0, [])
    print(f"{name}: {time.monotonic() - began:.0f} s")
    return counts


def script(python, folder, name, options, beside):
    """A program that is one test: 77 is a skip."""
    print(f"\n== {name}", flush=True)
    done = subprocess.run([python, HERE / name, python.parent / "goldenrule",
                           folder / name.removesuffix(".py"), *options], cwd=folder, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / each) for each in beside)})
    skipped = [f"{name}: exit code 77"] if done.returncode == 77 else []
    return int(done.returncode == 0), int(done.returncode not in (0, 77)), len(skipped), skipped


def main():
    build = Path(sys.argv[1]).resolve()
    folder = build / "real"
    began = time.monotonic()
    # Two tests at a time, each with threads of its own: those that wait must not spin.
    os.environ.update(OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1")
    wheel = wheel_of(build)
    python = environment(folder)
    install(python, wheel)
    print(f"environment: {time.monotonic() - began:.0f} s", flush=True)
    host = build / "tests" / "gpu_host" / "libgpu_host_shared.so"
    if host.is_file():
        os.environ.setdefault("GOLDENRULE_GPU_HOST_LIBRARY", str(host))
    counts = [pytest(python, folder, *each) for each in RUNS]
    counts += [script(python, folder, *each) for each in SCRIPTS]
    passed, failed, skipped = (sum(count[i] for count in counts) for i in range(3))
    refused = [reason for count in counts for reason in count[3]]
    empty = [name for (name, *_), count in zip(RUNS, counts) if count[0] == 0]
    for reason in sorted(set(refused)):
        print(f"skipped, and it may not be: {' '.join(reason.split())[:200]}")
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or refused or empty else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""`python -m goldenrule`: the program of the wheel, and `demo`, which judges a right and a wrong kernel in seconds.

    python -m goldenrule demo            no file, no GPU, no compiler
    python -m goldenrule COMMAND ..      what `goldenrule COMMAND ..` does
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def main(arguments: list[str]) -> int:
    """The exit code. Anything but `demo` replaces this process by the program of the same environment."""
    if arguments[:1] == ["demo"]:
        if arguments[1:]:
            print(f"goldenrule demo: expected no arguments, actual {' '.join(arguments[1:])}", file=sys.stderr)
            return 2
        from ._demo import demo

        return demo()
    beside = Path(sysconfig.get_path("scripts")) / "goldenrule"
    program = str(beside) if beside.exists() else shutil.which("goldenrule")
    if program is None:
        print(f"goldenrule: expected the program, {beside}, actual no such file; `demo` needs none", file=sys.stderr)
        return 2
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

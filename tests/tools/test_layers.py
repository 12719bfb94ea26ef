#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/layers.py over a small planted tree: what the table allows passes, each planted departure is found once.

    test_layers.py ROOT      ROOT: of the repository, whose module is tried
"""

import sys
import tempfile
from pathlib import Path

TABLE = """# Page

| folder or file | may include |
|---|---|
| `fixtures/call` | nothing |
| `reference/rule` | `fixtures/call` |
| `reference/left`, `reference/right` | `reference/rule` |
| `gpu/face.h` | nothing |
| `gpu` | `gpu/face.h` |

| file | a family adds |
|---|---|
| `fixtures/call/list.hpp` | its name |

| other table | it ends with |
|---|---|
| `reference/none` | `gpu` |
"""
RIGHT = {
    "CONTRIBUTING.md": TABLE,
    "fixtures/call/a.hpp": "#include <vector>\n",
    "fixtures/call/list.hpp": "Family::kDelta, Op::kKda\n",
    "fixtures/call/delta_words.hpp": "Op::kKda\n",
    "reference/rule/a.hpp": '#include "fixtures/call/a.hpp"\n#include <fmt/format.h>\n',
    "reference/left/a.cpp": '#include "reference/rule/a.hpp"\n  #  include "fixtures/call/a.hpp"\n',
    "reference/left/inner/a.hpp": '#include "reference/rule/a.hpp"\n',
    "reference/left/b.cpp": '#include "reference/left/inner/a.hpp"\n',
    "reference/right/a.hpp": "\n",
    "gpu/face.h": "\n",
    "gpu/one/a.cu": '#include "gpu/face.h"\n',
    "tests/a.cpp": '#include "reference/left/inner/a.hpp"\n#include "gpu/one/a.cu"\n',
}
# What is changed, and the one thing that is said.
WRONG = [
    ({"fixtures/call/a.hpp": '\n#include "reference/rule/a.hpp"\n'},
     "fixtures/call/a.hpp:2: reference/rule/a.hpp: fixtures/call may not include reference/rule"),
    ({"reference/left/a.cpp": '#include "reference/right/a.hpp"\n'},
     "reference/left/a.cpp:1: reference/right/a.hpp: reference/left may not include reference/right"),
    ({"gpu/face.h": "#include <gpu/one/a.cu>\n"}, "gpu/face.h:1: gpu/one/a.cu: gpu/face.h may not include gpu"),
    ({"reference/left/c.hpp": "\n", "reference/left/inner/a.hpp": '#include "reference/left/c.hpp"\n'},
     "reference/left and reference/left/inner reach each other, below one row"),
    ({"fixtures/call/a.hpp": "\nif (op == call::Op::kKda) {\n"}, "fixtures/call/a.hpp:2: Op::kKda: a file that serves"),
    ({"fixtures/call/a.hpp": "using enum call::Op;\n"}, "fixtures/call/a.hpp:1: using enum call::Op: a file that"),
    ({"fixtures/call/new_operation.cpp": "Op::kNew\n"}, "fixtures/call/new_operation.cpp:1: Op::kNew: a file that"),
    ({"fixtures/call/a.hpp": "Family::kDelta\n"}, "fixtures/call/a.hpp:1: Family::kDelta: a file that serves"),
    ({"fixtures/call/list.hpp": None}, "fixtures/call/list.hpp: no such file"),
    ({"reference/new/a.hpp": "\n"}, "reference/new/a.hpp: no row"),
    ({"CONTRIBUTING.md": TABLE.replace("| `gpu` |", "| `gpu`, `tools/gone` |")}, "tools/gone: no such file or folder"),
    ({"CONTRIBUTING.md": TABLE.replace("| `fixtures/call` |\n", "| `fixtures/call`, `fixtures/more` |\n")},
     "fixtures/more: reference/rule may include it, and it has no row"),
    ({"CONTRIBUTING.md": TABLE.replace("| `gpu/face.h` | nothing |", "| `gpu/face.h` | `gpu` |")},
     "gpu/face.h and gpu reach each other"),
    ({"CONTRIBUTING.md": "# No table\n", "fixtures/call/a.hpp": None, "fixtures/call/list.hpp": None,
      "fixtures/call/delta_words.hpp": None, "reference/rule/a.hpp": None,
      "reference/left/a.cpp": None, "reference/left/inner/a.hpp": None, "reference/left/b.cpp": None,
      "reference/right/a.hpp": None, "gpu/face.h": None, "gpu/one/a.cu": None}, "no table has a column"),
]


def findings(layers, changes):
    tree = {name: text for name, text in {**RIGHT, **changes}.items() if text is not None}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in tree.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return layers.findings(folder, list(tree))


def main():
    sys.path.insert(0, str(Path(sys.argv[1]) / "tools"))
    sys.dont_write_bytecode = True
    import layers

    failed = 0
    if said := findings(layers, {}):
        print("a right tree:", *said, sep="\n  ")
        failed += 1
    for changes, expected in WRONG:
        said = findings(layers, changes)
        # Rows that reach each other are said for both.
        if not said or any(expected not in line and "reach each other" not in line for line in said) \
                or not any(expected in line for line in said):
            print(f"expected: {expected}", "actual:", *said, sep="\n  ")
            failed += 1
    print(f"{len(WRONG) + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

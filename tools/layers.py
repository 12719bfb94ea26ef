# SPDX-License-Identifier: Apache-2.0
"""Which folder may include which: the table of CONTRIBUTING.md, and where the sources depart from it.

A row names a folder or a file, and those that it may include. What these may include it may include as well, and
so may each of its own subfolders that have no row. Where no arrow leaves this closure, a header that a row does not
reach does not reach its units either, over however many includes: the slices of two families see nothing of each
other as long as neither reaches the other here.
Findings: a row of what there is not, rows that reach each other, a source without a row, an include that the table
does not allow, and folders that include each other below one row.

Another table of that page lists the files to which a new family of operations adds a line. Elsewhere in the folders
that serve every family, only a file whose name begins with that of a family, as fixtures/call/delta_words.hpp, names
an operation or a family; so what a new one changes is that list.
"""

import re
from pathlib import Path

PAGE = "CONTRIBUTING.md"
HEAD = re.compile(r"^\|.*\|\s*may include\s*\|$")
NAME = re.compile(r"`([^`]+)`")
INCLUDE = re.compile(r'^\s*#\s*include [<"]([^>"]+)[>"]', re.MULTILINE)
SOURCES = (".hpp", ".cpp", ".h", ".c", ".cu", ".cuh", ".inc")
JUDGED = ("fixtures/", "reference/", "gpu/", "tools/")
LISTS_HEAD = re.compile(r"^\|.*\|\s*a family adds\s*\|$")
WORDS_OF_A_FAMILY = re.compile(r"fixtures/call/(\w+_)words\.hpp")
NEUTRAL = ("fixtures/call/", "fixtures/cases/", "fixtures/schema/", "fixtures/hdf5/", "reference/scalar/", "reference/contract/",
           "reference/calls/", "reference/verdict/", "reference/explain/", "reference/report/", "reference/arbiter/",
           "reference/suites/", "tools/cli/", "tools/python/extension/")
OPERATION = re.compile(r"\b(?:Op|Family)\s*::\s*k[A-Z]\w*|\busing enum (?:\w+::)*(?:Op|Family)\b")


def rows_of(page, head=HEAD):
    """{folder or file: (line, what it lists)} of the table whose last column is "may include"."""
    rows, inside = {}, False
    for number, line in enumerate(page.splitlines(), 1):
        if head.match(line):
            inside = True
        elif inside and not line.startswith("|"):
            break
        elif inside and (cells := line.strip("|").split("|")) and NAME.search(cells[0]):
            for name in NAME.findall(cells[0]):
                rows[name] = number, NAME.findall(cells[-1])
    return rows


def closure(rows, name):
    """Every row that this one reaches, itself included."""
    reached, waiting = set(), [name]
    while waiting:
        row = waiting.pop()
        if row not in reached:
            reached.add(row)
            waiting += [other for other in rows[row][1] if other in rows]
    return reached


def row_of(rows, file):
    """The row of a file: the longest name that it is or that leads to it."""
    names = [name for name in rows if file == name or file.startswith(f"{name}/")]
    return max(names, key=len, default=None)


def cycles(arrows):
    """Pairs of folders, the smaller first, that reach each other."""
    reach = {}
    for start in arrows:
        seen, waiting = set(), [start]
        while waiting:
            for other in arrows.get(waiting.pop(), {}).keys() - seen:
                seen.add(other)
                waiting.append(other)
        reach[start] = seen
    return [(a, b) for a in sorted(reach) for b in sorted(reach[a]) if a < b and a in reach.get(b, ())]


def table_findings(root, rows):
    for name, (line, listed) in rows.items():
        if not (root / name).exists():
            yield f"{PAGE}:{line}: {name}: no such file or folder"
        for other in listed:
            if other not in rows:
                yield f"{PAGE}:{line}: {other}: {name} may include it, and it has no row"
            elif other != name and name in closure(rows, other):
                yield f"{PAGE}:{line}: {name} and {other} reach each other"


def family_findings(root, page, files):
    """Sources that serve every family and name one."""
    lists = rows_of(page, LISTS_HEAD)
    families = tuple(match[1] for file in files if (match := WORDS_OF_A_FAMILY.fullmatch(file)))
    for name, (line, _) in lists.items():
        if name not in files:
            yield f"{PAGE}:{line}: {name}: no such file"
    for file in sorted(files):
        if file in lists or not file.startswith(NEUTRAL) or Path(file).name.startswith(families):
            continue
        text = (root / file).read_text()
        for match in OPERATION.finditer(text):
            place = f"{file}:{text.count(chr(10), 0, match.start()) + 1}"
            yield f"{place}: {match[0]}: a file that serves every family names one ({PAGE}, \"a family adds\")"


def findings(root, files):
    """What departs from the table; `files` are the repository's, relative to `root`."""
    root = Path(root)
    page = (root / PAGE).read_text()
    rows = rows_of(page)
    found = list(table_findings(root, rows)) if rows else [f"{PAGE}: no table has a column \"may include\""]
    files = {file for file in files if file.startswith(JUDGED) and file.endswith(SOURCES)}
    found += family_findings(root, page, files)
    arrows = {}  # within a row, of folder to folder: one include of each
    for file in sorted(files):
        own = row_of(rows, file)
        if own is None:
            found.append(f"{file}: no row of {PAGE} has it")
            continue
        allowed = closure(rows, own)
        text = (root / file).read_text()
        for match in INCLUDE.finditer(text):
            target = match[1]
            place = f"{file}:{text.count(chr(10), 0, match.start(1)) + 1}"
            other = row_of(rows, target)
            if target not in files or other is None:
                continue
            if other not in allowed:
                found.append(f"{place}: {target}: {own} may not include {other} ({PAGE})")
            ends = [str(Path(name).parent) for name in (file, target)]
            if own == other and ends[0] != ends[1]:
                arrows.setdefault(ends[0], {}).setdefault(ends[1], f"{place}: {target}")
    for a, b in cycles(arrows):
        found.append(f"{a} and {b} reach each other, below one row of {PAGE}: "
                     f"{'; '.join(example for end in (a, b) for example in arrows[end].values())}")
    return found

# SPDX-License-Identifier: Apache-2.0
"""update_tables.py PROGRAM [--check]: tables outside of the library from `goldenrule schema` and `list`.

What goldenrule_capture.py knows of operations, tensors, conventions, contracts and stages, and the tables of
tensors, conventions and keys of scenario lines in fixtures/README.md, are generated from the tables of the library.
Rewrites the part of each file between two marks; with --check exit 1 where it differs.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WIDTH = 100


def literal(value):
    return f'"{value}"' if isinstance(value, str) else repr(value)


def tuple_of(names):
    return "(" + ", ".join(map(literal, names)) + ("," if len(names) == 1 else "") + ")"


def wrapped(head, items, close):
    """`head` and items, broken before column WIDTH."""
    lines, line = [], head
    for i, item in enumerate(items):
        piece = item + ("," if i + 1 < len(items) else close)
        if len(line) + len(piece) + 1 > WIDTH:
            lines.append(line.rstrip())
            line = " " * (head.index("(") + 1 if "(" in head else 4)
        line += piece + " "
    return "\n".join([*lines, line.rstrip()])


def table(name, rows):
    return f"{name} = {{\n" + "".join(f"    {literal(k)}: {v},\n" for k, v in rows) + "}"


def names(tensors, group, mode):
    return tuple_of([t["name"] for t in tensors if t["group"] == group and mode in t["modes"]])


def readers(tensors, field, values):
    return [(value, tuple_of([t["name"] for t in tensors if value in t[field]]))
            for value in values]


def condition(limits):
    """The range of a number as a condition on x."""
    text = "x"
    for end, sign in (("above", "<"), ("at_least", "<=")):
        text = f"{limits[end]!r} {sign} {text}" if end in limits else text
    for end, sign in (("below", "<"), ("at_most", "<=")):
        text += f" {sign} {limits[end]!r}" if end in limits else ""
    return text


def ranges(conventions):
    return [(c["name"], f"({literal(c['range']['expected'])}, lambda x: {condition(c['range'])})")
            for c in conventions if "range" in c]


def number(value):
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def conventions_table(schema, family="delta"):
    """A table of fixtures/README.md: a number's default and its range stand before the meaning."""
    lines = ["| attribute | values |", "|---|---|"]
    for c in of_family(schema, family)["conventions"]:
        values = c["meaning"]
        if "type" in c:
            default = number(c["default"]) if "default" in c else "double(K^-0.5)"
            legal = f" ({c['range']['expected']})" if "range" in c else ""
            values = f"{default}{legal}; {values}"
        lines.append(f"| `{c['name']}` | {values} |")
    return "\n".join(lines) + "\n"


def tensors_table(schema):
    """The table of fixtures/README.md: the tensors of the delta rule, but for those that only a chain reads."""
    lines = ["| tensor | type | shape | there |", "|---|---|---|---|"]
    group = "inputs"
    for t in of_family(schema, "delta")["operations"][0]["tensors"]:
        if "of a chain" in t["present"]:
            continue
        if t["group"] != group:
            group = t["group"]
            lines.append(f"| {group}: | | | |")
        shape = t["extents"].replace(" (kda)", " (KDA)")
        lines.append(f"| `{t['name']}` | {t['storage']} | `{shape}` | {t['present']} |")
    return "\n".join(lines) + "\n"


def scenario_keys_table(schema):
    """The keys that only a scenario line has; the others are attributes of /convention."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key in schema["scenario_keys"]:
        if key["of"] != "convention":
            default = f"`{key['default']}`" if key["default"] else "always given" if key["always_given"] else ""
            lines.append(f"| `{key['name']}` | {default} | {key['meaning']} |")
    return "\n".join(lines) + "\n"


def attention_conventions_table(schema):
    return conventions_table(schema, "attention")


def convention_blocks(schema):
    """Attributes with their values, defaults and ranges, as the items of three tables."""
    conventions = schema["conventions"]
    return ([(c["name"], tuple_of(c["values"]) if "values" in c else c["type"])
             for c in conventions],
            [(c["name"], literal(c["default"])) for c in conventions if "default" in c],
            ranges(conventions))


def family_tables(schema, family, upper):
    """What the module knows of another family, under names that begin with `upper`."""
    schema = of_family(schema, family)
    tensors = schema["operations"][0]["tensors"]
    kinds, defaults, legal = convention_blocks(schema)
    modes = schema["operations"][0]["modes"]
    contracts = [literal(c) for c in schema["contracts"]]
    return [
        f"# The same of {family}.\n"
        f"{upper}_OPS = {tuple_of([o['name'] for o in schema['operations']])}",
        wrapped(f"{upper}_CONTRACTS = (", contracts, ",)" if len(contracts) == 1 else ")"),
        table(f"{upper}_CONVENTION", kinds),
        table(f"{upper}_DEFAULTS", defaults),
        table(f"_{upper}_RANGES", legal),
        table(f"{upper}_INPUTS", [(m, wrapped_names(names(tensors, "inputs", m))) for m in modes]),
        table(f"{upper}_OUTPUTS", [(m, names(tensors, "outputs", m)) for m in modes]),
        f"_{upper}_FLOATS = {tuple_of([t['name'] for t in tensors if t['storage'] == 'float'])}",
    ]


def module_tables(whole):
    schema = of_family(whole, "delta")
    operations = schema["operations"]
    tensors = operations[0]["tensors"]  # the same for both
    modes = operations[0]["modes"]
    values = {c["name"]: c.get("values") for c in schema["conventions"]}
    contracts = [literal(c) for c in schema["contracts"]]
    blocks = [
        f"SCHEMA = {literal(schema['schema'])}",
        f"OPS = {tuple_of([o['name'] for o in operations])}",
        f"MODES = {tuple_of(modes)}",
        "# What the attribute `contract` may claim.\n" + wrapped("CONTRACTS = (", contracts, ")"),
        "# Attribute of /convention -> the names that it may have, or the type of its number.\n"
        + table("CONVENTION", [(c["name"], tuple_of(c["values"]) if "values" in c else c["type"])
                               for c in schema["conventions"]]),
        "# What an absent attribute means; `scale` has none here: its default, K^-0.5, depends on "
        "the\n# call.\n"
        + table("DEFAULTS", [(c["name"], literal(c["default"])) for c in schema["conventions"]
                             if "default" in c]),
        "# Numbers without a meaning are refused: attribute -> (what is expected, whether a number "
        "is that).\n" + table("_RANGES", ranges(schema["conventions"])),
        "# The inputs of a gate and of a beta; those of the others may be given, but nobody reads "
        "them.\n" + table("_OF_GATE", readers(tensors, "gates", values["gate"])),
        table("_OF_BETA", readers(tensors, "betas", values["beta"])),
        "# Inputs and outputs that a call may have.\n"
        + table("INPUTS", [(m, wrapped_names(names(tensors, "inputs", m))) for m in modes]),
        f"_SLOTS = {tuple_of([t['name'] for t in tensors if t['storage'] == 'slot'])}",
        table("OUTPUTS", [(m, names(tensors, "outputs", m)) for m in modes]),
        "# Stages of chunked kernels, in the order of the computation.\n"
        + table("STAGES", list({s["name"]: literal(s["shape"]) for s in schema["stages"]}.items())),
        *family_tables(whole, "backward", "BACKWARD"),
        *family_tables(whole, "attention", "ATTENTION"),
        *family_tables(whole, "draft_acceptance", "DRAFT"),
    ]
    return "\n".join(blocks) + "\n"


def wrapped_names(text):
    items = text[1:-1].split(", ")
    return wrapped("        (", items, ")").lstrip()


# File, the marks, and what stands between them.
GENERATED = (
    (HERE / "goldenrule_capture.py",
     "# --- Generated by update_tables.py from `goldenrule schema --json`: do not edit.\n",
     "# --- End of what is generated.\n", module_tables),
    (HERE.parents[1] / "fixtures/README.md",
     "<!-- Generated by tools/python/update_tables.py: do not edit. -->\n",
     "<!-- End of what is generated. -->\n", conventions_table),
    (HERE.parents[1] / "fixtures/README.md",
     "<!-- Generated by tools/python/update_tables.py, attention: do not edit. -->\n",
     "<!-- End of attention. -->\n", attention_conventions_table),
    (HERE.parents[1] / "fixtures/README.md",
     "<!-- Generated by tools/python/update_tables.py, tensors of delta: do not edit. -->\n",
     "<!-- End of the tensors of delta. -->\n", tensors_table),
    (HERE.parents[1] / "fixtures/README.md",
     "<!-- Generated by tools/python/update_tables.py, keys of scenario lines: do not edit. -->\n",
     "<!-- End of the keys of scenario lines. -->\n", scenario_keys_table),
)


def of_family(schema, family):
    """The schema without what kernels of other families do not read."""
    return schema | {
        "operations": [o for o in schema["operations"] if o["family"] == family],
        "conventions": [c for c in schema["conventions"] if family in c["readers"]],
        "contracts": schema["contracts_of"][family]}


def printed(*command):
    return json.loads(subprocess.run([sys.argv[1], *command, "--json"], check=True,
                                     capture_output=True, text=True).stdout)


def main():
    schema = printed("schema") | {"scenario_keys": printed("list", "scenario_keys")}
    stale = 0
    for file, begin, end, tables in GENERATED:
        before = file.read_text()
        head, rest = before.split(begin)
        _, tail = rest.split(end)
        after = head + begin + tables(schema) + end + tail
        if "--check" not in sys.argv[2:]:
            file.write_text(after)
        elif after != before:
            print(f"{file.relative_to(HERE.parents[1])} is not what {Path(__file__).name} makes: run it")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())

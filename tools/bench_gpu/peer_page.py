#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What peer.py, peer_prefill.py and peer_attention.py measured, and the tables of README.md that say it.

    peer_page.py [RESULT.json ...]    takes results of `--save` into peers.json, and writes the page
    peer_page.py --check              exit 1 where the page does not say what peers.json holds

A RESULT is one run on one card; its rows replace those of the same card in peers.json, call by call, whole: peers
that it did not have are not kept beside it, since only times of one process are compared. A ratio is a peer's time
over the better one of goldenrule's, so below 1 the peer is faster.
"""
import argparse
import datetime
import importlib.metadata
import json
import math
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA, PAGE = HERE / "peers.json", HERE / "README.md"
BEGIN = "<!-- Written by peer_page.py from peers.json: do not edit. -->\n"
END = "<!-- End of what peer_page.py writes. -->\n"
TABLES = {  # name in the data: heading, and what a row is
    "recurrent": ("Decode and MTP", "microseconds of goldenrule, plain/dep."),
    "prefill": ("Prefill", "microseconds of goldenrule"),
    "attention": ("Attention", "microseconds of goldenrule, 16 tokens a block, 32/8 heads of 128, pages of 64"),
}
# How a page calls a peer, and the package whose version it has.
PEERS = {
    "flashinfer": ("FlashInfer", "flashinfer-python"), "fla": ("fla", "fla-core"), "sglang": ("SGLang", "sglang"),
    "gdn_triton_reference": ("SGLang's in FlashInfer", "flashinfer-python"),
    "flash_qla": ("FlashQLA", "flash-qla"), "cudnn": ("cuDNN", "nvidia-cudnn-frontend"),
    "torch_cudnn": ("cuDNN of torch", "torch"), "torch_flash": ("FlashAttention 2 of torch", "torch"),
    "flash_attention_3": ("FlashAttention 3", "fa3-fwd"), "flash_attention_4": ("FlashAttention 4", "flash-attn-4"),
}


class Results:
    """The rows of one table on one card; each is in the file as soon as it is measured. file: None, or its path."""

    def __init__(self, torch, table, peers, file, commit):
        self.file = file
        self.data = {"card": card_of(torch.cuda.get_device_name()), "table": table, "commit": commit,
                     "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
                     "versions": {name: version_of(name) for name in peers}, "rows": {}}

    def add(self, call, ours, peers):
        """ours: microseconds of goldenrule's ways, plain first; peers: {name: microseconds}. A call that no peer
        has is no row."""
        if self.file is None or not peers:
            return
        self.data["rows"][call] = {"goldenrule": [round(x, 2) for x in ours],
                                   "peers": {name: round(x, 2) for name, x in peers.items()}}
        Path(self.file).write_text(json.dumps(self.data, indent=1) + "\n")


def saving(parser):
    """The options by which a script saves what it measures."""
    parser.add_argument("--save", help="write the rows to this file, for peer_page.py")
    parser.add_argument("--commit", default="", help="of the library, for the page")


def card_of(device):
    """H200 of `NVIDIA H200`, H100 of `NVIDIA H100 80GB HBM3`."""
    found = re.search(r"\b[A-Z]+\d+[A-Z]*\b", device.replace("NVIDIA", ""))
    return found.group() if found else device


def version_of(peer):
    package = PEERS[peer][1]
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


def checked(result, file):
    """The result, if it is one of `--save`; else SystemExit."""
    def refuse(expected, actual):
        raise SystemExit(f"peer_page.py: {file}: expected {expected}, actual {actual}")

    if not isinstance(result, dict):
        refuse("an object", type(result).__name__)
    for key, kind in (("card", str), ("table", str), ("date", str), ("commit", str), ("versions", dict),
                      ("rows", dict)):
        if not isinstance(result.get(key), kind):
            refuse(f"{key} of type {kind.__name__}", repr(result.get(key)))
    if result["table"] not in TABLES:
        refuse(f"table one of {', '.join(TABLES)}", result["table"])
    if not result["commit"]:
        refuse("the commit of the library (--commit of the script that measured)", "none")
    for call, row in result["rows"].items():
        ours, peers = row.get("goldenrule"), row.get("peers")
        if not isinstance(ours, list) or not isinstance(peers, dict) or not ours or not peers:
            refuse(f"{call}: times of goldenrule and of one peer or more", row)
        unknown = [name for name in peers if name not in PEERS]
        if unknown:
            refuse(f"{call}: peers of {', '.join(PEERS)}", ", ".join(unknown))
        times = [*ours, *peers.values()]
        if not all(isinstance(x, int | float) and 0 < x < math.inf for x in times):
            refuse(f"{call}: times above 0", times)
    return result


def merged(data, result):
    """`data`, {table: {card: {runs, rows}}}, with a result in it; each row says its run."""
    card = data.setdefault(result["table"], {}).setdefault(result["card"], {"runs": [], "rows": {}})
    run = {name: result[name] for name in ("date", "commit", "versions")}
    if run not in card["runs"]:
        card["runs"].append(run)
    for call, row in result["rows"].items():
        card["rows"][call] = {"run": card["runs"].index(run), **row}
    used = sorted({row["run"] for row in card["rows"].values()})
    card["runs"] = [card["runs"][i] for i in used]
    for row in card["rows"].values():
        row["run"] = used.index(row["run"])
    return data


def number(x):
    return f"{x:.2f}" if x < 20 else f"{x:.1f}" if x < 200 else f"{x:.0f}"


def cells(row):
    """Two cells: goldenrule's times, and the ratios of the peers, the fastest first."""
    if row is None:
        return ["", ""]
    best = min(row["goldenrule"])
    peers = sorted(row["peers"].items(), key=lambda peer: peer[1])
    return ["/".join(map(number, row["goldenrule"])),
            ", ".join(f"{PEERS[name][0]} {x / best:.2f}" for name, x in peers)]


def table(name, cards):
    """Markdown of a table; cards: {card: {runs, rows}}."""
    heading, meaning = TABLES[name]
    order = sorted(cards, reverse=True)
    calls = list(dict.fromkeys(call for card in order for call in cards[card]["rows"]))
    lines = [f"### {heading}", "", f"{meaning[0].upper()}{meaning[1:]}; peers: their time over the better one.", ""]
    lines.append("| call | " + " | ".join(f"{card}, us | peers" for card in order) + " |")
    lines.append("|---" * (1 + 2 * len(order)) + "|")
    for call in calls:
        row = [cell for card in order for cell in cells(cards[card]["rows"].get(call))]
        lines.append("| " + " | ".join([call, *row]) + " |")
    for card in order:
        rows = cards[card]["rows"].values()
        ahead = [row for row in rows if min(row["goldenrule"]) <= min(row["peers"].values())]
        lines += ["", f"{card}: no peer is faster in {len(ahead)} of {len(rows)} rows."]
        for i, run in enumerate(cards[card]["runs"]):
            measured = [row for row in rows if row["run"] == i]
            versions = {run["versions"].get(name, PEERS[name][1]) for row in measured for name in row["peers"]}
            lines.append(f"{len(measured)} of {run['date']}, commit {run['commit'][:9]}, beside "
                         f"{', '.join(sorted(versions))}.")
    return "\n".join(lines) + "\n"


def page(data):
    return "\n".join(table(name, data[name]) for name in TABLES if name in data)


def with_page(text, data):
    """The page's text with the tables of the data in it."""
    head, mark, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"peer_page.py: {PAGE.name}: expected the marks {BEGIN.strip()} and {END.strip()}")
    return head + BEGIN + "\n" + page(data) + "\n" + END + tail


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    data = json.loads(DATA.read_text()) if DATA.exists() else {}
    if options.check:
        if PAGE.read_text() != with_page(PAGE.read_text(), data):
            print("peer_page.py: README.md is not what peers.json makes it: run peer_page.py", file=sys.stderr)
            return 1
        return 0
    for file in options.results:
        try:
            result = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise SystemExit(f"peer_page.py: {file}: expected a result of --save: {error}") from None
        merged(data, checked(result, file))
    text = with_page(PAGE.read_text(), data)
    DATA.write_text(json.dumps(data, indent=1) + "\n")
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

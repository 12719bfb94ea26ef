#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""For which devices the library holds code, and that what a dependent launch may choose waits.

    code_test.py NVCC ROOT LIBRARY SASS PTX

SASS and PTX: the architectures that the library shall hold machine code and PTX for, "90a,120f". A device
of compute capability 9.0 or later runs machine code of its own kind, else the newest PTX that is not
newer than itself; the host trusts what was compiled for 9.0 or later to wait
(gpu/launch/kernel_table.cpp). So there has to be such PTX, and every kernel of the dispatch table has to
wait for the kernel in front of it before it touches memory that others write: on no path from its begin
to a wait may stand more than a relaxed read of a slot, and hints to the cache. Decode has one more, for the
caller who vouches for states (GOLDENRULE_GPU_FLAG_STATE_READY): it copies a whole tile of them. That path
copies as many vectors as the one behind the wait and nothing else, and there is another that copies none; that
the flag chooses between them is seen by tests/gpu/dependent_test.cpp. All this is looked at in PTX, which
ptxas keeps the order of: both memory instructions and the wait are volatile. Needs no GPU."""
import collections
import re
import struct
import subprocess
import sys

NVCC, ROOT, LIBRARY = sys.argv[1:4]
SASS, PTX = ([int(re.match(r"\d+", name).group()) for name in text.split(",")]
             for text in sys.argv[4:6])

# Both types and both layouts of the states are in the two of decode and MTP.
SOURCES = (("gpu/delta/recurrent/entries_f32_vk.cu", "compute_90"),
           ("gpu/delta/recurrent/entries_bf16_kv.cu", "compute_90"),
           ("gpu/delta/prefill/general.cu", "compute_90"),
           ("gpu/delta/prefill/sm90/gdn.cu", "compute_90a"),
           ("gpu/delta/prefill/sm90/kda.cu", "compute_90a"))
# Kernels that only ever stand behind one of the same call which has waited before it let them begin
# (gpu/delta/prefill/sm90/scan_block.cuh): they take what that one leaves piece by piece, and wait at
# their end, for whoever comes next.
FOLLOWS = re.compile(r"prefill_(gdn|kda)_scan")
FIRST_THAT_WAITS = 90
WAIT = "griddepcontrol.wait"
GROUPS = ("cp.async.commit_group", "cp.async.wait")  # of copies, which are looked at themselves
TRIGGER = "griddepcontrol.launch_dependents"
ACCESS = re.compile(r"^(ld|st|red|atom)\b(?!\.(param|shared|local|const))|^cp\.async|^cp\.reduce")
RELAXED = re.compile(r"^ld\.relaxed\.gpu\.global")
# The kernels that may take states early. Their other copies are those of a slot, of either width.
TAKES_STATES = re.compile(r"9recurrent13decode_kernel")
COPY = re.compile(r"^cp\.async\.c[ag]\.shared\.global\b.*, (\d+);")
SLOT_COPIES = collections.Counter({"4": 1, "8": 1})
LABEL = re.compile(r"^(\$\w+):")
BRANCH = re.compile(r"^bra(\.uni)?\s+(\$\w+);")


def held():
    """(machine code?, architecture) of every entry of every fat binary in the library: the head of an
    entry is not compressed."""
    with open(LIBRARY, "rb") as file:
        data = file.read()
    for match in re.finditer(struct.pack("<IH", 0xBA55ED50, 1), data):
        head, size = struct.unpack_from("<HQ", data, match.start() + 6)
        at, end = match.start() + head, match.start() + head + size
        while at < end:
            kind, _, entry_head, entry_size = struct.unpack_from("<HHIQ", data, at)
            architecture, = struct.unpack_from("<I", data, at + 28)
            yield kind == 2, architecture
            at += entry_head + entry_size


def kernels_of(source, architecture):
    """Every kernel of a source and its instructions: (whether it has a predicate, text), and labels."""
    ptx = subprocess.run(
        [NVCC, "-std=c++20", f"-I{ROOT}", "--fmad=false", f"-arch={architecture}", "-ptx", "-o", "-",
         f"{ROOT}/{source}"], check=True, text=True, stdout=subprocess.PIPE).stdout
    for part in ptx.split(".entry ")[1:]:
        lines = (re.match(r"\{?\s*(@!?%?\w+\s+)?(.*)", line.strip()) for line in part.splitlines()[1:])
        yield re.match(r"\w+", part).group(), [(line[1] is not None, line[2]) for line in lines
                                               if re.match(r"[a-z$]", line[2])]


def before_wait(instructions, without=()):
    """The places on all paths from the begin to a wait, or to an instruction of `without`; and whether
    any path comes to a wait, and whether one comes to the end of the kernel instead."""
    places = {match[1]: at for at, (_, text) in enumerate(instructions) if (match := LABEL.match(text))}
    seen, ahead, waits, ends = set(), [0], False, False
    while ahead:
        at = ahead.pop()
        if at in seen or at in without:
            continue
        has_predicate, text = instructions[at] if at < len(instructions) else (False, "ret;")
        if text.startswith(WAIT):
            waits = True
            continue
        if text.startswith("brx"):
            sys.exit(f"instruction {at}: a branch by a table is not followed here: {text}")
        seen.add(at)
        branch = BRANCH.match(text)
        if branch:
            ahead.append(places[branch[2]])
        if re.match(r"(ret|exit)\b", text) and not has_predicate:
            ends = True
        elif not branch or has_predicate:
            ahead.append(at + 1)
    return seen, waits, ends


def copies_of_states(kernel, instructions, early):
    """(places of the copies that decode may make before its wait, "" or what is wrong with them)"""
    copies = {at: match[1] for at, (_, text) in enumerate(instructions) if (match := COPY.match(text))}
    taken = {at for at in copies if at in early}
    if not TAKES_STATES.search(kernel):
        return set(), ""
    sizes = collections.Counter(copies[at] for at in taken)
    behind = collections.Counter(size for at, size in copies.items() if at not in taken)
    if not taken or behind != sizes + SLOT_COPIES:
        return taken, f"copies before any wait {dict(sizes)}, behind it {dict(behind)}"
    if not before_wait(instructions, taken)[1]:
        return taken, "no path to a wait is without copies of states"
    return taken, ""


def complaint(kernel, instructions):
    if FOLLOWS.search(kernel):
        waits = any(text.startswith(WAIT) for _, text in instructions)
        return None if waits else "never waits"
    early, waits, ends = before_wait(instructions)
    copies, problem = copies_of_states(kernel, instructions, early)
    for at in sorted(early - copies):
        text = instructions[at][1]
        if text.startswith(TRIGGER):
            return f"instruction {at} lets the next kernel begin before any wait"
        if ACCESS.match(text) and not RELAXED.match(text) and not text.startswith(GROUPS):
            return f"instruction {at}, before any wait: {text}"
    if not waits or ends:
        return "never waits" if not waits else "ends on some path without a wait"
    return problem or None


failures = []
entries = set(held())
for is_sass, expected in ((True, SASS), (False, PTX)):
    actual = sorted(architecture for kind, architecture in entries if kind == is_sass)
    print("machine code" if is_sass else "PTX", actual)
    if actual != sorted(expected):
        failures.append(f"expected {sorted(expected)}, actual {actual}")
if not any(not is_sass and name == FIRST_THAT_WAITS for is_sass, name in entries):
    failures.append("expected PTX for 9.0: devices without machine code of their own would not wait")
for source, architecture in SOURCES:
    kernels = dict(kernels_of(source, architecture))
    print(f"{source}: {len(kernels)} kernels for {architecture}")
    if not kernels:
        failures.append(f"{source}: no kernel")
    for kernel, instructions in kernels.items():
        problem = complaint(kernel, instructions)
        if problem:
            failures.append(f"{source}: {kernel}: {problem}")
print("\n".join(failures[:20]))
sys.exit(bool(failures))

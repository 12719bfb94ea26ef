#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the golden values of attention fixtures right? The definition, key by key, in mpmath.

    test_attention.py GOLDENRULE DIR [--rows N]

Generates small cases of the suites into DIR and recomputes sampled rows of each: every key of the
request is asked whether it exists and whether mask and windows show it, no range and no run of keys
is formed, and nothing is shared with the oracle. Demanded of every element, x exact, y golden, r the
radius of the file:

    |y - x| <= r   and   |y - x| <= 1e-15 |x| + 2^-1074,

but where sums cancel: |x| <= 2^-80 times the largest |v| that the row sees excuses the second. Rows
that see no key are o = 0, lse = -inf. Exit code 0: at least 30 cases passed, none failed.
"""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
from mpmath import exp, inf, log, mp, mpf, tanh

mp.prec = 300
LEAST_CASES = 30
MOST_WORK = 3_000_000  # products of a query, a key and a channel over a whole case
DEFAULTS = dict(head_map="grouped", mask="full", block=1, block_base="absolute", window_left=-1,
                window_right=-1, block_kv="separate", kv_layout="nhd", missing_page="error",
                soft_cap=0.0, lse_base="e", lse_layout="th")


def read(path):
    with h5py.File(path) as file:
        convention = dict(DEFAULTS)
        for name, value in file["convention"].attrs.items():
            convention[name] = value
        inputs = {name: np.asarray(d[()], dtype=np.float64 if d.dtype.kind == "f" else np.int64)
                  for name, d in file["inputs"].items()}
        golden = {name: (d[()], float(d.attrs["radius"])) for name, d in file["golden"].items()}
        return file.attrs["mode"], convention, inputs, golden


class Request:
    """The keys of request n: (position, k [H,K], v [H,V]) of each that exists."""

    def __init__(self, convention, inputs, n):
        self.convention = convention
        bounds = inputs["cu_seqlens_q"]
        self.first, last = int(bounds[n]), int(bounds[n + 1])
        self.queries = last - self.first
        self.valid = int(inputs["valid_q"][n]) if "valid_q" in inputs else self.queries
        cached = int(inputs["kv_lens"][n]) if "kv_lens" in inputs else 0
        in_cache = convention["block_kv"] == "in_cache"
        self.offset = cached - self.queries if in_cache else cached
        if "q_offset" in inputs:
            self.offset = int(inputs["q_offset"][n])
        self.keys = []
        for t in range(cached):
            if not (in_cache and self.is_padding(t)):
                self.add_cached(inputs, n, t)
        if "cu_seqlens_k" in inputs:
            begin, end = (int(x) for x in inputs["cu_seqlens_k"][n:n + 2])
            for i in range(end - begin):
                if not self.is_padding(cached + i):
                    self.keys.append((cached + i, inputs["k"][begin + i], inputs["v"][begin + i]))

    def is_padding(self, t):
        return self.offset + self.valid <= t < self.offset + self.queries

    def add_cached(self, inputs, n, t):
        nhd = self.convention["kv_layout"] == "nhd"
        size = inputs["k_cache"].shape[1 if nhd else 2]
        if "page_table" in inputs:
            page = int(inputs["page_table"][n][t // size])
        else:
            page = int(inputs["page_indices"][inputs["page_indptr"][n] + t // size])
        if page < 0:
            assert self.convention["missing_page"] == "skip"
            return
        pick = (lambda x: x[page, t % size]) if nhd else (lambda x: x[page, :, t % size])
        self.keys.append((t, pick(inputs["k_cache"]), pick(inputs["v_cache"])))

    def sees(self, t, t_q):
        c = self.convention
        if 0 <= c["window_left"] < t_q - t or 0 <= c["window_right"] < t - t_q:
            return False
        if c["mask"] == "causal":
            return t <= t_q
        if c["mask"] == "block_causal":
            base = self.offset if c["block_base"] == "segment" else 0
            return (t - base) // int(c["block"]) <= (t_q - base) // int(c["block"])
        return True


def exact_row(request, convention, scale, q, i, head):
    """(o, lse, largest |v|) of query i; None without a key."""
    total, scores = mpf(0), []
    for t, k, v in request.keys:
        if not request.sees(t, request.offset + i):
            continue
        s = scale * sum((mpf(a) * mpf(b) for a, b in zip(q, k[head])), mpf(0))
        if convention["soft_cap"] > 0:
            s = mpf(convention["soft_cap"]) * tanh(s / mpf(convention["soft_cap"]))
        scores.append((s, v[head]))
    if not scores:
        return None
    top = max(s for s, _ in scores)
    o = [mpf(0)] * len(scores[0][1])
    for s, v in scores:
        w = exp(s - top)
        total += w
        o = [x + w * mpf(y) for x, y in zip(o, v)]
    lse = top + log(total)
    largest = max(float(np.abs(v).max()) for _, v in scores)
    return [x / total for x in o], lse / log(2) if convention["lse_base"] == "2" else lse, largest


def check(path, rows_of_case):
    """The number of elements compared, and what is wrong."""
    _, convention, inputs, golden = read(path)
    tokens, query_heads, K = inputs["q"].shape
    keys = inputs["k"] if "k" in inputs else inputs["k_cache"]
    key_heads = keys.shape[1 if keys.ndim == 3 or convention["kv_layout"] == "hnd" else 2]
    scale = mpf(float(convention["scale"])) if "scale" in convention else None
    if scale is None:
        scale = mpf(float(1 / mp.sqrt(mpf(K))))
    o, o_radius = golden["o"]
    lse, lse_radius = golden["lse"]
    if convention["lse_layout"] == "ht":
        lse = lse.T
    compared, wrong = 0, []

    def compare(what, y, x, radius, size):
        nonlocal compared
        compared += 1
        error = abs(mpf(float(y)) - x)
        relative = mpf(1e-15) * abs(x) + mpf(2) ** -1074
        if error > radius or (error > relative and abs(x) > mpf(2) ** -80 * size):
            wrong.append(f"{path.name} {what}: {float(y)!r}, exact {mp.nstr(x, 20)}")

    places = [(n, i, j) for n in range(len(inputs["cu_seqlens_q"]) - 1)
              for i in range(int(inputs["cu_seqlens_q"][n + 1] - inputs["cu_seqlens_q"][n]))
              for j in range(query_heads)]
    step = max(1, len(places) // rows_of_case)
    requests = {}
    for n, i, j in places[::step]:
        request = requests.setdefault(n, Request(convention, inputs, n))
        row = request.first + i
        head = j // (query_heads // key_heads) if convention["head_map"] == "grouped" else j % key_heads
        exact = (exact_row(request, convention, scale, inputs["q"][row, j], i, head)
                 if i < request.valid else None)
        if exact is None:
            compared += 1
            if np.any(o[row, j] != 0) or lse[row, j] != -inf:
                wrong.append(f"{path.name} row {row}, head {j}: sees no key, but {lse[row, j]}")
            continue
        for x in range(0, len(exact[0]), 7):
            compare(f"o[{row},{j},{x}]", o[row, j, x], exact[0][x], o_radius, exact[2])
        compare(f"lse[{row},{j}]", lse[row, j], exact[1], lse_radius, 1.0)
    return compared, wrong


def work_of(line):
    keys = dict(field.split("=") for field in line.split())
    count = lambda text: sum(int(r.split("x")[-1]) * (int(r.split("x")[0]) if "x" in r else 1)
                             for r in text.split(",")) if text else 0
    queries = count(keys["lens"])
    longest = count(keys.get("ctx", "")) + count(keys.get("keys", keys["lens"]))
    return queries * longest * int(keys["HV"]) * (int(keys["K"]) + int(keys["V"]))


def main():
    program, directory = sys.argv[1], Path(sys.argv[2])
    rows = int(sys.argv[sys.argv.index("--rows") + 1]) if "--rows" in sys.argv else 6
    lines = []
    for suite in ("attention_smoke", "attention_boundary"):
        done = subprocess.run([program, "list", suite], check=True, capture_output=True, text=True)
        lines += [line for line in done.stdout.splitlines() if work_of(line) <= MOST_WORK]
    lines = lines[:10] + lines[10::3]
    for line in lines:
        subprocess.run([program, "generate", line, "-o", str(directory)], check=True,
                       stdout=subprocess.DEVNULL)
    compared, failures, cases = 0, [], 0
    for path in sorted(directory.glob("*.h5")):
        count, wrong = check(path, rows)
        compared += count
        failures += wrong
        cases += 1
    for text in failures[:20]:
        print(text)
    print(f"{cases} cases, {compared} elements, {len(failures)} wrong")
    return 1 if failures or cases < LEAST_CASES else 0


if __name__ == "__main__":
    sys.exit(main())

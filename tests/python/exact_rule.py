# SPDX-License-Identifier: Apache-2.0
# Length: one file, so that the check of the oracle can be read, copied and run alone.
"""The delta rule a second time, in another language and another arithmetic.

Why: the oracle judges every kernel, so something has to judge the oracle. This file is written
from the specification alone (the recurrence, the conventions, the file schema), shares no code
with the C++ library and uses none of its tricks: no chunks, no tiles, no layouts in memory, no
error bounds; just lists of multiprecision numbers, token by token:

    k^ = norm(k_t)      q^ = scale * norm(q_t)
    S' = diag(alpha_t) S                      S is K x V, alpha_t one number (GDN) or K (KDA)
    d  = beta_t (v_t - S'^T k^)
    S  = S' + k^ d^T                          o_t = S^T q^

A token of a tree continues the S of its parent. Tokens that wait in a ring come before those of the
call: of them d, k^ and log alpha are given,

    S = diag(alpha) S + k d^T.

The columns of S never meet, so the unit of work is a lane: (sequence, value head, some columns).
A caller may evaluate any subset of lanes; every token of a chosen lane is run.

How: mpmath `mpf`, PRECISION_BITS significand bits and an unbounded exponent, so that nothing
overflows, and exp(-2661) is a number like any other. Inputs (f64, f32, f16, bf16) convert exactly.

Letters: J rings of W places, B rows, N sequences, T tokens, H query/key heads, HV value heads, K,
V, P pool slots.
Token axes are flattened everywhere: token t of row b is b * T + t, and so is the row [b,t] of
intermediate_states; a "block" is one such row, or one slot of final_state.
"""

import random
from collections import namedtuple

import h5py
import numpy as np
from mpmath import mp, mpf

PRECISION_BITS = 256
TOO_LARGE = 40  # times the work asked for: a case whose cheapest lane costs more is not run

# Every attribute of /convention. Names: the legal values, the default first. Numbers: the default.
NAMES = {
    "state_layout": ("vk", "kv"),
    "gate": ("softplus", "bounded", "log", "log2", "linear", "none"),
    "beta": ("sigmoid", "sigmoid2", "direct"),
    "qk_l2norm": ("rsqrt_sum_eps", "none", "max_norm_eps", "norm_plus_eps"),
    "head_map": ("grouped", "tiled"),
    "gate_head": ("v", "qk"),
}
NUMBERS = {
    "softplus_beta": 1.0,
    "softplus_threshold": 20.0,
    "lower_bound": -5.0,
    "l2_eps": 1e-6,
    "scale": None,
    "pad_slot": -1,
    "disable_state_update": 0,
}

# inputs: name -> array in the type that h5py reads (bf16 arrives as float32: exact).
Case = namedtuple("Case", "op mode convention inputs tokens H HV K V rows T slots")

# Starts from block `start` of initial_state (None: from zero); snapshots: (after, target, block),
# "the state after `after` tokens is block `block` of output `target`".
# Drafts: `parents` of its tokens (None: a chain); `pending` places (ring, place), oldest first, and
# `places` (ring, place) where its own tokens go.
Sequence = namedtuple("Sequence", "first count start padded snapshots parents pending places",
                      defaults=(None, (), ()))

# One exact element and the size of the largest number that went into it: an absolute error
# measured against `magnitude` says how much cancellation left of the precision.
Exact = namedtuple("Exact", "value magnitude")


def read_case(path):
    """The Case of one fixture or capture. Raises ValueError naming what is wrong."""
    with h5py.File(path, "r") as file:
        if text(file.attrs["schema"]) != "goldenrule/1":
            raise ValueError(f"schema {file.attrs['schema']!r}")
        attributes = {name: text(value) for name, value in file["convention"].attrs.items()}
        inputs = {name: file["inputs"][name][...] for name in file["inputs"]}
        return make_case(text(file.attrs["op"]), text(file.attrs["mode"]), attributes, inputs)


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def make_case(op, mode, attributes, inputs):
    """A Case from a convention (a dict, defaults left out) and arrays shaped as in the schema."""
    if op not in ("gated_delta_rule", "kda") or mode not in ("decode", "mtp", "prefill"):
        raise ValueError(f"op {op!r}, mode {mode!r}")
    convention = {name: legal[0] for name, legal in NAMES.items()}
    convention.update(NUMBERS)
    for name, value in attributes.items():
        if name not in convention or (name in NAMES and value not in NAMES[name]):
            raise ValueError(f"convention {name}={value!r}")
        convention[name] = value

    packed = "cu_seqlens" in inputs
    lead = 1 if packed else 2  # token axes in front of the head axis
    rows, T = (None, None) if packed else inputs["q"].shape[:2]
    H, K = inputs["q"].shape[lead:]
    HV, V = inputs["v"].shape[lead:]
    if H == 0 or HV % H != 0:
        raise ValueError(f"HV={HV} is not a multiple of H={H}")
    arrays = {}
    for name, array in inputs.items():
        array = np.asarray(array)
        if name in ("q", "k", "v", "a", "b", "g", "beta", "parent_tokens"):
            array = array.reshape((-1,) + array.shape[lead:])
        arrays[name] = array
    tokens = arrays["q"].shape[0]
    if packed:
        rows = len(arrays["cu_seqlens"]) - 1
    slots = arrays["initial_state"].shape[0] if "initial_state" in arrays else rows
    case = Case(op, mode, convention, arrays, tokens, H, HV, K, V, rows, T, slots)
    check_shapes(case)
    return case


def check_shapes(case):
    """numpy would broadcast or truncate silently where a gate or a state has a wrong extent."""
    per_head = (case.K,) if case.op == "kda" else ()
    gate_heads = case.HV if case.convention["gate_head"] == "v" else case.H
    state = (case.V, case.K) if case.convention["state_layout"] == "vk" else (case.K, case.V)
    expected = {
        "q": (case.tokens, case.H, case.K),
        "k": (case.tokens, case.H, case.K),
        "v": (case.tokens, case.HV, case.V),
        "a": (case.tokens, case.HV) + per_head,
        "g": (case.tokens, case.HV) + per_head,
        "b": (case.tokens, case.HV),
        "beta": (case.tokens, case.HV),
        "A_log": (gate_heads,),
        "dt_bias": (gate_heads,) + per_head,
        "initial_state": (case.slots, case.HV) + state,
        "parent_tokens": (case.tokens,),
    }
    if "initial_ring_d" in case.inputs:
        rings, _, places, _ = case.inputs["initial_ring_d"].shape
        gates = per_head if case.convention["gate"] != "none" else ()
        expected.update(initial_ring_d=(rings, case.HV, places, case.V),
                        initial_ring_k=(rings, case.H, places, case.K),
                        initial_ring_g=(rings, case.HV, places) + gates)
    for name, shape in expected.items():
        if name in case.inputs and case.inputs[name].shape != shape:
            raise ValueError(f"/inputs/{name}: {case.inputs[name].shape}, expected {shape}")


def flatten(case, name, array):
    """Token axes as one, and states as [block, head, key index, column] whatever the layout."""
    if name.startswith("ring_"):  # [ring, head, place, element]
        if array.shape != case.inputs["initial_" + name].shape:
            raise ValueError(f"{name}: {array.shape}")
        return array.reshape(array.shape[:3] + (-1,))
    lead = 1 if "cu_seqlens" in case.inputs or name == "final_state" else 2  # tokens, slots, ..
    array = array.reshape((-1,) + array.shape[lead:])
    if name != "o" and case.convention["state_layout"] == "vk":
        array = array.swapaxes(2, 3)
    state = (case.HV, case.K, case.V)
    shape = {
        "o": (case.tokens, case.HV, case.V),
        "final_state": (case.slots,) + state,
        "intermediate_states": (case.tokens,) + state,
        "checkpoints": (len(case.inputs.get("checkpoint_offsets", ())),) + state,
    }[name]
    if array.shape != shape:
        raise ValueError(f"{name}: {array.shape}, expected {shape}")
    return array


# --- which state each row starts from and which states it leaves -------------------------------


def sequences(case):
    """The calls' independent sequences, in row order."""
    if case.mode == "prefill":
        bounds = [int(x) for x in case.inputs["cu_seqlens"]]
        return [packed_row(case, n, begin, end - begin)
                for n, (begin, end) in enumerate(zip(bounds, bounds[1:]))]
    bounds = case.inputs.get("cu_seqlens", [b * (case.T or 0) for b in range(case.rows + 1)])
    return [pool_row(case, b, int(bounds[b]), int(bounds[b + 1] - bounds[b]))
            for b in range(case.rows)]


def is_new(case, row):
    """Whether the row starts from zero, whatever its slot holds."""
    flags = case.inputs.get("has_initial_state")
    return flags is not None and int(flags[row]) == 0


def packed_row(case, n, first, count):
    """Sequence n of a prefill call: it has a state of its own, or slots of a pool as in decode."""
    start = n if "initial_state" in case.inputs else None
    target = n
    if "state_indices" in case.inputs:
        start = target = int(case.inputs["state_indices"][n])
        if start == case.convention["pad_slot"]:
            return Sequence(first, count, None, True, [])
    if is_new(case, n):
        start = None
    if "output_state_indices" in case.inputs:
        target = int(case.inputs["output_state_indices"][n])
    kept = "state_indices" in case.inputs and (target == case.convention["pad_slot"]
                                               or case.convention["disable_state_update"])
    snapshots = [] if kept else [(count, "final_state", target)]
    if "checkpoint_offsets" in case.inputs:
        begin, end = case.inputs["cu_checkpoints"][n:n + 2]
        snapshots += [(int(case.inputs["checkpoint_offsets"][r]), "checkpoints", r)
                      for r in range(int(begin), int(end))]
    return Sequence(first, count, start, False, snapshots)


def ring_places(case, b, count):
    """Where the pending tokens of row b stand, and where its own go; nothing without rings."""
    if "initial_ring_d" not in case.inputs:
        return [], []
    ring = int(case.inputs["ring_indices"][b]) if "ring_indices" in case.inputs else b
    start, pending = int(case.inputs["ring_start"][b]), int(case.inputs["ring_count"][b])
    size = case.inputs["initial_ring_d"].shape[2]
    places = [(ring, (start + n) % size) for n in range(pending + count)]
    return places[:pending], places[pending:]


def pool_row(case, b, first, count):
    """Row b of a decode or MTP call: it reads one slot of the pool and may write others."""
    pad = case.convention["pad_slot"]
    if "ssm_state_indices" in case.inputs:  # token t leaves its state in slot ssm[b,t]
        slots = [int(x) for x in case.inputs["ssm_state_indices"][b]]
        if "state_indices" in case.inputs:
            start = int(case.inputs["state_indices"][b])
        else:
            start = slots[int(case.inputs["num_accepted_tokens"][b]) - 1]
        padded = start == pad
        writes = [(t + 1, slot) for t, slot in enumerate(slots[:count]) if slot != pad]
    else:
        start = int(case.inputs["state_indices"][b]) if "state_indices" in case.inputs else b
        padded = "state_indices" in case.inputs and start == pad
        accepted = case.inputs.get("accepted_tokens")
        after = count if accepted is None else int(accepted[b])
        if "initial_ring_d" in case.inputs:  # pending tokens alone
            after = int(case.inputs["ring_count"][b]) if case.inputs.get(
                "ring_flush", [0] * case.rows)[b] else None
        writes = [(after, start)]
        if "output_state_indices" in case.inputs:
            slot = int(case.inputs["output_state_indices"][b])
            writes = [(after, slot)] if slot != pad else []
    if padded:
        return Sequence(first, count, None, True, [])
    snapshots = []
    if not case.convention["disable_state_update"]:
        snapshots += [(after, "final_state", slot) for after, slot in writes if after is not None]
        if "checkpoint_state_indices" in case.inputs:
            slot = int(case.inputs["checkpoint_state_indices"][b])
            if slot != pad:
                snapshots.append((int(case.inputs["checkpoint_tokens"][b]), "final_state", slot))
    if case.mode == "mtp" and "initial_ring_d" not in case.inputs:
        snapshots += [(t + 1, "intermediate_states", first + t) for t in range(count)]
    parents = None
    if "parent_tokens" in case.inputs:
        parents = [int(p) for p in case.inputs["parent_tokens"][first:first + count]]
    pending, places = ring_places(case, b, count)
    return Sequence(first, count, None if is_new(case, b) else start, False, snapshots, parents,
                    pending, places)


# --- the small functions of the rule -----------------------------------------------------------


def numbers(array):
    """Storage values as mpf: exact, whatever the working precision."""
    return [mpf(float(x)) for x in array]


def qk_head(case, j):
    if case.convention["head_map"] == "tiled":
        return j % case.H
    return j // (case.HV // case.H)


def normalize(x, form, eps):
    """x: K numbers. The forms differ in where eps stands; near |x| = 0 that is visible."""
    if form == "none":
        return x
    total = mp.fdot(x, x)
    if form == "rsqrt_sum_eps":
        divisor = mp.sqrt(total + eps)
    elif form == "max_norm_eps":
        divisor = max(mp.sqrt(total), eps)
    else:
        divisor = mp.sqrt(total) + eps
    if not divisor:  # a zero row without eps: 0/0, where mpmath raises
        return [mp.nan] * len(x)
    return [value / divisor for value in x]


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def softplus(x, beta, threshold):
    if beta * x > threshold:
        return x
    return mp.log1p(mp.exp(beta * x)) / beta


def scale_of(case):
    given = case.convention["scale"]
    if given is None:  # by definition a double: K^-0.5 rounded once
        return mpf(float(1 / mp.sqrt(case.K)))
    return mpf(float(given))


def gate_input(case, name, t, j):
    """The gate's input of token t, value head j as a list: K numbers for KDA, one for GDN."""
    return numbers(np.atleast_1d(case.inputs[name][t, j]))


def log_decay(case, t, j):
    """log alpha of the gates that are computed from a, A_log and dt_bias."""
    c = case.convention
    head = j if c["gate_head"] == "v" else qk_head(case, j)
    x = gate_input(case, "a", t, j)
    if "dt_bias" in case.inputs:
        x = [u + w for u, w in zip(x, numbers(np.atleast_1d(case.inputs["dt_bias"][head])))]
    rate = mpf(1)
    if "A_log" in case.inputs:
        rate = mp.exp(mpf(float(case.inputs["A_log"][head])))
    elif c["gate"] == "softplus":
        raise ValueError("gate softplus without A_log")
    if c["gate"] == "softplus":
        beta, threshold = mpf(float(c["softplus_beta"])), mpf(float(c["softplus_threshold"]))
        return [-rate * softplus(u, beta, threshold) for u in x]
    return [mpf(float(c["lower_bound"])) * sigmoid(rate * u) for u in x]


def log_alpha(case, t, j):
    """log alpha of token t, value head j: one number for GDN, K for KDA; not of a given alpha."""
    gate = case.convention["gate"]
    if gate == "none":
        return [mpf(0)]
    if gate == "log":
        return gate_input(case, "g", t, j)
    if gate == "log2":
        return [g * mp.ln2 for g in gate_input(case, "g", t, j)]
    return log_decay(case, t, j)


def of_all_keys(case, gates):
    return gates if len(gates) == case.K else gates * case.K


def decay(case, t, j):
    """alpha of token t, value head j: always K numbers."""
    if case.convention["gate"] == "linear":
        return of_all_keys(case, gate_input(case, "g", t, j))
    return of_all_keys(case, [mp.exp(g) for g in log_alpha(case, t, j)])


def write_strength(case, t, j):
    """beta of token t, value head j."""
    form = case.convention["beta"]
    if form == "direct":
        return mpf(float(case.inputs["beta"][t, j]))
    gate = sigmoid(mpf(float(case.inputs["b"][t, j])))
    return 2 * gate if form == "sigmoid2" else gate


def step(S, k, q, alpha, beta, v):
    """One token, one value column. S, k, q, alpha: K numbers. Returns the new S, o and d."""
    decayed = [a * s for a, s in zip(alpha, S)]
    d = beta * (v - mp.fdot(decayed, k))
    updated = [s + x * d for s, x in zip(decayed, k)]
    return updated, mp.fdot(updated, q), d


# --- lanes -------------------------------------------------------------------------------------


def start_column(case, sequence, j, c):
    if sequence.start is None:
        return [mpf(0)] * case.K
    block = case.inputs["initial_state"][sequence.start, j]
    return numbers(block[c, :] if case.convention["state_layout"] == "vk" else block[:, c])


def replay(case, sequence, j, S, reach, peak):
    """Takes the columns through the tokens that wait in the ring."""
    h = qk_head(case, j)
    for ring, place in sequence.pending:
        k = numbers(case.inputs["initial_ring_k"][ring, h, place])
        gates = numbers(np.atleast_1d(case.inputs["initial_ring_g"][ring, j, place]))
        alpha = of_all_keys(case, [mp.exp(g) for g in gates])
        for c in S:
            d = mpf(float(case.inputs["initial_ring_d"][ring, j, place, c]))
            S[c] = [a * s + x * d for a, s, x in zip(alpha, S[c], k)]
            reach[c] = largest(alpha) * reach[c] + largest(k) * abs(d)
            peak[c] = max(peak[c], reach[c])


def ring_entries(case, t, j, k, alpha, where):
    """k^ and log alpha of token t as they go to a place of a ring."""
    ring, place = where
    if case.convention["gate"] == "linear":
        gates = [mp.log(a) for a in alpha[:1 if case.op != "kda" else case.K]]
    else:
        gates = log_alpha(case, t, j)
    entries = {("ring_k", ring, qk_head(case, j), place, i): Exact(x, abs(x))
               for i, x in enumerate(k)}
    entries.update({("ring_g", ring, j, place, i): Exact(g, abs(g)) for i, g in enumerate(gates)})
    return entries


def largest(values):
    return max((abs(x) for x in values), default=mpf(0))


def run_lane(case, sequence, j, columns):
    """Runs every token of value head j of one sequence for the given value columns.

    Returns {("o", token, j, column): Exact,
             ("ring_d", ring, j, place, column), ("ring_k", ring, h, place, key index),
             ("ring_g", ring, j, place, gate): Exact,
             ("final_state" | "intermediate_states", block, j, key index, column): Exact}.
    Nothing for a padded row: it has no state, and its o is zero by definition.
    """
    results = {}
    if sequence.padded:
        return results
    h = qk_head(case, j)
    norm = case.convention["qk_l2norm"], mpf(float(case.convention["l2_eps"]))
    scale = scale_of(case)
    S = {c: start_column(case, sequence, j, c) for c in columns}
    # Magnitudes: no |S[c][i]| has ever exceeded peak[c]; reach[c] bounds the current state, by
    # the triangle inequality. Both only describe the result, nothing is computed from them.
    reach = {c: largest(S[c]) for c in columns}
    peak = dict(reach)

    def take_snapshots(after):
        for wanted, target, block in sequence.snapshots:
            if wanted == after:
                for c in columns:
                    for i in range(case.K):
                        results[target, block, j, i, c] = Exact(S[c][i], peak[c])

    take_snapshots(0)
    replay(case, sequence, j, S, reach, peak)
    pending = len(sequence.pending)
    if pending:
        take_snapshots(pending)
    after = {-1: S}  # a tree goes back to the states of parents
    for n in range(sequence.count):
        t = sequence.first + n
        parent = n - 1 if sequence.parents is None else sequence.parents[n]
        S = dict(after[parent])
        k = normalize(numbers(case.inputs["k"][t, h]), *norm)
        q = [scale * x for x in normalize(numbers(case.inputs["q"][t, h]), *norm)]
        alpha = decay(case, t, j)
        beta = write_strength(case, t, j)
        k_max, alpha_max, q_sum = largest(k), largest(alpha), mp.fsum(q, absolute=True)
        for c in columns:
            v = mpf(float(case.inputs["v"][t, j, c]))
            S[c], o, d = step(S[c], k, q, alpha, beta, v)
            before = reach[c] if sequence.parents is None else peak[c]
            reach[c] = alpha_max * before + k_max * abs(d)
            peak[c] = max(peak[c], reach[c], k_max * abs(beta * v))
            results["o", t, j, c] = Exact(o, peak[c] * q_sum)
            if sequence.places:
                size = abs(beta) * (abs(v) + peak[c] * mp.fsum(k, absolute=True))
                results[("ring_d", sequence.places[n][0], j, sequence.places[n][1], c)] = Exact(
                    d, size)
        if sequence.places:
            results.update(ring_entries(case, t, j, k, alpha, sequence.places[n]))
        after[n] = S
        if not sequence.places:
            take_snapshots(n + 1)
    return results


def evaluate(case, lanes, bits=PRECISION_BITS):
    """Exact outputs of `lanes`, a list of (Sequence, value head, columns), in one dict."""
    results = {}
    with mp.workprec(bits):
        for sequence, j, columns in lanes:
            results.update(run_lane(case, sequence, j, columns))
    return results


# --- which lanes to run -------------------------------------------------------------------------


def lane_cost(case, sequence, columns):
    """In multiply-adds. A computed gate costs exponentials, each about 20 of them."""
    gates = 0
    if case.op == "kda" and case.convention["gate"] not in ("none", "linear"):
        gates = 20
    tokens = sequence.count + len(sequence.pending)
    return max(1, tokens) * case.K * (columns + 3 + gates)


def choose_lanes(case, plan, work, seed=0):
    """Lanes for about `work` multiply-adds: everything where that is enough, else a sample.

    Deterministic. The first and last columns, heads and sequences (where tails go wrong) and the
    longest sequence come before random ones. Empty if even the cheapest lane is far too large.
    """
    live = [n for n, sequence in enumerate(plan) if not sequence.padded]
    pairs = [(n, j) for n in live for j in range(case.HV)]
    if not pairs or case.V == 0:
        return []
    if sum(lane_cost(case, plan[n], case.V) for n, _ in pairs) <= work:
        return [(plan[n], j, range(case.V)) for n, j in pairs]
    rng = random.Random(seed)
    rng.shuffle(pairs)
    longest = max(live, key=lambda n: plan[n].count)
    last = case.HV - 1
    first_choice = [(longest, 0), (live[-1], last), (live[0], 0), (longest, last)]
    lanes, spent = [], 0
    for n, j in dict.fromkeys(first_choice + pairs):
        columns = sorted({0, case.V - 1, rng.randrange(case.V), rng.randrange(case.V)})
        cost = lane_cost(case, plan[n], len(columns))
        if spent + cost <= work:
            lanes.append((plan[n], j, columns))
            spent += cost
    if not lanes:
        n, j = min(pairs, key=lambda pair: plan[pair[0]].count)
        if lane_cost(case, plan[n], 1) <= TOO_LARGE * work:
            lanes.append((plan[n], j, [case.V - 1]))
    return lanes

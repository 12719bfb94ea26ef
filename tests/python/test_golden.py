#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Length: one file, so that the check of the oracle can be read, copied and run alone.
"""Are the golden values of a fixture right? An answer that shares nothing with the oracle.

    test_golden.py PATH... [--min-cases 30] [--work N]   judge /golden of fixtures (files, folders)
    test_golden.py PATH... --outputs                     error of /outputs of captures, no verdict
    test_golden.py --self-test                           needs no fixture

Exit code 0: every case passed and there were enough; 1: not so; 2: a file could not be read.

Let x be the exact value (exact_rule.py), y the golden one, r the attribute `radius` of its
dataset, p the precision_bits of the file and m the magnitude of the numbers that x was summed
from. What is demanded of every compared element:

  (1) |y - x| <= r. The radius is a certificate; one counter-example refutes it.
  (2) |y - x| <= 1e-15 |x| + 2^-1074. The second term is one subnormal step: near underflow a
      double cannot be relatively accurate, and a value that comes from a wider type may have been
      rounded twice.
  An element may miss (2), and is then counted as `cancelled`, only where |x| <= 2^(60-p) m:
  a p-bit computation leaves errors of about 2^10 m 2^-p (the growth over some thousand
  operations), and 1e-15 is 2^-50. Where golden comes from the double tier (p = 53) this excuses
  every element; such a case is reported as `radius only` and does not count as a case.

x itself carries an error, at most m 2^-(bits-40): 2^21 roundings per lane and as much again for
growth. It is added to (1), and proven in every case: one column is run again with twice the bits.

Beyond the sample, over the whole file: o of padded rows is zero, and slots that nobody writes
equal the initial state.
"""

import argparse
import contextlib
import io
import math
import sys
import tempfile
import time
import unittest
import unittest.mock
import zlib
from collections import namedtuple
from fractions import Fraction
from pathlib import Path

import h5py
import numpy as np
from mpmath import mp, mpf

import exact_rule
from exact_rule import PRECISION_BITS

RELATIVE = mpf(1e-15)
SUBNORMAL_STEP = mpf(2) ** -1074
LARGEST_DOUBLE = mpf(sys.float_info.max)
DEFAULT_WORK = 250_000  # about 1 to 2 seconds a case

# max_relative: over elements that are normal doubles and not cancelled.
Report = namedtuple(
    "Report", "op mode compared cancelled max_relative agreement_bits radius_only failures")


# --- one file ----------------------------------------------------------------------------------


def agreement_bits(case, lane, results):
    """-log2 of the largest difference/magnitude, the lane's last column run with twice the bits."""
    sequence, j, columns = lane
    column = list(columns)[-1]
    wider = exact_rule.evaluate(case, [(sequence, j, [column])], 2 * PRECISION_BITS)
    worst = mpf(0)
    with mp.workprec(2 * PRECISION_BITS):
        for key, exact in wider.items():
            if exact.magnitude and mp.isfinite(exact.value):
                worst = max(worst, abs(exact.value - results[key].value) / exact.magnitude)
        return float(-mp.log(worst, 2)) if worst else math.inf


def load_group(path, case, group):
    """{name: (flattened values, radius or None)} of /golden or /outputs, and precision_bits."""
    with h5py.File(path, "r") as file:
        bits = file.attrs.get("precision_bits", file[group].attrs.get("precision_bits"))
        tensors = {}
        for name, dataset in file[group].items():
            radius = dataset.attrs.get("radius")
            tensors[name] = (exact_rule.flatten(case, name, dataset[...]),
                             None if radius is None else float(radius))
    return tensors, None if bits is None else int(bits)


def judge_element(golden, exact, radius, bits):
    """(failure text or None, cancelled, relative error or None)."""
    x = exact.value
    if not mp.isfinite(x):
        same = math.isnan(golden) if mp.isnan(x) else golden == float(x)
        return (None if same else "not the same special value"), False, None
    if abs(x) > LARGEST_DOUBLE:
        overflowed = math.isinf(golden) and (golden > 0) == (x > 0)
        return (None if overflowed else "exact value overflows double"), False, None
    if not math.isfinite(golden):
        return "golden is not finite", False, None
    error = abs(mpf(golden) - x)
    own_error = mp.ldexp(exact.magnitude, 40 - PRECISION_BITS)
    if not error <= mpf(radius) + own_error:
        return f"error {mp.nstr(error, 4)} exceeds the radius {radius:.4g}", False, None
    if error <= RELATIVE * abs(x) + SUBNORMAL_STEP:
        normal = abs(x) >= sys.float_info.min
        return None, False, (float(error / abs(x)) if normal else None)
    if abs(x) <= mp.ldexp(exact.magnitude, 60 - bits):
        return None, True, None
    return f"relative error {mp.nstr(error / abs(x), 4)} exceeds 1e-15", False, None


def whole_file_failures(case, plan, tensors):
    """What needs no arithmetic: padded rows and slots that nobody writes."""
    failures = []
    o = tensors["o"][0]
    for b, row in enumerate(plan):
        if row.padded and np.any(o[row.first:row.first + row.count] != 0):
            failures.append(f"o of padded row {b} is not zero")
    if "initial_state" in case.inputs:
        initial = exact_rule.flatten(case, "final_state", case.inputs["initial_state"])
        written = {block for row in plan for _, name, block in row.snapshots
                   if name == "final_state"}
        for slot in set(range(case.slots)) - written:
            if not np.array_equal(tensors["final_state"][0][slot], initial[slot], equal_nan=True):
                failures.append(f"slot {slot}, which nobody writes, is not the initial state")
    added = {place for row in plan for place in row.places}
    for name in ("ring_d", "ring_k", "ring_g"):
        if name not in tensors:
            continue
        before = exact_rule.flatten(case, name, case.inputs["initial_" + name])
        for ring, place in np.ndindex(before.shape[0], before.shape[2]):
            if (ring, place) not in added and not np.array_equal(
                    tensors[name][0][ring, :, place], before[ring, :, place]):
                failures.append(f"{name}: place {place} of ring {ring}, which nobody writes")
    return failures


def judge_file(path, work):
    """Report of one fixture, or a text that says why it was skipped."""
    case = exact_rule.read_case(path)
    plan = exact_rule.sequences(case)
    tensors, bits = load_group(path, case, "golden")
    if bits is None:
        raise ValueError("no attribute precision_bits")
    for name in ("o", "final_state"):
        if name not in tensors:
            raise ValueError(f"no dataset /golden/{name}")
    failures = whole_file_failures(case, plan, tensors)
    failures += [f"{name}: no attribute radius" for name in tensors if tensors[name][1] is None]
    seed = zlib.crc32(Path(path).name.encode())
    lanes = exact_rule.choose_lanes(case, plan, work, seed)
    if not lanes and not failures and any(row.count for row in plan if not row.padded):
        return "the cheapest lane is too large (--work)"
    results = exact_rule.evaluate(case, lanes)
    longest = max(lanes, key=lambda lane: lane[0].count, default=None)
    agreement = agreement_bits(case, longest, results) if lanes else math.inf
    if agreement < PRECISION_BITS - 40:
        failures.append(f"exact_rule agrees with itself to {agreement:.0f} bits only")
    compared, cancelled, max_relative = 0, 0, 0.0
    with mp.workprec(PRECISION_BITS):
        for (name, *index), exact in results.items():
            if name not in tensors or tensors[name][1] is None:
                continue
            values, radius = tensors[name]
            golden = float(values[tuple(index)])
            failure, excused, relative = judge_element(golden, exact, radius, bits)
            compared += 1
            cancelled += excused
            max_relative = max(max_relative, relative or 0.0)
            if failure:
                failures.append(f"{name}{index}: {failure}: golden {golden!r}, "
                                f"exact {mp.nstr(exact.value, 20)}")
    return Report(case.op, case.mode, compared, cancelled, max_relative, agreement,
                  bits <= 60, failures)


def output_errors(path, work):
    """{name: (relative RMSE over the sampled finite elements, elements, not finite)}."""
    case = exact_rule.read_case(path)
    plan = exact_rule.sequences(case)
    tensors, _ = load_group(path, case, "outputs")
    results = exact_rule.evaluate(case, exact_rule.choose_lanes(case, plan, work, 0))
    sums = {name: [mpf(0), mpf(0), 0, 0] for name in tensors}
    for (name, *index), exact in results.items():
        if name in tensors:
            value = float(tensors[name][0][tuple(index)])
            entry = sums[name]
            entry[2 if math.isfinite(value) else 3] += 1
            if math.isfinite(value):
                entry[0] += (mpf(value) - exact.value) ** 2
                entry[1] += exact.value ** 2
    return {name: (float(mp.sqrt(e / s)) if s else math.nan, n, bad)
            for name, (e, s, n, bad) in sums.items()}


# --- many files --------------------------------------------------------------------------------


def fixture_files(paths):
    for path in map(Path, paths):
        yield from sorted(path.rglob("*.h5")) if path.is_dir() else [path]


def judge_all(paths, min_cases, work):
    """Prints one line a case and a summary. Returns the exit code."""
    passed, failed, skipped = [], 0, 0
    for path in fixture_files(paths):
        start = time.monotonic()
        try:
            report = judge_file(path, work)
        except (OSError, KeyError, ValueError) as error:
            print(f"ERROR {path}: {error}")
            return 2
        if isinstance(report, str):
            print(f"SKIP  {path.name}: {report}")
            skipped += 1
            continue
        note = " (radius only)" if report.radius_only else ""
        print(f"{'FAIL ' if report.failures else 'ok   '} {path.name}: {report.op} {report.mode}, "
              f"max rel {report.max_relative:.2e}{note}, {report.compared} elements, "
              f"{report.cancelled} cancelled, own agreement {report.agreement_bits:.0f} bits, "
              f"{time.monotonic() - start:.1f} s")
        for failure in report.failures[:5]:
            print(f"      {failure}")
        failed += bool(report.failures)
        if not report.failures and not report.radius_only and report.compared:
            passed.append(report)
    covered = {report.op for report in passed} | {report.mode for report in passed}
    missing = {"gated_delta_rule", "kda", "decode", "mtp", "prefill"} - covered
    elements = sum(report.compared for report in passed)
    cancelled = sum(report.cancelled for report in passed)
    worst = max((report.max_relative for report in passed), default=0.0)
    print(f"{len(passed)} cases agree to 1e-15 ({elements} elements, {cancelled} of them cancelled "
          f"and held to the radius, worst relative error {worst:.2e}); {failed} failed, "
          f"{skipped} skipped")
    if len(passed) < min_cases:
        print(f"too few cases: {len(passed)} of {min_cases}")
        return 1
    if min_cases > 0 and missing:
        print(f"not covered: {', '.join(sorted(missing))}")
        return 1
    return 1 if failed else 0


# --- self-test: the rule against closed forms, the judge against planted errors -----------------


def random_inputs(mode, op="gated_delta_rule", lengths=(5, 0, 3), B=2, T=4, H=1, HV=2, K=4, V=3,
                  slots=None, seed=1):
    """float32 inputs for gate softplus and beta sigmoid, in generic position."""
    rng = np.random.default_rng(seed)
    lead = (sum(lengths),) if mode == "prefill" else (B, T)
    blocks = slots or (len(lengths) if mode == "prefill" else B)
    channels = (K,) if op == "kda" else ()
    shapes = {
        "q": lead + (H, K), "k": lead + (H, K), "v": lead + (HV, V), "a": lead + (HV,) + channels,
        "b": lead + (HV,), "A_log": (HV,), "dt_bias": (HV,) + channels,
        "initial_state": (blocks, HV, V, K),
    }
    inputs = {name: rng.standard_normal(shape).astype(np.float32)
              for name, shape in shapes.items()}
    if mode == "prefill":
        inputs["cu_seqlens"] = np.cumsum((0,) + tuple(lengths))
    return inputs


def evaluate_all(case):
    plan = exact_rule.sequences(case)
    return exact_rule.evaluate(case, exact_rule.choose_lanes(case, plan, math.inf))


def bfloat16_type():
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_precision(16)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


def write_fixture(path, op, mode, convention, inputs, change=None):
    """A fixture whose golden values are those of exact_rule, so that judging it must pass.

    q is stored as bf16 and v as f16 (the values must fit). change(golden, radius), if given,
    plants an error: golden is {name: array shaped as in the schema}, radius {name: number}.
    """
    case = exact_rule.make_case(op, mode, convention, inputs)
    states = inputs["initial_state"].shape
    golden = {"o": np.zeros(inputs["v"].shape),
              "final_state": inputs["initial_state"].astype(np.float64)}
    if mode == "mtp":
        golden["intermediate_states"] = np.zeros(inputs["q"].shape[:2] + states[1:])
    flat = {name: exact_rule.flatten(case, name, array) for name, array in golden.items()}
    radius = dict.fromkeys(golden, 0.0)
    with mp.workprec(PRECISION_BITS):
        for (name, *index), exact in evaluate_all(case).items():
            flat[name][tuple(index)] = y = float(exact.value)
            error = float(abs(mpf(y) - exact.value))
            radius[name] = max(radius[name], math.nextafter(error, math.inf))
    if change:
        change(golden, radius)
    with h5py.File(path, "w") as file:
        file.attrs.update({"schema": "goldenrule/1", "op": op, "mode": mode})
        file.attrs["precision_bits"] = PRECISION_BITS
        file.create_group("convention").attrs.update(convention)
        group = file.create_group("inputs")
        for name, array in inputs.items():
            if name == "q":
                space = h5py.h5s.create_simple(array.shape)
                dataset = h5py.h5d.create(group.id, b"q", bfloat16_type(), space)
                dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, array)
            else:
                group[name] = array.astype(np.float16) if name == "v" else array
        for name, array in golden.items():
            file[f"golden/{name}"] = array
            file[f"golden/{name}"].attrs["radius"] = radius[name]


class RuleTest(unittest.TestCase):
    """exact_rule against what can be worked out by hand."""

    def test_scalar_closed_form(self):
        # K = V = 1: S_t = alpha (1 - beta k^2) S + beta k v, in fractions, bit for bit.
        k, q, v, g, beta = ([Fraction(n, 8) for n in row] for row in (
            (3, -5, 8, 1, 7), (1, 2, -3, 4, 5), (9, 0, -7, 6, 2), (7, 8, 0, 3, 5),
            (4, 8, 1, 0, 15)))
        inputs = {name: np.array(x, dtype=np.float64).reshape(5, 1, 1)
                  for name, x in (("k", k), ("q", q), ("v", v))}
        inputs.update(g=np.array(g, dtype=float).reshape(5, 1),
                      beta=np.array(beta, dtype=float).reshape(5, 1),
                      initial_state=np.array([[[[2.5]]]]), cu_seqlens=np.array([0, 5]))
        case = exact_rule.make_case("gated_delta_rule", "prefill", {
            "gate": "linear", "beta": "direct", "qk_l2norm": "none", "scale": 0.5}, inputs)
        results = evaluate_all(case)
        S = Fraction(5, 2)
        for t in range(5):
            S = g[t] * (1 - beta[t] * k[t] ** 2) * S + beta[t] * k[t] * v[t]
            self.assertEqual(as_fraction(results["o", t, 0, 0].value), S * q[t] / 2)
        self.assertEqual(as_fraction(results["final_state", 0, 0, 0, 0].value), S)

    def test_orthonormal_keys_recall(self):
        # Hadamard keys / 2, alpha = beta = 1: after each write, its key reads exactly its value.
        keys = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
        order = [0, 1, 2, 3, 1, 0]  # the last two overwrite
        values = np.arange(1.0, 19.0).reshape(6, 1, 3)
        inputs = {"k": keys[order][:, None], "q": keys[order][:, None], "v": values,
                  "beta": np.ones((6, 1)), "cu_seqlens": np.array([0, 6])}
        case = exact_rule.make_case("gated_delta_rule", "prefill", {
            "gate": "none", "beta": "direct", "qk_l2norm": "none", "scale": 1.0}, inputs)
        results = evaluate_all(case)
        for t in range(6):
            for c in range(3):
                self.assertEqual(results["o", t, 0, c].value, values[t, 0, c])
        final = [values[5], values[4], values[2], values[3]]  # S = sum of key value^T
        for i in range(4):
            for c in range(3):
                self.assertEqual(results["final_state", 0, 0, i, c].value,
                                 sum(keys[n][i] * final[n][0][c] for n in range(4)))

    def test_beta_zero_is_pure_decay(self):
        for op, channels in (("gated_delta_rule", ()), ("kda", (4,))):
            inputs = random_inputs("prefill", op, lengths=(3,))
            g = -np.arange(1.0, 1 + np.prod((3, 2) + channels)).reshape((3, 2) + channels)
            inputs = {name: inputs[name] for name in ("q", "k", "v", "initial_state", "cu_seqlens")}
            inputs.update(g=g, beta=np.zeros((3, 2)))
            results = evaluate_all(exact_rule.make_case(
                op, "prefill", {"gate": "log2", "beta": "direct"}, inputs))
            for j in range(2):
                for i in range(4):
                    total = sum(g[t, j] if op != "kda" else g[t, j, i] for t in range(3))
                    for c in range(3):
                        expected = mp.ldexp(mpf(float(inputs["initial_state"][0, j, c, i])),
                                            int(total))
                        got = results["final_state", 0, j, i, c].value
                        with mp.workprec(PRECISION_BITS):
                            self.assertLess(abs(got / expected - 1), mp.ldexp(1, -240))

    def test_gates_and_norms(self):
        def one_token(x=0.0, A_log=0.0, dt_bias=0.0, K=4, **convention):
            inputs = random_inputs("prefill", lengths=(1,), HV=1, K=K)
            inputs.update(a=np.full((1, 1), x), dt_bias=np.full(1, dt_bias),
                          A_log=np.full(1, A_log), g=np.full((1, 1), x), b=np.full((1, 1), x))
            return exact_rule.make_case("gated_delta_rule", "prefill", convention, inputs)

        def alpha(gate, x, **rest):
            return exact_rule.decay(one_token(x, gate=gate, **rest), 0, 0)[0]

        def beta(form, x):
            return exact_rule.write_strength(one_token(x, beta=form), 0, 0)

        with mp.workprec(PRECISION_BITS):
            half = mpf(1) / 2
            table = [
                # exp(-softplus(x)) = 1 / (1 + e^x): no logarithm on this side
                (alpha("softplus", 3.0), 1 / (1 + mp.e ** 3)),
                (alpha("softplus", -17.0), 1 / (1 + mp.e ** -17)),
                (alpha("softplus", 20.0), 1 / (1 + mp.e ** 20)),
                (alpha("softplus", 20.5), mp.e ** -mpf(20.5)),  # beyond the threshold
                (alpha("softplus", 3.0, softplus_threshold=2.0), mp.e ** -3),
                (alpha("softplus", 11.0, softplus_beta=2.0), mp.e ** -11),
                (alpha("softplus", 0.0, softplus_beta=2.0), mp.sqrt(half)),
                (alpha("softplus", 0.0, A_log=1.0), half ** mp.e),
                (alpha("bounded", 0.0), mp.e ** -mpf(2.5)),
                (alpha("bounded", 0.0, lower_bound=-4.0), mp.e ** -2),
                (alpha("bounded", 1.0, A_log=1.0), mp.e ** (-5 / (1 + mp.e ** -mp.e))),
                (alpha("log", -1.0), 1 / mp.e),
                (alpha("log", -2661.0), mp.e ** -2661),
                (alpha("log2", -3.0), half ** 3),
                (alpha("linear", 0.25), mpf(0.25)),
                (alpha("none", 7.0), mpf(1)),
                (alpha("softplus", 2.0, dt_bias=1.0), 1 / (1 + mp.e ** 3)),
                (beta("sigmoid", -1.0), 1 / (1 + mp.e)),
                (beta("sigmoid2", -1.0), 2 / (1 + mp.e)),
                (exact_rule.scale_of(one_token(K=128)), mpf(0.08838834764831845)),
                (exact_rule.scale_of(one_token(scale=3.0)), mpf(3)),
            ]
            x = [mpf(3), mpf(4)]
            self.assertTrue(mp.isnan(exact_rule.normalize([mpf(0)], "max_norm_eps", mpf(0))[0]))
            for form, eps, first in (("none", 1, mpf(3)), ("rsqrt_sum_eps", 11, half),
                                     ("max_norm_eps", 1, mpf(3) / 5), ("max_norm_eps", 6, half),
                                     ("norm_plus_eps", 1, half)):
                table.append((exact_rule.normalize(x, form, mpf(eps))[0], first))
            for n, (got, expected) in enumerate(table):
                self.assertLess(abs(got / expected - 1), mp.ldexp(1, -240), f"row {n}")

    def test_heads(self):
        inputs = random_inputs("prefill", H=2, HV=4)
        for head_map, expected in (("grouped", [0, 0, 1, 1]), ("tiled", [0, 1, 0, 1])):
            case = exact_rule.make_case("gated_delta_rule", "prefill",
                                        {"head_map": head_map}, inputs)
            self.assertEqual([exact_rule.qk_head(case, j) for j in range(4)], expected)
            inputs_qk = dict(inputs, A_log=inputs["A_log"][:2], dt_bias=inputs["dt_bias"][:2])
            by_qk = exact_rule.make_case("gated_delta_rule", "prefill",
                                         {"head_map": head_map, "gate_head": "qk"}, inputs_qk)
            spread = dict(inputs, A_log=inputs["A_log"][expected],
                          dt_bias=inputs["dt_bias"][expected])
            by_v = exact_rule.make_case("gated_delta_rule", "prefill",
                                        {"head_map": head_map}, spread)
            self.assertEqual(evaluate_all(by_qk), evaluate_all(by_v))
        with self.assertRaises(ValueError):
            exact_rule.make_case("gated_delta_rule", "prefill", {},
                                 random_inputs("prefill", H=2, HV=3))

    def test_modes_layouts_and_packing_agree(self):
        for op in ("gated_delta_rule", "kda"):
            inputs = random_inputs("mtp", op)
            mtp = evaluate_all(exact_rule.make_case(op, "mtp", {}, inputs))
            packed = dict(inputs, initial_state=inputs["initial_state"][[0, 0, 1]],
                          cu_seqlens=np.array([0, 4, 4, 8]))
            for name in ("q", "k", "v", "a", "b"):
                packed[name] = inputs[name].reshape((8,) + inputs[name].shape[2:])
            prefill = evaluate_all(exact_rule.make_case(op, "prefill", {}, packed))
            transposed = dict(inputs, initial_state=inputs["initial_state"].swapaxes(2, 3))
            kv = evaluate_all(exact_rule.make_case(op, "mtp", {"state_layout": "kv"}, transposed))
            self.assertEqual(mtp, kv)
            rows = {key[1] for key in mtp if key[0] == "intermediate_states"}
            self.assertEqual(rows, set(range(8)))
            for key, exact in mtp.items():
                if key[0] == "o":
                    self.assertEqual(exact, prefill[key])
                elif key[0] == "final_state":  # sequence 1 is empty
                    self.assertEqual(exact, prefill[("final_state", 2 * key[1]) + key[2:]])
                    start = inputs["initial_state"][0, key[2], key[4], key[3]]
                    self.assertEqual(prefill[("final_state", 1) + key[2:]].value, float(start))
                elif key[1] % 4 == 3:  # the last row is the final state
                    self.assertEqual(exact, mtp[("final_state", key[1] // 4) + key[2:]])

    def test_pools(self):
        def writes(convention=None, **extra):
            inputs = random_inputs("mtp", B=3, T=2, slots=7)
            inputs.update({name: np.array(x) for name, x in extra.items()})
            plan = exact_rule.sequences(exact_rule.make_case(
                "gated_delta_rule", "mtp", convention or {}, inputs))
            return [("pad" if s.padded else s.start,
                     [(n, slot) for n, name, slot in s.snapshots if name == "final_state"])
                    for s in plan]

        self.assertEqual(writes(), [(0, [(2, 0)]), (1, [(2, 1)]), (2, [(2, 2)])])
        self.assertEqual(writes({"pad_slot": 0}), writes())  # no indices: no row is padded
        self.assertEqual(writes(state_indices=[5, -1, 0], accepted_tokens=[0, 1, 1]),
                         [(5, [(0, 5)]), ("pad", []), (0, [(1, 0)])])
        self.assertEqual(writes({"pad_slot": 0}, state_indices=[5, 1, 0]),
                         [(5, [(2, 5)]), (1, [(2, 1)]), ("pad", [])])
        self.assertEqual(writes(state_indices=[5, 5, -1], output_state_indices=[1, -1, 2]),
                         [(5, [(2, 1)]), (5, []), ("pad", [])])
        self.assertEqual(writes({"disable_state_update": 1}), [(0, []), (1, []), (2, [])])
        self.assertEqual(writes(ssm_state_indices=[[1, 2], [3, -1], [4, -1]],
                                num_accepted_tokens=[2, 1, 2]),
                         [(2, [(1, 1), (2, 2)]), (3, [(1, 3)]), ("pad", [])])
        self.assertEqual(writes(ssm_state_indices=[[1, 2], [3, -1], [4, 0]],
                                state_indices=[5, 3, -1]),
                         [(5, [(1, 1), (2, 2)]), (3, [(1, 3)]), ("pad", [])])


def as_fraction(x):
    """The exact value of an mpf."""
    sign, mantissa, exponent, _ = x._mpf_
    return Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** exponent


def wrong_step(decay_late=False, read_early=False, beta_ignored=False, no_delta=False):
    def step(S, k, q, alpha, beta, v):
        beta = mpf(1) if beta_ignored else beta
        old = S if decay_late else [a * s for a, s in zip(alpha, S)]
        d = beta * (v - (0 if no_delta else mp.fdot(old, k)))
        new = [s + x * d for s, x in zip(old, k)]
        if decay_late:
            new = [a * s for a, s in zip(alpha, new)]
        return new, mp.fdot(S if read_early else new, q), d
    return step


def gate_as_log2(case, t, j):
    return [mp.exp(g * mp.ln2) for g in exact_rule.log_decay(case, t, j)] * (
        case.K if case.op != "kda" else 1)


def eps_outside(x, form, eps):
    n = mp.sqrt(mp.fdot(x, x))
    return [value / (n + eps) for value in x]


MISTAKES = {
    "decay_after_delta": ("step", wrong_step(decay_late=True)),
    "read_before_update": ("step", wrong_step(read_early=True)),
    "beta_ignored": ("step", wrong_step(beta_ignored=True)),
    "no_delta": ("step", wrong_step(no_delta=True)),
    "gate_log2": ("decay", gate_as_log2),
    "l2_eps_outside": ("normalize", eps_outside),
    "beta_half": ("write_strength", lambda case, t, j: exact_rule.sigmoid(
        mpf(float(case.inputs["b"][t, j]))) / 2),
    "head_zero": ("qk_head", lambda case, j: 0),
    "scale_missing": ("scale_of", lambda case: mpf(1)),
}


class JudgeTest(unittest.TestCase):
    """The judge must pass right files and fail wrong ones."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "case.h5"

    def judge(self, op="gated_delta_rule", mode="mtp", change=None, mistake=None, layout="vk"):
        convention = {"state_layout": layout}
        inputs = random_inputs(mode, op, H=2, slots=5 if mode != "prefill" else None)
        inputs["q"] = np.round(inputs["q"] * 16) / np.float32(16)  # fits bf16
        inputs["v"] = inputs["v"].astype(np.float16).astype(np.float32)
        if mode != "prefill":
            inputs["state_indices"] = np.array([3, -1], dtype=np.int32)
        if layout == "kv":
            inputs["initial_state"] = inputs["initial_state"].swapaxes(2, 3)
        if mistake:
            with unittest.mock.patch.object(exact_rule, *mistake):
                write_fixture(self.path, op, mode, convention, inputs, change)
        else:
            write_fixture(self.path, op, mode, convention, inputs, change)
        return judge_file(self.path, math.inf)

    def test_right_fixtures_pass(self):
        for op in ("gated_delta_rule", "kda"):
            for mode in ("decode", "mtp", "prefill"):
                for layout in ("vk", "kv"):
                    report = self.judge(op, mode, layout=layout)
                    self.assertEqual(report.failures, [])
                    self.assertGreater(report.compared, 0)
                    self.assertEqual(report.cancelled, 0)
                    self.assertLess(report.max_relative, 2.0 ** -53 * (1 + 1e-10))
                    # finite: the two precisions did differ
                    self.assertGreater(report.agreement_bits, PRECISION_BITS - 20)
                    self.assertLess(report.agreement_bits, math.inf)

    def test_magnitudes_bound_the_values(self):
        case = exact_rule.make_case("kda", "mtp", {}, random_inputs("mtp", "kda", T=16))
        for exact in evaluate_all(case).values():
            self.assertLessEqual(abs(exact.value), exact.magnitude)

    def test_every_mistake_is_seen(self):
        for name, mistake in MISTAKES.items():
            for op in ("gated_delta_rule", "kda"):
                with self.subTest(name, op=op):
                    self.assertNotEqual(self.judge(op, "mtp", mistake=mistake).failures, [])

    def test_planted_errors_are_seen(self):
        def last_bits(golden, radius):  # 10 ulp is at least 1.1e-15, and the radius admits it
            golden["o"][0, 3, 1, 2] *= 1 + 10 * 2.0 ** -52
            radius["o"] = 1.0

        def radius_too_small(golden, radius):
            radius["final_state"] *= 0.99

        def padded_row(golden, radius):
            golden["o"][1, 0, 0, 0] = 1e-300

        def idle_slot(golden, radius):
            golden["final_state"][4, 1, 2, 3] *= 1 + 2.0 ** -52

        def not_a_number(golden, radius):
            golden["intermediate_states"][0, 1, 0, 0, 0] = math.nan
            radius["intermediate_states"] = math.inf

        for change in (last_bits, radius_too_small, padded_row, idle_slot, not_a_number):
            with self.subTest(change.__name__):
                self.assertEqual(len(self.judge(change=change).failures), 1)

    def test_own_precision_is_demanded(self):
        with unittest.mock.patch.object(sys.modules[__name__], "agreement_bits",
                                        return_value=PRECISION_BITS - 41.0):
            self.assertEqual(len(self.judge().failures), 1)

    def test_special_values(self):
        huge = exact_rule.Exact(mpf(2) ** 1025, mpf(2) ** 1025)
        lost = exact_rule.Exact(mp.nan, mp.nan)
        one = exact_rule.Exact(mpf(1), mpf(1))
        for golden, exact, right in ((math.inf, huge, True), (-math.inf, huge, False),
                                     (1e308, huge, False), (math.nan, lost, True),
                                     (0.0, lost, False), (math.inf, one, False),
                                     (math.nan, one, False), (1.0, one, True)):
            failure = judge_element(golden, exact, math.inf, 53)[0]
            self.assertEqual(failure is None, right, f"{golden} for {exact.value}")

    def test_cancelled_elements_need_the_radius(self):
        one = exact_rule.Exact(mpf(2) ** -120, mpf(1))
        self.assertEqual(judge_element(0.0, one, 2.0 ** -119, 168), (None, True, None))
        self.assertIsNotNone(judge_element(0.0, one, 2.0 ** -121, 168)[0])
        kept = exact_rule.Exact(mpf(2) ** -100, mpf(1))  # 168 bits must still resolve this one
        self.assertIsNotNone(judge_element(0.0, kept, 2.0 ** -99, 168)[0])

    def test_exit_codes(self):
        folder = self.path.parent
        with contextlib.redirect_stdout(io.StringIO()):
            self.judge()
            self.assertEqual(judge_all([self.path], 0, math.inf), 0)
            self.assertEqual(judge_all([self.path], 1, math.inf), 1)  # covers one mode of three
            for op, mode in (("kda", "decode"), ("kda", "prefill")):
                self.judge(op, mode)
                self.path.rename(folder / f"{mode}.h5")
            self.judge()
            self.assertEqual(judge_all([folder], 3, math.inf), 0)
            self.assertEqual(judge_all([folder], 4, math.inf), 1)  # too few
            self.judge(mistake=MISTAKES["beta_ignored"])
            self.assertEqual(judge_all([folder], 0, math.inf), 1)
            self.assertEqual(judge_all([folder / "absent.h5"], 0, math.inf), 2)


# --- command line ------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--min-cases", type=int, default=30)
    parser.add_argument("--work", type=int, default=DEFAULT_WORK,
                        help="multiply-adds a case (default %(default)s)")
    parser.add_argument("--outputs", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        program = unittest.main(argv=[sys.argv[0]], exit=False)
        return 0 if program.result.wasSuccessful() else 1
    if not arguments.paths:
        parser.error("no PATH")
    if arguments.outputs:
        for path in fixture_files(arguments.paths):
            for name, (error, count, bad) in output_errors(path, arguments.work).items():
                print(f"{path.name}: {name}: rel RMSE {error:.2e} over {count} elements, "
                      f"{bad} not finite")
        return 0
    return judge_all(arguments.paths, arguments.min_cases, arguments.work)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
# Length: a table of changes to one call, and the two loops over it.
"""Real kernels that were called wrongly on purpose: a right capture passes, a wrong one is named.
At the end, calls that are written down in a form which cannot be read: the refusal says what to do.

A file says how a kernel should have been called and holds what the kernel did. Here the outputs are
those of real kernels, and the call that the file declares is changed such that a kernel with one
known mistake would have given just these outputs: g stored times log2(e) and declared as a natural
logarithm is a kernel that raises 2 to a natural logarithm. What cannot be made so from a right
capture (a norm left out) is made around emulated kernels in tests/explain.
"""

import json
import math
import shutil
from pathlib import Path

import h5py
import numpy as np

from support import (CAPTURES, DECODE, MTP, PREFILL, CommandLineTest, main, needs_captures, put,
                     run)

F64 = h5py.h5t.IEEE_F64LE
F32 = h5py.h5t.IEEE_F32LE
# Captures of right kernels, one of each kind. The MTP kernel has a defect, which is its own test.
KINDS = ("sglang_decode_vk", "sglang_decode_kv", "fla_chunk_gdn_k64_v100",
         "fla_chunk_kda", "fla_kda_cos050", "flashkda_kda_cos050")
RIGHT = [name for name in KINDS if (CAPTURES / f"{name}.h5").is_file()]


class NotHere(Exception):
    """The mistake cannot be made in this call."""


def need(condition):
    if not condition:
        raise NotHere


def convention(file):
    return file["convention"].attrs


def read(file, name):
    return file[f"inputs/{name}"][()].astype(np.float64)


def exact(file, name, values):
    """An input in f64: nothing is rounded on the way."""
    put(file, f"inputs/{name}", np.asarray(values, np.float64), F64)


def log_alpha(file):
    """The natural logarithm of the gate, [.., HV] or [.., HV,K]."""
    gate = convention(file)["gate"]
    if gate == "log":
        return read(file, "g")
    amplitude = np.exp(read(file, "A_log"))
    per_channel = read(file, "dt_bias").ndim == 2
    amplitude = amplitude[:, None] if per_channel else amplitude
    x = read(file, "a") + read(file, "dt_bias")
    if gate == "bounded":
        return convention(file)["lower_bound"] / (1 + np.exp(-amplitude * x))
    return -amplitude * np.logaddexp(0, x)


def declare_gate(file, gate, values):
    for name in ("a", "A_log", "dt_bias", "g"):
        if name in file["inputs"]:
            del file[f"inputs/{name}"]
    exact(file, "g", values)
    convention(file)["gate"] = gate


def gate_log2(file):
    declare_gate(file, "log", log_alpha(file) / math.log(2))


def gate_ln2(file):
    declare_gate(file, "log2", log_alpha(file))


def gate_other_form(file):
    gate = convention(file)["gate"]
    need(gate in ("softplus", "bounded"))
    convention(file)["gate"] = {"softplus": "bounded", "bounded": "softplus"}[gate]


def dt_bias_ignored(file):
    need("dt_bias" in file["inputs"] and read(file, "dt_bias").any())
    exact(file, "a", read(file, "a") + read(file, "dt_bias"))


def scale_twice(file):
    convention(file)["scale"] = math.sqrt(convention(file)["scale"])


def scale_ignored(file):
    convention(file)["scale"] = 1.0


def scale_missing(file):
    """8 is a power of two: o in bf16 is what the kernel would have stored."""
    need(convention(file)["scale"] == 0.125)
    put(file, "outputs/o", file["outputs/o"][()].astype(np.float64) * 8)


def transposed(file, name):
    values = file[name][()]
    need(values.shape[-1] == values.shape[-2])
    put(file, name, np.swapaxes(values, -1, -2))


def state_transposed_throughout(file):
    shape = file["inputs/initial_state"].shape
    need(shape[-1] == shape[-2])
    layout = convention(file)["state_layout"]
    convention(file)["state_layout"] = {"vk": "kv", "kv": "vk"}[layout]


def state_transposed(file):
    transposed(file, "inputs/initial_state")
    if convention(file).get("disable_state_update"):  # the pool stays as it was given
        put(file, "outputs/final_state", file["inputs/initial_state"][()])


def state_transposed_out(file):
    need(not convention(file).get("disable_state_update"))
    transposed(file, "outputs/final_state")


def head_tiled(file):
    heads = file["inputs/q"].shape[-2]
    need(1 < heads < file["inputs/v"].shape[-2])
    convention(file)["head_map"] = "tiled"


def l2_unasked(file):
    """The kernel takes the norm away, and with it a power of two that brings rows below 1."""
    for name in ("q", "k"):
        x = read(file, name)
        longest = np.sqrt((x * x).sum(-1)).max()
        exact(file, name, x * 2.0 ** -math.ceil(math.log2(longest)))
    convention(file)["qk_l2norm"] = "none"


def beta_half(file):
    """Not where sigmoid(b) rounds to 1: a kernel that ignores beta does the same."""
    need(convention(file)["beta"] == "sigmoid" and (read(file, "b") < 5).any())
    convention(file)["beta"] = "sigmoid2"


def beta_doubled(file):
    need(convention(file)["beta"] == "direct")
    exact(file, "beta", read(file, "beta") / 2)


def beta_raw_logit(file):
    need(convention(file)["beta"] == "direct")
    exact(file, "b", read(file, "beta"))
    del file["inputs/beta"]
    convention(file)["beta"] = "sigmoid"


def beta_sigmoid_twice(file):
    """b as beta itself: over many tokens such a call grows beyond all bounds."""
    need(convention(file)["beta"] == "sigmoid" and file.attrs["mode"] != "prefill")
    exact(file, "beta", read(file, "b"))
    del file["inputs/b"]
    convention(file)["beta"] = "direct"


def gate_wrong_head(file):
    """A kernel that reads the gate of head j + 1."""
    need(file["inputs/v"].shape[-2] > 1)
    g = log_alpha(file)
    per_channel = g.ndim == file["inputs/v"].ndim
    declare_gate(file, "log", np.roll(g, 1, -2 if per_channel else -1))


def beta_wrong_head(file):
    need(file["inputs/v"].shape[-2] > 1)
    name = "b" if "b" in file["inputs"] else "beta"
    need(np.ptp(read(file, name), -1).any())
    exact(file, name, np.roll(read(file, name), 1, -1))


def a_log_reversed(file):
    need("A_log" in file["inputs"] and np.ptp(read(file, "A_log")) > 0)
    exact(file, "A_log", read(file, "A_log")[::-1])


def initial_state_stale(file):
    """Every row is declared to be new; the kernel started from what the slot held."""
    need(file.attrs["mode"] != "mtp" and read(file, "initial_state").any())
    rows = (file["inputs/cu_seqlens"].shape[0] - 1 if file.attrs["mode"] == "prefill"
            else file["inputs/v"].shape[0])
    put(file, "inputs/has_initial_state", np.zeros(rows, np.int32), h5py.h5t.STD_I32LE)


def v_tail_overrun(file):
    """Tiles as wide as the power of two below V, the lanes behind V zero."""
    o = file["outputs/o"][()]
    V = o.shape[-1]
    width = min(128, 1 << (V.bit_length() - 1))
    need(V % width)
    rows = o.reshape(-1, V)
    rows[1:, :width - V % width] = 0
    put(file, "outputs/o", o)


def state_decayed_only(file):
    need(file.attrs["mode"] == "decode")
    alpha = np.exp(log_alpha(file))[:, 0]
    if alpha.ndim == 2:
        alpha = alpha[..., None]
    vk = convention(file)["state_layout"] == "vk"
    alpha = alpha[..., None, :] if vk else alpha[..., :, None]
    slots = (file["inputs/state_indices"][()] if "state_indices" in file["inputs"]
             else range(len(alpha)))
    states = file["outputs/final_state"][()]
    for row, slot in enumerate(slots):
        if slot >= 0:
            states[slot] = read(file, "initial_state")[slot] * alpha[row]
    put(file, "outputs/final_state", states)


def tail_rows_permuted(file):
    need(file.attrs["mode"] == "prefill")
    bounds = file["inputs/cu_seqlens"][()]
    o = file["outputs/o"][()]
    tails = [end - (end - begin) % 64 + ((end - begin) % 64 - 1) // 16 * 16
             for begin, end in zip(bounds, bounds[1:])
             if (end - begin) % 64 and ((end - begin) % 64 - 1) % 16 >= 11]
    need(tails)
    for first in tails:
        o[first + 4:first + 12] = o[np.r_[first + 8:first + 12, first + 4:first + 8]]
    put(file, "outputs/o", o)


MISTAKES = (gate_wrong_head, beta_wrong_head, a_log_reversed, initial_state_stale, v_tail_overrun,
            state_decayed_only, tail_rows_permuted, gate_log2, gate_ln2, gate_other_form, dt_bias_ignored, scale_twice, scale_ignored,
            scale_missing, state_transposed_throughout, state_transposed, state_transposed_out, head_tiled,
            l2_unasked, beta_half, beta_doubled, beta_raw_logit, beta_sigmoid_twice)


def ordered(name, axis, order):
    def change(file):
        x = file[f"outputs/{name}"][()]
        put(file, f"outputs/{name}", np.ascontiguousarray(order(x, axis)))
    return change


# What a right kernel's outputs are put through, and what is to be said of them.
ORDERS = (
    ("o is reversed along head", ordered("o", -2, np.flip)),
    ("o has its halves exchanged along value",
     ordered("o", -1, lambda x, axis: np.roll(x, x.shape[axis] // 2, axis))),
    ("final_state is rolled by 1 along head",
     ordered("final_state", 1, lambda x, axis: np.roll(x, 1, axis))),
)


def inputs_in_f64(file):
    for name in list(file["inputs"]):
        if file[f"inputs/{name}"].dtype.kind == "f":
            exact(file, name, read(file, name))


def widened(kind):
    """Everything as a recorder writes it that knows no bf16."""
    def change(file):
        for group in ("inputs", "outputs"):
            for name in list(file[group]):
                if file[f"{group}/{name}"].dtype.kind == "f":
                    put(file, f"{group}/{name}", file[f"{group}/{name}"][()].astype(np.float64),
                        kind)
    change.__name__ = f"everything_in_{'f64' if kind is F64 else 'f32'}"
    return change


def norm_in_another_form(form):
    def change(file):
        convention(file)["qk_l2norm"] = form
    change.__name__ = form
    return change


def normalised_before(file):
    """A kernel that normalises what is normalised is right."""
    for name in ("q", "k"):
        x = read(file, name)
        exact(file, name, x / np.sqrt((x * x).sum(-1, keepdims=True)))


def defaults_left_out(file):
    for name in ("scale", "softplus_beta", "softplus_threshold", "gate_head", "head_map", "l2_eps"):
        if name in convention(file):
            del convention(file)[name]


def same_gate_as_logarithm(file):
    declare_gate(file, "log", log_alpha(file))


HARMLESS = (inputs_in_f64, widened(F32), widened(F64), norm_in_another_form("max_norm_eps"),
            norm_in_another_form("norm_plus_eps"), normalised_before, defaults_left_out,
            same_gate_as_logarithm)


class WrongCalls(CommandLineTest):
    def changed(self, name, change):
        path = Path(shutil.copy(CAPTURES / f"{name}.h5", self.folder / f"{name}.h5"))
        path.chmod(0o600)
        with h5py.File(path, "a") as file:
            for group in ("inputs", "outputs"):
                for dataset in file[group].values():
                    dataset.attrs.pop("sha256", None)
            change(file)
        return path

    def check(self, path, contract):
        report = self.folder / "report.json"
        # Pairs are searched to the end, however busy the machine is.
        result = run("check", path, "--contract", contract, "--explain-seconds", 600,
                     "--json", report)
        (case,) = json.loads(report.read_text())["cases"]
        return result, case

    def contract(self, name):
        if name.startswith("flashkda"):
            return "chunk16_bf16_state"
        return "recurrent_f32" if name.startswith("sglang") else "chunk64_bf16"

    def test_wrong_ones_are_named(self):
        tried = right = 0
        impossible = []
        for mistake in MISTAKES:
            made = 0
            for name in RIGHT:
                try:
                    path = self.changed(name, mistake)
                except NotHere:
                    continue
                made += 1
                with self.subTest(mistake=mistake.__name__, capture=name):
                    result, case = self.check(path, self.contract(name))
                    self.assertEqual(result.code, 1, result.out)
                    self.assertTrue(case["explanation"], result.out)
                    first = case["explanation"][0]
                    self.assertTrue(first["explains"], result.out)
                    self.assertIn(mistake.__name__.removesuffix("_throughout"),
                                  [first["mistake"], *first["same"]], result.out)
                    right += 1
            tried += made
            if made == 0:
                impossible.append(mistake.__name__)
        # Beside the rates over emulated kernels (tests/explain/test_confusions.cpp).
        print(f"real captures: the right name or an equal one first in {right} of {tried}")
        if len(RIGHT) == len(KINDS):
            self.assertEqual(impossible, [])
        else:
            print(f"not made in {len(RIGHT)} of {len(KINDS)} captures: {', '.join(impossible)}")
        self.assertGreater(tried, 8 * len(RIGHT))

    def test_results_in_another_order_are_said_to_be(self):
        for words, change in ORDERS:
            for name in RIGHT:
                with self.subTest(words, capture=name):
                    path = self.changed(name, change)
                    with h5py.File(path) as file:
                        heads = file["outputs/o"].shape[-2]
                    if heads < 3 and "head" in words:
                        continue  # of two heads there is but one other order
                    result, case = self.check(path, self.contract(name))
                    first = case["explanation"][0]
                    self.assertTrue(first["explains"], result.out)
                    self.assertEqual(first["mistake"], words, result.out)

    def test_right_ones_pass_however_they_are_recorded(self):
        for change in HARMLESS:
            for name in RIGHT:
                with self.subTest(change=change.__name__, capture=name):
                    result, _ = self.check(self.changed(name, change), self.contract(name))
                    self.assertEqual(result.code, 0, result.out)

    @needs_captures("sglang_mtp_vk.h5")
    def test_a_second_mistake_beside_a_known_defect(self):
        for mistake in (head_tiled, gate_ln2):
            with self.subTest(mistake.__name__):
                path = self.changed("sglang_mtp_vk", mistake)
                result, case = self.check(path, "recurrent_f32")
                first = case["explanation"][0]
                self.assertTrue(first["explains"], result.out)
                self.assertEqual(set(first["mistake"].split(" + ")),
                                 {mistake.__name__, "intermediate_by_slot"}, result.out)


def reshaped(shape, *names):
    """Each named dataset in the shape that shape(old) gives it."""
    def change(file):
        for name in names:
            put(file, name, shape(file[name][()]))
    return change


def drop(*names):
    def change(file):
        for name in names:
            del file[name]
    return change


def several(*changes):
    def change(file):
        for one in changes:
            one(file)
    return change


def gate_forgotten(file):
    del convention(file)["gate"]


def mode(name):
    def change(file):
        file.attrs["mode"] = name
    return change


def grouped_queries(file):
    """8 query heads on the 4 states, as attention operators with grouped queries have them."""
    for name in ("q", "k"):
        put(file, f"inputs/{name}", np.repeat(file[f"inputs/{name}"][()], 4, axis=2))


def lengths(file):
    """With one state for each, whose shape would be blamed otherwise."""
    put(file, "inputs/cu_seqlens", np.diff(file["inputs/cu_seqlens"][()]))


TOKENS = ("inputs/q", "inputs/k", "inputs/v", "outputs/o")
head_first = reshaped(lambda x: np.swapaxes(x, 1, 2), *TOKENS)
one_row = reshaped(lambda x: x[None], *TOKENS)

# What is wrong, the case, the change, and parts of the one line, in this order.
UNREADABLE = (
    ("the gate is not declared", PREFILL, gate_forgotten,
     ("/inputs/a", "none; g is here: is the gate log, log2 or linear?")),
    ("[1,T,H,K]", PREFILL, one_row,
     ("/inputs/q", "rank 3", "rank 4 [1,12,1,16]; tokens are packed: [total,H,K] with cu_seqlens; "
                             "[B,T,..] becomes [B*T,..] with cu_seqlens [0,T,2T,..]")),
    ("[1,H,T,K]", PREFILL, several(one_row, head_first),
     ("/inputs/q", "rank 3", "rank 4 [1,1,12,16]; this is [B,H,T,K]: transpose it to [B,T,H,K]")),
    ("no cu_seqlens", PREFILL, drop("inputs/cu_seqlens"),
     ("/inputs/cu_seqlens", "rank 1", "none; one sequence is [0,12]")),
    ("cu_seqlens are lengths", PREFILL, lengths,
     ("/inputs/cu_seqlens", "begin and end, [0,5,5,12]", "their lengths, [5,0,7]")),
    ("several tokens in decode", MTP, mode("decode"),
     ("/inputs/q", "T=1 in decode", "T=3; mtp is for few tokens, prefill a prompt")),
    ("[B,H,1,K]", DECODE, head_first,
     ("/inputs/q", "[B,T,H,K]", "[3,2,1,64]; this is [B,H,T,K]: transpose axes 1 and 2")),
    ("[B,H,T,K]", MTP, head_first,
     ("/inputs/q", "[B,T,H,K]", "[3,1,3,16]; this is [B,H,T,K]: transpose axes 1 and 2")),
    ("no initial state", DECODE, drop("inputs/initial_state"),
     ("/inputs/initial_state", "rank 4", "none; give zeros [3,4,32,64] where the kernel starts")),
    ("grouped queries", DECODE, grouped_queries,
     ("/inputs/v", "HV a multiple of H=8",
      "HV=4; 8 query heads share 4 states: repeat k, v, the gate, beta and the states to 8 heads")),
)


class UnreadableCalls(CommandLineTest):
    def test_the_refusal_says_what_to_do(self):
        for what, line, change, parts in UNREADABLE:
            with self.subTest(what):
                path = self.capture(line, change)
                result = self.assert_run(2, "check", path)
                (text,) = [row for row in result.out.splitlines() if "expected" in row]
                self.assert_one_line(text, path, *parts)


if __name__ == "__main__":
    main()

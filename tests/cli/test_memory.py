# SPDX-License-Identifier: Apache-2.0
"""Memory that a call needs is declared before it is taken: small files that describe huge calls are
refused at once, with the need and the limit, and the files behind them are judged; what nobody
asked for costs nothing."""

import re
import time
import zlib

import h5py
import numpy as np

from support import DECODE, MTP, PREFILL, CommandLineTest, forge, main, peak, run

BACKWARD = "op=gdn_backward mode=prefill lens=5 H=1 HV=2 K=16 V=8"
LITTLE = 100 * 2 ** 20
SOON = 20  # seconds, on a machine that does other things; one is usual


def zeros(count):
    """So many zero bytes, deflated."""
    packer = zlib.compressobj(9)
    return packer.compress(bytes(count)) + packer.flush()


def write_zeros(group, name, shape):
    """An f16 dataset whose chunks are all the same deflated zeros."""
    row = 2 * int(np.prod(shape[1:], dtype=np.int64))
    rows = min(shape[0], max(1, (32 << 20) // row))
    dataset = group.create_dataset(name, shape, np.float16, chunks=(rows, *shape[1:]),
                                   compression="gzip", compression_opts=9)
    packed = zeros(rows * row)
    for first in range(0, shape[0], rows):
        dataset.id.write_direct_chunk((first,) + (0,) * (len(shape) - 1), packed)


def make_prefill(path, tokens, width, bounds, states=0):
    """A prefill of zeros with one head; `states`: so many final states are in it."""
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file.attrs.update(schema="goldenrule/1", op="gated_delta_rule", mode="prefill")
        file.create_group("convention").attrs.update(gate="none", beta="direct")
        inputs, outputs = file.create_group("inputs"), file.create_group("outputs")
        for name in ("q", "k", "v"):
            write_zeros(inputs, name, (tokens, 1, width))
        write_zeros(inputs, "beta", (tokens, 1))
        write_zeros(outputs, "o", (tokens, 1, width))
        if states:
            write_zeros(outputs, "final_state", (states, 1, width, width))
        inputs.create_dataset("cu_seqlens", data=np.asarray(bounds, np.int64), compression="gzip")
    return path


class BombTest(CommandLineTest):
    def bombs(self):
        yield "deflate", make_prefill(self.folder / "deflate.h5", 40_000_000, 128, [0, 40_000_000])
        yield "states", make_prefill(self.folder / "states.h5", 1, 256, [0, 1] + 40_000 * [1],
                                     states=40_001)

    def test_refused_at_once_with_both_numbers(self):
        behind = self.capture(DECODE, name="behind.h5")
        for kind, path in self.bombs():
            for trust in ((), ("--trust",)):
                started = time.monotonic()
                code, text, memory = peak("check", path, behind, "--memory", "4GiB",
                                          "--no-explain", *trust)
                seconds = time.monotonic() - started
                with self.subTest(kind=kind, trust=trust):
                    self.assertEqual(code, 2)
                    self.assertEqual(text.splitlines()[0], f"{path}: ERROR")
                    refusal = text.splitlines()[1]
                    self.assert_one_line(refusal, path, f"{4 << 30} bytes (--memory)")
                    self.assertGreater(int(re.search(r"needs (\d+) bytes", refusal)[1]), 4 << 30)
                    self.assertIn("behind.h5: EXACT", text)
                    self.assertLess(memory, LITTLE)
                    self.assertLess(seconds, SOON)

    def test_other_commands_refuse_too(self):
        fixture = self.fixture(PREFILL)
        for _, path in self.bombs():
            for command in (("diff", fixture, path), ("diff", path, fixture)):
                found = self.assert_run(2, *command, "--memory", "4GiB")
                self.assert_one_line(found.err, path, f"{4 << 30} bytes")

    def test_empty_sequences_cost_what_they_hold(self):
        # 8,000 states of 256 x 256 would be 2 GB; no output asks for them.
        path = make_prefill(self.folder / "empty.h5", 1, 256, [0, 1] + 8_000 * [1])
        code, text, memory = peak("check", path, "--only", "o", "--no-explain")
        self.assertIn(code, (0, 2), text)
        self.assertNotIn("--memory", text)
        self.assertLess(memory, LITTLE)

    def test_a_case_line_of_another_size_is_not_made(self):
        def claim(file):
            line = file.attrs["case"]
            file.attrs["case"] = re.sub(r"\bB=\d+", "B=100000", line)
        path = forge(self.copy_of_fixture(DECODE), claim)
        code, text, memory = peak("recompute", path)
        self.assertEqual(code, 1, text)
        self.assertIn("DIFFERS from its case line in the extents of its tensors", text)
        self.assertLess(memory, LITTLE)


def make_long(path, keys, queries):
    """Attention over one page of one token that the table names `keys` times: a small file."""
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file.attrs.update(schema="goldenrule/1", op="attention", mode="decode")
        file.create_group("convention").attrs.update(block_kv="in_cache")
        inputs, outputs = file.create_group("inputs"), file.create_group("outputs")
        write_zeros(inputs, "q", (queries, 1, 64))
        write_zeros(outputs, "o", (queries, 1, 64))
        for name in ("k_cache", "v_cache"):
            write_zeros(inputs, name, (1, 1, 1, 64))
        inputs.create_dataset("page_table", data=np.zeros((1, keys), np.int32), compression="gzip")
        inputs["kv_lens"] = np.array([keys], np.int32)
        inputs["cu_seqlens_q"] = np.array([0, queries], np.int32)
    return path


class WorkTest(CommandLineTest):
    def test_a_page_that_is_named_often_is_refused_at_once_with_both_numbers(self):
        path = make_long(self.folder / "long.h5", 4 << 20, 20_000)
        self.assertLess(path.stat().st_size, 100_000)
        behind = self.capture(DECODE, name="behind.h5")
        started = time.monotonic()
        for work, said in ((), "30"), (("--work", 3600), "3.6e+03"):
            found = self.assert_run(2, "check", path, behind, "--no-explain", "--memory", "64GiB", *work)
            self.assert_one_line(found.out.splitlines()[1], path, f"{said} core-seconds (--work)")
            self.assertIn("core-seconds in tier double", found.out)
            self.assertIn("behind.h5: EXACT", found.out)
        found = self.assert_run(2, "check", path, behind, "--no-explain")
        self.assert_one_line(found.out.splitlines()[1], path, "1073741824 bytes (--memory)")
        self.assertLess(time.monotonic() - started, 4 * SOON)

    def test_a_small_file_of_equal_numbers_is_refused_at_once(self):
        path = self.folder / "zeros.h5"
        tokens, heads, width = 60_000, 2, 64
        with h5py.File(path, "w", libver=("v110", "v110")) as file:
            file.attrs.update(schema="goldenrule/1", op="gated_delta_rule", mode="prefill")
            file.create_group("convention").attrs.update(state_layout="vk", gate="log", scale=0.125)
            inputs, outputs = file.create_group("inputs"), file.create_group("outputs")
            for group, name in ((inputs, "q"), (inputs, "k"), (inputs, "v"), (outputs, "o")):
                write_zeros(group, name, (tokens, heads, width))
            for name in ("g", "b"):
                write_zeros(inputs, name, (tokens, heads))
            inputs["cu_seqlens"] = np.array([0, tokens], np.int32)
        self.assertLess(path.stat().st_size, 100_000)
        started = time.monotonic()
        for more, said in (((), "1073741824 bytes (--memory)"),
                           (("--memory", "64GiB"), "30 core-seconds (--work)")):
            found = self.assert_run(2, "check", path, "--only", "o", *more)
            self.assert_one_line(found.out.splitlines()[1], path, said)
        self.assertLess(time.monotonic() - started, 2 * SOON)

    def test_the_limit_is_an_option_and_what_takes_a_while_is_announced(self):
        path = make_long(self.folder / "short.h5", 1000, 2)
        found = self.assert_run(2, "check", path, "--work", "1e-6")
        self.assert_one_line(found.out.splitlines()[1], path, "1e-06 core-seconds (--work)")
        for more in ((), ("--work", "10")):
            found = run("check", path, *more)
            self.assertNotIn("core-seconds", found.out + found.err)
        self.assert_run(2, "check", path, "--work", "-1")
        fixture = self.fixture("op=attention mode=decode lens=4 ctx=40 H=1 HV=1 K=16 V=16")
        found = self.assert_run(2, "diff", fixture, fixture, "--work", "1e-9")
        self.assertIn("(--work)", found.out + found.err)


class LimitTest(CommandLineTest):
    def test_the_limit_is_what_the_refusal_asks_for(self):
        for line in (DECODE, MTP, PREFILL):
            path = self.capture(line)
            refused = self.assert_run(2, "check", path, "--memory", "1")
            need = int(re.search(r"needs (\d+) bytes", refused.out)[1])
            self.assert_run(0, "check", path, "--memory", need)
            self.assert_run(2, "check", path, "--memory", need - 1)
            # What is not explained needs less, and what is not judged.
            self.assert_run(0, "check", path, "--memory", need - 1, "--no-explain")
            self.assert_run(2, "check", path, "--memory", "1", "--no-explain")

    def test_an_explanation_counts_the_search_for_visible_sets(self):
        """Many requests of one query: each has its order of keys, as long as the longest one."""
        line = "op=attention mode=decode lens={} ctx={} H=1 HV=1 K=8 V=8 page=16 table=csr"
        many, long = 256, 4096
        path = self.capture(line.format(",".join(["1"] * many),
                                        ",".join([str(long)] + ["16"] * (many - 1))))
        needs = [int(re.search(r"needs (\d+) bytes", run("check", path, "--memory", "1",
                                                         *more).out)[1])
                 for more in ((), ("--no-explain",))]
        orders = many * long * (16 + 8)  # where a key lies, and its position
        self.assertGreater(needs[0] - needs[1], orders)

    def test_what_is_not_judged_counts_less(self):
        path = self.capture(DECODE)
        needs = [int(re.search(r"needs (\d+) bytes", run("check", path, "--memory", "1",
                                                          *only).out)[1])
                 for only in ((), ("--only", "o"))]
        self.assertLess(needs[1], needs[0])

    def test_units_and_nonsense(self):
        path = self.capture(DECODE)
        for size in ("4GiB", "2 gb", "4000000000"):
            self.assert_run(0, "check", path, "--memory", size)
        for size in ("", "-1", "much", "4 GQ", "1e3"):
            self.assert_run(2, "check", path, "--memory", size)


class StagesTest(CommandLineTest):
    def test_stages_of_a_backward_pass_are_part_of_the_need(self):
        def add_stage(file):
            file["stages/h"] = np.zeros((64, 2, 16, 8), np.float32)

        needs = []
        for name, change in (("alone.h5", None), ("beside.h5", add_stage)):
            path = self.capture(BACKWARD, change, name=name)
            refused = run("check", path, "--no-explain", "--memory", "1")
            needs.append(int(re.search(r"needs (\d+) bytes", refused.out)[1]))
        elements = 64 * 2 * 16 * 8
        self.assertGreaterEqual(needs[1] - needs[0], elements * (4 + 8 + 4 + 4))  # golden, radius, grant


if __name__ == "__main__":
    main()

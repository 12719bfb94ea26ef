#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The aggregate of the C interface in Python, made of what the library says of it: fields_test.py
DIRECTORY_OF_OWN_PY LIBRARY. Needs no GPU."""
import ctypes
import sys

sys.path.insert(0, sys.argv[1])
import own  # noqa: E402

library = ctypes.CDLL(sys.argv[2])
Args = own.args_type(library, "recurrent")

# What the library writes is where Python reads, and the other way round.
args = Args()
library.goldenrule_gpu_recurrent_defaults(
    ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args)))
assert args.struct_size == ctypes.sizeof(Args), args.struct_size
assert (args.qk_norm, args.pad_slot, args.scale, args.l2_eps) == (1, -1, 1.0, 1e-6)
assert (args.softplus_beta, args.softplus_threshold, args.lower_bound) == (1.0, 20.0, -5.0)
assert args.stream is None and args.accepted_tokens.data is None
args.V = args.H = args.HV = 1
args.K = 1000
message = ctypes.create_string_buffer(256)
status = library.goldenrule_gpu_recurrent_validate(
    ctypes.byref(args), message, ctypes.c_size_t(256))
assert (status, message.value) == (1, b"K: expected 1 to 256, actual 1000"), message.value

Prefill = own.args_type(library, "prefill")
args = Prefill()
library.goldenrule_gpu_prefill_defaults(
    ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args)))
assert args.struct_size == ctypes.sizeof(Prefill), args.struct_size
assert (args.qk_norm, args.pad_slot, args.scale, args.checkpoint_every) == (1, -1, 1.0, 0)
assert args.workspace is None and args.stream is None and args.start_positions.data is None
args.V = args.H = args.HV = args.K = 1
args.total = -1
status = library.goldenrule_gpu_prefill_validate(ctypes.byref(args), message, ctypes.c_size_t(256))
assert (status, message.value) == (1, b"total: expected 0 to 2147483647, actual -1"), message.value

Attention = own.args_type(library, "attention")
args = Attention()
library.goldenrule_gpu_attention_defaults(
    ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args)))
assert args.struct_size == ctypes.sizeof(Attention), args.struct_size
assert (args.scale, args.block, args.window_left, args.window_right, args.splits) == (1.0, 1, -1, -1, 0)
assert args.stream is None and args.valid_q.data is None
args.V = args.H = args.HV = args.K = 1
args.block = 0
status = library.goldenrule_gpu_attention_validate(ctypes.byref(args), message, ctypes.c_size_t(256))
assert (status, message.value) == (1, b"block: expected 1 to 2147483647, actual 0"), message.value


class Other:
    """A library with another aggregate."""

    def __init__(self, text):
        def fields():
            return text

        self.goldenrule_gpu_recurrent_fields = fields


text = library.goldenrule_gpu_recurrent_fields()
size = b"%d" % ctypes.sizeof(Args)
for old, new in ((size, size + b"0"), (b"op i32", b"op i64"), (b"flags u32 40", b"flags u32 48")):
    assert old in text, old
    try:
        own.args_type(Other(text.replace(old, new, 1)), "recurrent")
    except RuntimeError:
        continue
    sys.exit(f"{new} was accepted")

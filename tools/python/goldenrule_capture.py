# SPDX-License-Identifier: Apache-2.0
"""Writes captures of kernels for `goldenrule check`, and reads fixtures (schema goldenrule/1).

In the test of a Triton kernel, ten lines:

    from goldenrule_capture import write_capture

    o, state = my_gdn_decode(q, k, v, a, b, A_log, dt_bias, state0, slots)    # torch tensors
    write_capture(
        "my_gdn_decode.h5", op="gated_delta_rule", mode="decode", source="my kernel, rev 42",
        convention=dict(state_layout="vk", gate="softplus", qk_l2norm="rsqrt_sum_eps",
                        l2_eps=1e-6, scale=q.shape[-1] ** -0.5),
        inputs=dict(q=q, k=k, v=v, a=a, b=b, A_log=A_log, dt_bias=dt_bias,
                    initial_state=state0, state_indices=slots),
        outputs=dict(o=o, final_state=state))

and then `goldenrule check my_gdn_decode.h5`. `initial_state` must be the state *before* the call:
most decode kernels update it in place, so pass a clone.

Tensors are NumPy arrays, torch tensors on any device (torch is never imported here), or anything
that numpy.asarray takes. Storage types stay what they are: float64, float32, float16, int32,
int64, and bfloat16 as torch.bfloat16, as ml_dtypes.bfloat16, or as float32 arrays named in
bf16=("q", "k"), which must hold bfloat16 values exactly. Shapes and conventions: fixtures/README.md.
Needs h5py >= 3 and NumPy.
"""

import dataclasses
import hashlib
import math
import os

import h5py
import numpy as np

SCHEMA = "goldenrule/1"
OPS = ("gated_delta_rule", "kda")
MODES = ("decode", "mtp", "prefill")

# Attribute of /convention -> the names that it may have, or the type of its number.
CONVENTION = {
    "state_layout": ("vk", "kv"),
    "gate": ("softplus", "bounded", "log", "log2", "linear", "none"),
    "softplus_beta": float,
    "softplus_threshold": float,
    "lower_bound": float,
    "beta": ("sigmoid", "sigmoid2", "direct"),
    "qk_l2norm": ("none", "rsqrt_sum_eps", "max_norm_eps", "norm_plus_eps"),
    "l2_eps": float,
    "scale": float,
    "head_map": ("grouped", "tiled"),
    "gate_head": ("v", "qk"),
    "pad_slot": int,
    "disable_state_update": int,
}
# What an absent attribute means; `scale` has none here: its default, K^-0.5, depends on the call.
DEFAULTS = {
    "state_layout": "vk",
    "gate": "softplus",
    "softplus_beta": 1.0,
    "softplus_threshold": 20.0,
    "lower_bound": -5.0,
    "beta": "sigmoid",
    "qk_l2norm": "rsqrt_sum_eps",
    "l2_eps": 1e-6,
    "head_map": "grouped",
    "gate_head": "v",
    "pad_slot": -1,
    "disable_state_update": 0,
}
_ALWAYS = ("q", "k", "v", "a", "A_log", "dt_bias", "g", "b", "beta", "initial_state")
_POOL = ("state_indices", "output_state_indices")
INPUTS = {
    "decode": _ALWAYS + _POOL,
    "mtp": _ALWAYS + _POOL + ("ssm_state_indices", "num_accepted_tokens", "accepted_tokens"),
    "prefill": _ALWAYS + ("cu_seqlens",),
}
OUTPUTS = {
    "decode": ("o", "final_state"),
    "mtp": ("o", "final_state", "intermediate_states"),
    "prefill": ("o", "final_state"),
}
_STORED = {np.dtype(t): t for t in ("<f8", "<f4", "<f2", "<i8", "<i4")}
_CHUNKED_FROM = 64 * 1024  # bytes; smaller datasets are stored as they are
_CHUNK_BYTES = 512 * 1024


@dataclasses.dataclass
class Fixture:
    """The content of a file. Arrays are NumPy; bfloat16 arrives as float32, which holds it exactly.

    golden[name] is (float64 array, radius): every element is within radius of the exact result.
    convention has every attribute, defaults filled in; `scale` only where the file has it.
    """

    op: str
    mode: str
    attributes: dict  # the other root attributes: source, contract, case, family, seed, ...
    convention: dict
    inputs: dict
    outputs: dict
    golden: dict
    budget: dict  # contract -> {name: float32 array}
    stages: dict
    bf16: tuple  # "inputs/q", ...: the datasets that are stored as bfloat16


def write_capture(path, *, op, mode, inputs, outputs, convention=None, source="", contract="",
                  bf16=()):
    """Writes the inputs and outputs of one kernel call; replaces `path` completely or not at all.

    inputs, outputs: {name: tensor}; convention: {attribute: value}, absent ones have their
    defaults; contract: the declared rounding model, e.g. "recurrent_f32"; bf16: names of float32
    inputs or outputs that are to be stored as bfloat16. Raises ValueError for an unknown name or
    convention value, for a dtype that the schema does not have, and for float32 values named in
    bf16 that no bfloat16 equals.
    """
    _choice("op", op, OPS)
    _choice("mode", mode, MODES)
    conventions = check_convention(convention or {})
    groups = {"inputs": _tensors("inputs", inputs, INPUTS[mode], mode, bf16),
              "outputs": _tensors("outputs", outputs, OUTPUTS[mode], mode, bf16)}
    for required in ("q", "k", "v"):
        if required not in groups["inputs"]:
            raise ValueError(f"inputs: {required} is missing")
    unused = set(bf16) - set(inputs) - set(outputs)
    if unused:
        raise ValueError(f"bf16: no such input or output: {', '.join(sorted(unused))}")
    texts = {"source": _text("source", source), "contract": _text("contract", contract)}

    partial = os.fspath(path) + ".partial"
    try:
        with h5py.File(partial, "w", libver=("v110", "v110")) as file:
            file.attrs["schema"] = SCHEMA
            file.attrs["op"] = op
            file.attrs["mode"] = mode
            for name, text in texts.items():
                if text:
                    file.attrs[name] = text
            group = file.create_group("convention")
            for name, value in conventions.items():
                group.attrs[name] = value
            for group_name, tensors in groups.items():
                group = file.create_group(group_name)
                for name, (array, is_bf16) in sorted(tensors.items()):
                    _write_dataset(group, name, array, is_bf16)
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise


def read_fixture(path):
    """Reads a capture or a generated fixture into a Fixture. Raises ValueError for another schema.

    For one's own files: `goldenrule check` reads files from strangers with more care.
    """
    with h5py.File(path, "r") as file:
        attributes = {name: _plain(value) for name, value in file.attrs.items()}
        schema = attributes.pop("schema", None)
        if schema != SCHEMA:
            raise ValueError(f"{os.fspath(path)}: schema: expected {SCHEMA!r}, actual {schema!r}")
        op = _choice("op", attributes.pop("op", None), OPS)
        mode = _choice("mode", attributes.pop("mode", None), MODES)
        stored = file["convention"].attrs if "convention" in file else {}
        convention = check_convention({name: _plain(value) for name, value in stored.items()})
        bf16 = []

        def load(group_name):
            arrays = {}
            for name, dataset in (file[group_name].items() if group_name in file else ()):
                arrays[name], is_bf16 = _read_dataset(dataset)
                if is_bf16:
                    bf16.append(f"{group_name}/{name}")
            return arrays

        golden = {name: (array, float(file["golden"][name].attrs["radius"]))
                  for name, array in load("golden").items()}
        budget = {contract: load(f"budget/{contract}") for contract in file.get("budget", {})}
        return Fixture(op=op, mode=mode, attributes=attributes,
                       convention={**DEFAULTS, **convention}, inputs=load("inputs"),
                       outputs=load("outputs"), golden=golden, budget=budget,
                       stages=load("stages"), bf16=tuple(sorted(bf16)))


def check_convention(convention):
    """The same mapping with numbers as float or int. Raises ValueError naming what is wrong."""
    checked = {}
    for name, value in convention.items():
        kind = CONVENTION.get(name)
        if kind is None:
            raise ValueError(f"convention: unknown attribute {name!r}; "
                             f"known are {', '.join(CONVENTION)}")
        if isinstance(kind, tuple):
            checked[name] = _choice(f"convention {name}", value, kind)
            continue
        try:
            number = kind(value)
            exact = number == value
        except (TypeError, ValueError, OverflowError):
            exact = False
        if not exact or isinstance(value, str) or not math.isfinite(number):
            expected = "a whole number" if kind is int else "a finite number"
            raise ValueError(f"convention {name}: expected {expected}, actual {value!r}")
        if name == "disable_state_update" and number not in (0, 1):
            raise ValueError(f"convention {name}: expected 0 or 1, actual {value!r}")
        checked[name] = number
    return checked


def _choice(what, value, legal):
    if value not in legal:
        raise ValueError(f"{what}: expected one of {', '.join(legal)}, actual {value!r}")
    return value


def _text(what, text):
    if not isinstance(text, str) or not text.isprintable():
        raise ValueError(f"{what}: expected one line of printable text, actual {text!r}")
    return text


def _tensors(group, tensors, legal, mode, bf16):
    """{name: (little-endian contiguous array, is_bf16)}; bf16 arrays are uint16 bit patterns."""
    result = {}
    for name, tensor in tensors.items():
        if name not in legal:
            raise ValueError(f"{group}: unknown name {name!r} in mode {mode}; "
                             f"known are {', '.join(legal)}")
        if tensor is not None:
            result[name] = _to_array(f"{group} {name}", tensor, name in bf16)
    return result


def _to_array(what, tensor, as_bf16):
    if hasattr(tensor, "detach") and hasattr(tensor, "cpu"):  # a torch tensor
        import torch

        tensor = tensor.detach().cpu().contiguous()
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(np.uint16), True
        tensor = tensor.numpy()
    array = np.asarray(tensor, order="C")
    if array.dtype.name == "bfloat16":  # ml_dtypes
        return array.view(np.uint16), True
    if as_bf16:
        if array.dtype.newbyteorder("=") != np.float32:
            raise ValueError(f"{what}: bf16 takes float32 values, actual {array.dtype}")
        return _float32_to_bf16(what, array.astype(np.float32, copy=False)), True
    stored = _STORED.get(array.dtype.newbyteorder("<"))
    if stored is None:
        raise ValueError(f"{what}: expected float64, float32, float16, bfloat16, int64 or int32, "
                         f"actual {array.dtype}")
    return array.astype(stored, copy=False), False


def _float32_to_bf16(what, array):
    bits = np.ascontiguousarray(array).view(np.uint32).reshape(array.shape)
    inexact = np.flatnonzero(bits & 0xFFFF)
    if inexact.size:
        index = np.unravel_index(inexact[0], array.shape)
        raise ValueError(f"{what}: {inexact.size} values are no bfloat16, the first is "
                         f"{array[index]!r} at {tuple(int(i) for i in index)}")
    return (bits >> 16).astype("<u2")


def _bf16_type():
    """bfloat16 as an HDF5 float type: 1 sign, 8 exponent and 7 mantissa bits, bias 127."""
    file_type = h5py.h5t.IEEE_F32LE.copy()
    file_type.set_fields(15, 7, 8, 0, 7)  # before the size, which may not cut a field
    file_type.set_size(2)
    file_type.set_ebias(127)
    return file_type


def _write_dataset(group, name, array, is_bf16):
    file_type = _bf16_type() if is_bf16 else h5py.h5t.py_create(array.dtype)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    if array.nbytes >= _CHUNKED_FROM:
        properties.set_chunk(_chunk_shape(array.shape, array.itemsize))
        properties.set_shuffle()
        properties.set_deflate(4)
        properties.set_fletcher32()
    space = h5py.h5s.create_simple(array.shape) if array.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    dataset = h5py.h5d.create(group.id, name.encode(), file_type, space, properties)
    if array.size:
        # In memory the type is the stored one: HDF5 copies the bits and converts nothing.
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, array, mtype=file_type)
    h5py.Dataset(dataset).attrs["sha256"] = hashlib.sha256(array.tobytes()).hexdigest()


def _chunk_shape(shape, itemsize):
    """Whole trailing axes up to 512 KiB, the next axis in equal parts."""
    room = _CHUNK_BYTES // itemsize
    chunk = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        if shape[axis] > room:
            parts = -(-shape[axis] // room)
            chunk[axis] = -(-shape[axis] // parts)
            break
        chunk[axis] = shape[axis]
        room //= shape[axis]
    return tuple(chunk)


def _read_dataset(dataset):
    """(array, is_bf16). A digest that the dataset carries is verified."""
    file_type = dataset.id.get_type()
    is_bf16 = (isinstance(file_type, h5py.h5t.TypeFloatID) and file_type.get_size() == 2
               and file_type.get_fields() == (15, 7, 8, 0, 7) and file_type.get_ebias() == 127)
    if is_bf16:
        array = np.empty(dataset.shape, "<u2")
        memory_type = file_type.copy()
        memory_type.set_order(h5py.h5t.ORDER_LE)
        if array.size:
            dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, array, mtype=memory_type)
    else:
        array = np.asarray(dataset[()])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    digest = _plain(dataset.attrs.get("sha256", ""))
    if digest and hashlib.sha256(array.tobytes()).hexdigest() != digest:
        raise ValueError(f"{dataset.name}: the values do not have the SHA-256 {digest}")
    if is_bf16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array, is_bf16


def _plain(value):
    """An attribute as str, int or float."""
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, (np.generic, np.ndarray)) and value.size == 1 else value

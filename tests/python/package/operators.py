# SPDX-License-Identifier: Apache-2.0
"""Cases of the suites as calls of the operators (goldenrule.ops), here and on a device; the kernels on the
CPU as their library; and NumPy arrays in the place of tensors, for whoever has no torch."""

import ctypes
import sys

import numpy as np

from goldenrule import _gpu

OPTION_OF = {"gate": "gate_kind", "beta": "beta_kind", "qk_l2norm": "qk_norm"}  # else the same
RINGS = ("ring_d", "ring_k", "ring_g")
TENSOR_OF = {"initial_state": "state", "a": "gate", "g": "gate", "b": "beta",
             **{"initial_" + name: name for name in (*RINGS, "intermediate_states")}}
# Inputs that no kernel takes (gpu/README.md).
NOT_TAKEN = {"has_initial_state"}
OF_TOKENS = ("q", "k", "v", "gate", "beta", "parent_tokens")


OPERATORS = ("decode", "mtp", "replay", "commit", "prefill", "attention")


class HostDevice:
    """What goldenrule.ops has for CUDA (_gpu.Device), for the CPU."""

    type = "cpu"

    def prepare(self, index):
        return True

    def current(self):
        return 0

    def exchange(self, index):
        return 0

    def stream(self, index):
        return 0

    def empty(self, size, like):
        self.kept = like.new_zeros((size,))  # until the kernels have run, which a stream sees to there
        return self.kept

    def graded(self):
        torch = sys.modules.get("torch")
        return torch is not None and torch.is_grad_enabled()


class Host(_gpu.Library):
    """The library of the kernels on the CPU (tests/gpu_host). There a kernel runs when somebody waits
    for it."""

    def __init__(self, path, device=None):
        super().__init__(device or HostDevice())
        self.open(path)
        self._wait = ctypes.CDLL(path).cudaDeviceSynchronize
        for name in OPERATORS:
            setattr(self, name, self._waiting(getattr(self, name)))

    def _waiting(self, function):
        def call(*tensors, **options):
            function(*tensors, **options)
            assert self._wait() == 0, "a kernel failed: see stderr"

        return call


class Array:
    """A NumPy array with what _gpu asks of a tensor."""

    def __init__(self, array):
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype.name

    def stride(self):
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def data_ptr(self):
        return self.array.ctypes.data

    def get_device(self):
        return -1

    def new_zeros(self, shape):
        return Array(np.zeros(shape, self.array.dtype))

    def float(self):
        return Array(self.array.astype(np.float32))

    def reshape(self, *shape):
        return Array(self.array.reshape(shape))

    def __getitem__(self, place):
        return Array(self.array[place])

    def __len__(self):
        return len(self.array)

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


class OfArrays:
    """goldenrule.ops for Arrays: the functions of a library without torch."""

    def __init__(self, library):
        self.library = library

    def _run(self, name, tensors, rest):
        v = tensors[2]
        o = v.new_zeros(v.shape)
        getattr(self.library, name)(*tensors, o, **rest)
        return o

    def decode(self, *tensors, **rest):
        return self._run("decode", tensors, rest)

    def mtp(self, *tensors, **rest):
        return self._run("mtp", tensors, rest)

    def replay(self, *tensors, **rest):
        return self._run("replay", tensors, rest)

    def prefill(self, *tensors, **rest):
        return self._run("prefill", tensors, rest)

    def attention(self, q, k=None, v=None, k_cache=None, v_cache=None, o=None, **rest):
        values = v if v_cache is None else v_cache
        if o is None:
            o = q.new_zeros((*q.shape[:-1], values.shape[-1]))
        self.library.attention(q, k, v, k_cache, v_cache, o, **rest)
        return o

    def commit(self, *tensors, **rest):
        self.library.commit(*tensors, **rest)


def host(x):
    """The values of an Array or of a tensor, in fp32."""
    return x.array.astype(np.float32) if isinstance(x, Array) else x.cpu().float().numpy()


def taken(call):
    """Whether the kernels take the call."""
    names = {x.dtype.name for x in call.inputs.values()}
    state = call.inputs.get("initial_state")
    return not ("float64" in names or NOT_TAKEN & set(call.inputs)
                or (state is not None and state.dtype.name == "float16"))


def is_packed(call):
    """Whether the operator wants an axis of one in front of the tokens."""
    return call.mode == "mtp" and "cu_seqlens" in call.inputs


def arguments(call, tensors):
    """(operator, positional tensors, options) of a call; tensors: its inputs."""
    options = {OPTION_OF.get(name, name): value for name, value in call.convention.items()}
    options["disable_state_update"] = bool(options.get("disable_state_update", 0))
    options["op"] = call.op
    given = {TENSOR_OF.get(name, name): value for name, value in tensors.items()}
    given.setdefault("gate", None)
    if is_packed(call):
        given.update({name: given[name][None] for name in OF_TOKENS if given.get(name) is not None})
    last = "cu_seqlens" if call.mode == "prefill" else "state"
    positional = [given.pop(name) for name in ("q", "k", "v", "gate", "beta", last)]
    operator = {"decode": "decode", "mtp": "mtp", "prefill": "prefill"}[call.mode]
    if "ring_d" in given:
        operator = "replay"
    return operator, positional, {**options, **given}


def run(ops, call, tensors, wrap=lambda function: function, commit=False):
    """The outputs of a call. wrap: what makes another function of that of an operator, as torch.compile
    does; commit: of accepted tokens, the states alone."""
    operator, positional, options = arguments(call, tensors)
    if commit:
        ops.commit(*positional[1:], **options)
        return {"final_state": positional[-1]}
    q, _, v, _, _, last = positional
    if operator == "prefill":
        if "state" not in options:
            K, V = q.shape[-1], v.shape[-1]
            state = (K, V) if call.convention.get("state_layout") == "kv" else (V, K)
            options["final_state"] = v.new_zeros((len(last) - 1, v.shape[1], *state)).float()
        pool = options.get("final_state", options.get("state"))
        if "checkpoint_offsets" in options:
            options["checkpoints"] = pool.new_zeros((len(options["checkpoint_offsets"]), *pool.shape[1:]))
    else:
        pool = last
        wanted = operator == "mtp" and "ssm_state_indices" not in options
        if wanted and "intermediate_states" not in options:
            options["intermediate_states"] = pool.new_zeros((*q.shape[:2], *pool.shape[1:]))
    outputs = {"o": wrap(getattr(ops, operator))(*positional, **options), "final_state": pool,
               "intermediate_states": options.get("intermediate_states"),
               "checkpoints": options.get("checkpoints"),
               **{name: options.get(name) for name in RINGS}}
    for name in ("o", "intermediate_states") if is_packed(call) else ():
        if outputs[name] is not None and "initial_" + name not in call.inputs:
            outputs[name] = outputs[name][0]
    return {name: x for name, x in outputs.items() if x is not None}

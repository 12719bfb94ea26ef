# SPDX-License-Identifier: Apache-2.0
# Length: everything that a seed determines, in the order in which it is drawn.
"""Draws random honest calls: everything of a call follows from the name of a peer and a seed.

A peer lists `variants`, the choices that its compiler bakes into a kernel (heads, types, forms of
gate and state), and `Limits`, what it documents of the values. draw_call picks a variant and fills
it: lengths, gates, keys, beta, the scales of v and of the start state, all from one counter-based
stream (Philox, keyed by seed and peer), so that `peer=NAME seed=N` is all a replay needs.
"""

import dataclasses
import itertools
import math
import zlib

import numpy as np
import torch

TORCH = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
GDN, KDA = "gated_delta_rule", "kda"
# Lengths around the chunks of 16, 32 and 64 tokens that kernels cut, and single tokens.
LENGTHS = (1, 2, 3, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 127, 128, 129, 190, 257)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a peer documents of the values it takes; the defaults limit nothing that is drawn.

    strongest: the most negative log decay of a token. weak_only: beyond this log decay the peer
    replaces a gate by its own floor, which shows only where almost nothing is written; such gates
    are drawn together with beta from .1 to 1, no tiny keys and no start state that dwarfs v.
    state_over_v: largest ratio of the two scales. cosine: largest mutual cosine of keys.
    logit: largest argument of a softplus.
    tokens, lengths, rows: of a prefill call, of its sequences, of a decode or MTP call.
    exact_beta: whether beta is drawn as exactly 0 and 1. multiple: what lengths are multiples of.
    """

    strongest: float = -2600.0
    weak_only: float = -math.inf
    state_over_v: float = math.inf
    cosine: float = 0.99
    logit: float = 100.0
    tokens: int = 300
    lengths: tuple = LENGTHS
    rows: tuple = (1, 2, 3, 4)
    exact_beta: bool = True
    multiple: int = 1


@dataclasses.dataclass
class Call:
    """One call: what `write_capture` is told, and the variant that tells the peer how to run."""

    peer: str
    seed: int
    variant: dict
    op: str
    mode: str
    convention: dict
    inputs: dict
    contract: str = ""
    notes: str = ""

    @property
    def line(self):
        return f"peer={self.peer} seed={self.seed}"

    @property
    def source(self):
        return f"{self.line} {self.notes}"


def each(**choices):
    """Every combination of the given values, as dicts: each(a=[1, 2], b=[3]) is two variants."""
    return [dict(zip(choices, values)) for values in itertools.product(*choices.values())]


class Stream:
    """The random stream of one call. All arrays are float64 until they are rounded to a type."""

    def __init__(self, peer, seed):
        key = np.array([seed, zlib.crc32(peer.encode())], dtype=np.uint64)
        self.rng = np.random.Generator(np.random.Philox(key=key))

    def choice(self, values, weights=None):
        weights = None if weights is None else np.array(weights) / np.sum(weights)
        return values[int(self.rng.choice(len(values), p=weights))]

    def chance(self, probability):
        return bool(self.rng.random() < probability)

    def normal(self, *shape):
        return self.rng.standard_normal(shape)

    def uniform(self, low, high, shape=()):
        return self.rng.uniform(low, high, shape)

    def log_uniform(self, low, high, shape=()):
        return np.exp(self.rng.uniform(math.log(low), math.log(high), shape))


def rounded(array, kind):
    """float64 array -> torch tensor of the type named `kind`, rounded once."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(TORCH[kind])


def draw_call(peer, seed, variants, limits):
    s = Stream(peer, seed)
    variant = dict(s.choice(variants))
    H, HV, K, V = variant["shape"]
    call = Call(peer=peer, seed=seed, variant=variant, op=variant["op"], mode=variant["mode"],
                convention={}, inputs={}, contract=variant.get("contract", ""))
    lengths = _tokens(s, call, limits)
    lead = (sum(lengths),) if call.mode == "prefill" else (len(lengths), lengths[0])
    channels = (K,) if call.op == KDA else ()

    v_scale, state_scale = s.log_uniform(1e-2, 1e2), s.log_uniform(1e-2, 1e2)
    fp16_operands = variant["io"] == "f16" and call.mode == "prefill"
    if fp16_operands:
        # fp16 operands hold nothing below 6e-8 and little below 6e-5: beside a start state of 100
        # or with q and k near 0 the outputs are noise, and the verdict says so (MISTRUSTED).
        v_scale, state_scale = max(v_scale, 1.0), min(state_scale, 1.0)
    state_scale = min(state_scale, v_scale * limits.state_over_v)
    gates = _log_decay(s, lead, HV, channels, limits.strongest)
    floored = gates.min() < limits.weak_only
    if floored:
        state_scale = min(state_scale, 100 * v_scale)

    cosine = s.choice([0.0, s.uniform(0, limits.cosine), limits.cosine], [3, 4, 2])
    io = variant["io"]
    call.inputs["q"] = _directions(s, call, lead, H, K, 0.0, tiny=not floored and not fp16_operands)
    call.inputs["k"] = _directions(s, call, lead, H, K, cosine, tiny=not floored and not fp16_operands)
    call.inputs["v"] = rounded(v_scale * s.normal(*lead, HV, V), io)
    _gate(s, call, gates, limits)
    _beta(s, call, (*lead, HV), limits.exact_beta and not floored, 0.1 if floored else 0.0)
    _state(s, call, len(lengths), state_scale)
    call.convention["state_layout"] = variant["layout"]
    if "scale" in variant:
        call.convention["scale"] = variant["scale"]
    if "gate_head" in variant:
        call.convention["gate_head"] = variant["gate_head"]
    if variant.get("disable"):
        call.convention["disable_state_update"] = 1
    call.notes = (f"lengths={','.join(map(str, lengths))} cos={cosine:.3g} v={v_scale:.2g} "
                  f"S={state_scale:.2g} gates={gates.min():.3g}..{gates.max():.3g} "
                  f"{call.notes}").strip()
    return call


def _tokens(s, call, limits):
    """Lengths of the sequences; in decode and MTP all rows have the variant's T."""
    if call.mode != "prefill":
        T = s.choice(call.variant["T"])
        return [T] * s.choice(limits.rows)
    form = s.choice(("boundaries", "any", "singles", "one"), (4, 3, 1, 2))
    count = 1 if form == "one" else s.choice((2, 3, 4, 5))
    lengths, room = [], limits.tokens
    for _ in range(count):
        if form == "boundaries":
            length = s.choice(limits.lengths)
        elif form == "singles":
            length = s.choice((1, 1, 1, 2, 65))
        else:
            length = int(s.log_uniform(1, limits.tokens))
        length = -(-length // limits.multiple) * limits.multiple
        length = min(length, room)
        lengths.append(length)
        room -= length
        if room == 0:
            break
    starts = np.concatenate([[0], np.cumsum(lengths)])
    call.inputs["cu_seqlens"] = torch.from_numpy(starts.astype(np.int64))
    return lengths


def _directions(s, call, lead, H, K, cosine, tiny):
    """Keys or queries. Mutual cosine by a direction that all tokens of a head share.

    Raw where the kernel normalizes, with lengths over four decades; else normalized in float64
    and rounded once. A share of the calls has tokens or channels of almost 0.
    """
    shared = s.normal(H, K)
    shared /= np.linalg.norm(shared, axis=-1, keepdims=True)
    own = s.normal(*lead, H, K)
    own /= np.linalg.norm(own, axis=-1, keepdims=True)
    x = math.sqrt(cosine) * shared + math.sqrt(1 - cosine) * own
    form = s.choice(("plain", "channels", "tokens"), (14, 3, 3)) if tiny else "plain"
    if form == "channels":
        x = x * np.where(s.rng.random(K) < 0.2, s.choice((0.0, 1e-4, 1e-7)), 1.0)
    if call.variant["norm"] == "none":
        x /= np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
    else:
        x *= s.log_uniform(0.1, 100, (*lead, 1, 1)) if s.chance(0.5) else math.sqrt(K)
        call.convention["l2_eps"] = call.variant.get("l2_eps", 1e-6)
    if form == "tokens":
        x = x * np.where(s.rng.random((*lead, H, 1)) < 0.2, 10 ** -s.uniform(2, 6), 1.0)
    call.convention["qk_l2norm"] = call.variant["norm"]
    if form != "plain":
        call.notes += f"tiny {form} "
    return rounded(x, call.variant["io"])


def _log_decay(s, lead, HV, channels, strongest):
    """Log decays: none, weak, or log-uniform down to the strongest, and mixtures with resets."""
    shape = (*lead, HV, *channels)
    form = s.choice(("none", "weak", "head", "any", "resets"), (1, 3, 3, 2, 2))
    if form == "none":
        return np.zeros(shape)
    if form == "weak":
        return -s.log_uniform(1e-6, 1e-1, shape)
    if form == "head":  # a strength for each head (and channel), tokens within a factor of 2
        strength = s.log_uniform(1e-5, -strongest, (HV, *channels))
        return np.maximum(-strength * s.uniform(0.5, 2, shape), strongest)
    if form == "any":
        return -s.log_uniform(1e-5, -strongest, shape)
    weak = -s.log_uniform(1e-5, 1e-1, shape)
    return np.where(s.rng.random(shape) < 0.05, -s.log_uniform(1, -strongest, shape), weak)


def _gate(s, call, gates, limits):
    """The inputs from which the kernel makes the log decays `gates`, in its own types."""
    variant = call.variant
    kind = call.convention["gate"] = variant["gate"]
    parameters = gates.shape[-2:] if call.op == KDA else gates.shape[-1:]
    HV = parameters[0]
    across = (HV, 1) if call.op == KDA else (HV,)
    if kind == "none":
        return
    if kind in ("log", "log2", "linear"):
        values = {"log": gates, "log2": gates / math.log(2), "linear": np.exp(gates)}[kind]
        call.inputs["g"] = rounded(values, variant.get("gate_type", "f32"))
        return
    heads = variant["shape"][0] if variant.get("gate_head") == "qk" else HV
    bias = s.uniform(-2, 2, (heads, *parameters[1:]))
    wide_bias = np.repeat(bias, HV // heads, axis=0)
    if kind == "softplus":
        # The largest decay comes from an argument below 100, the smallest from one above -8.
        peak = np.abs(gates).max(axis=tuple(range(gates.ndim - len(parameters))))
        peak = peak.reshape(heads, -1).max(axis=-1)
        A_log = np.clip(np.log(np.maximum(peak, 1e-9) / s.log_uniform(0.1, 90, heads)), -20, 3.4)
        A = np.repeat(np.exp(rounded(A_log, "f32").numpy().astype(np.float64)), HV // heads)
        y = np.clip(-gates / A.reshape(across), 3.4e-4, limits.logit)
        argument = np.where(y > 30, y, np.log(np.expm1(np.minimum(y, 30))))
    else:  # bounded
        bound = call.convention["lower_bound"] = variant.get("lower_bound", -5.0)
        A_log = s.uniform(-0.5, 0.5, heads)
        A = np.repeat(np.exp(A_log), HV // heads)
        share = np.clip(gates / bound, 1e-4, 1 - 1e-4)
        argument = np.log(share / (1 - share)) / A.reshape(across)
    call.inputs["A_log"] = rounded(A_log, "f32")
    call.inputs["dt_bias"] = rounded(bias, "f32")
    call.inputs["a"] = rounded(argument - wide_bias, variant.get("gate_type", variant["io"]))


def _beta(s, call, shape, exact, low):
    """beta or its logits: uniform, near 1, or with exact zeros and ones."""
    variant = call.variant
    kind = call.convention["beta"] = variant["beta"]
    weights = (5, 2, 2, 1) if exact else (5, 2, 0, 0)
    form = s.choice(("uniform", "near one", "exact", "ones"), weights)
    beta = s.uniform(low, 1, shape)
    if form == "near one":
        beta = 1 - s.log_uniform(1e-4, 0.5, shape)
    if form == "exact":
        beta = np.where(s.rng.random(shape) < 0.3, s.choice((0.0, 1.0)), beta)
    if form == "ones":
        beta = np.ones(shape)
    if kind == "direct":
        call.inputs["beta"] = rounded(beta, variant.get("beta_type", "f32"))
        return
    inner = np.clip(beta, 1e-8, 1 - 1e-8)
    call.inputs["b"] = rounded(np.log(inner / (1 - inner)), variant.get("beta_type", variant["io"]))


def _state(s, call, rows, scale):
    """The start state; in decode and MTP a pool, with slots and pads where the peer has them."""
    variant = call.variant
    H, HV, K, V = variant["shape"]
    kind = variant.get("state")
    if kind is None:
        return
    block = (V, K) if variant["layout"] == "vk" else (K, V)
    slots = rows
    form = variant.get("pool")
    if form:
        slots = rows + s.choice((1, 2, 3))
        if form == "scatter":
            slots = rows * (call.inputs["q"].shape[1] + 1)
        order = s.rng.permutation(slots)
    call.inputs["initial_state"] = rounded(scale * s.normal(slots, HV, *block), kind)
    if not form:
        return
    T = call.inputs["q"].shape[1]
    if form == "scatter":  # the state after each token goes to its own slot
        call.inputs["ssm_state_indices"] = _i32(order[:rows * T].reshape(rows, T))
        call.inputs["num_accepted_tokens"] = _i32(s.rng.integers(1, T + 1, rows))
        return
    indices = order[:rows].copy()
    if form == "pads" and rows > 1 and s.chance(0.5):
        indices[s.rng.integers(rows)] = -1
    call.inputs["state_indices"] = _i32(indices)
    if variant.get("accepted") and s.chance(0.5):
        call.inputs["accepted_tokens"] = _i32(s.rng.integers(0, T + 1, rows))
    if variant.get("moved") and s.chance(0.5):
        # A row writes to a free slot or to its own: no row reads what another writes.
        target = indices.copy()
        live = [row for row in range(rows) if indices[row] >= 0]
        for row, slot in zip(live, order[rows:]):
            target[row] = slot
        call.inputs["output_state_indices"] = _i32(target)


def _i32(array):
    return torch.from_numpy(np.ascontiguousarray(array).astype(np.int32))

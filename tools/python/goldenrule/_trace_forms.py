# SPDX-License-Identifier: Apache-2.0
"""The definitions of FlashInfer-Trace that this project can read and write, as one table.

A definition is a name, axes, tensors and a reference in PyTorch, which is what its kernels must compute.
Names say too little: gdn_mtp_.._k_last of the public dataset leaves the pool as it was, and the
definition that FlashInfer writes itself under nearly the same name commits the last state. So a form is
known by its reference, as a digest of its tokens without comments, docstrings and plain assertions (the
axes repeat what those say). A reference that is not in the table is refused: what it means is not known.

Public forms, all of them GDN with raw gates (A_log, a, dt_bias, b), softplus with threshold 20, sigmoid,
value head j reading head j // (HV/H), and q and k as they are: the workloads hold normalised keys. Forms of
this project's own (`written`) add KDA, the norm in the kernel, and MTP that commits.
"""

import hashlib
import io
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_OPS = {"gdn": "gated_delta_rule", "kda": "kda"}
_SHORT = {op: short for short, op in _OPS.items()}
_LAYOUTS = {"vk": "_k_last", "kv": "_v_last"}
_L2_EPS = 1e-6

# What all definitions mean; what they do not say is the default of the schema.
COMMON = {"gate": "softplus", "softplus_beta": 1.0, "softplus_threshold": 20.0, "beta": "sigmoid",
          "head_map": "grouped", "gate_head": "v"}

_ROWS = {"q": ("num_q_heads", "head_size"), "k": ("num_k_heads", "head_size"),
         "v": ("num_v_heads", "head_size"), "a": ("num_v_heads",), "b": ("num_v_heads",)}
_STATE = ("num_v_heads", "head_size", "head_size")
_TOKENS = {"decode": ("batch_size", "seq_len"), "mtp": ("batch_size", "seq_len"),
           "prefill": ("total_seq_len",)}
_STATES = {"decode": "batch_size", "mtp": "pool_size", "prefill": "num_seqs"}
_VARIABLE = {"decode": ("batch_size",), "mtp": ("batch_size", "seq_len", "pool_size"),
             "prefill": ("total_seq_len", "num_seqs", "len_cu_seqlens")}
BUFFER = "intermediate_states_buffer"
UNKNOWN = "unknown"  # the dtype that FlashInfer writes for what a call did not pass

# Parameters in their order -> inputs of the schema.
INPUTS: Mapping[str, Mapping[str, str]] = {
    "decode": {"q": "q", "k": "k", "v": "v", "state": "initial_state", "A_log": "A_log", "a": "a",
               "dt_bias": "dt_bias", "b": "b", "scale": "scale"},
    "mtp": {"q": "q", "k": "k", "v": "v", "initial_state": "initial_state",
            "initial_state_indices": "state_indices", "A_log": "A_log", "a": "a",
            "dt_bias": "dt_bias", "b": "b", "scale": "scale", BUFFER: "initial_intermediate_states"},
    "prefill": {"q": "q", "k": "k", "v": "v", "state": "initial_state", "A_log": "A_log", "a": "a",
                "dt_bias": "dt_bias", "b": "b", "cu_seqlens": "cu_seqlens", "scale": "scale"},
}
OUTPUTS: Mapping[str, Mapping[str, str]] = {
    "decode": {"output": "o", "new_state": "final_state"},
    "mtp": {"output": "o", "final_state": "final_state"},
    "prefill": {"output": "o", "new_state": "final_state"},
}


@dataclass(frozen=True)
class Form:
    """What a definition means."""

    op: str
    mode: str
    layout: str = "vk"
    norm: bool = False
    commits: bool = True  # MTP: the last state goes back into the pool
    clears: bool = False  # prefill: a sequence without tokens gets zeros instead of its state

    @property
    def convention(self) -> dict[str, Any]:
        found = {**COMMON, "state_layout": self.layout,
                 "qk_l2norm": "rsqrt_sum_eps" if self.norm else "none"}
        if self.norm:
            found["l2_eps"] = _L2_EPS
        if not self.commits:
            found["disable_state_update"] = 1
        return found

    @property
    def prefix(self) -> str:
        return f"{_SHORT[self.op]}_{self.mode}"

    def name(self, axes: Mapping[str, int]) -> str:
        """That of a definition that is written."""
        update = "_update" if self.mode == "mtp" and self.commits else ""
        norm = "_l2norm" if self.norm else ""
        return (f"{self.prefix}_qk{axes['num_q_heads']}_v{axes['num_v_heads']}_d{axes['head_size']}"
                f"{_LAYOUTS[self.layout]}{update}{norm}")

    def shape(self, parameter: str) -> list[str] | None:
        """The axes of a parameter or output; None: a number."""
        tokens, states = _TOKENS[self.mode], _STATES[self.mode]
        channels = ("head_size",) if self.op == "kda" else ()
        if parameter in _ROWS:
            return [*tokens, *_ROWS[parameter], *(channels if parameter == "a" else ())]
        return {"output": [*tokens, *_ROWS["v"]], "A_log": ["num_v_heads"], "scale": None,
                "dt_bias": ["num_v_heads", *channels], "cu_seqlens": ["len_cu_seqlens"],
                "initial_state_indices": ["batch_size"], BUFFER: [states, "seq_len", *_STATE],
                }.get(parameter, [states, *_STATE])

    def definition(self, axes: Mapping[str, int], dtypes: Mapping[str, str],
                   parameters: tuple[str, ...]) -> dict[str, Any]:
        """The definition that is written for a call of these axes and types."""
        variable = _VARIABLE[self.mode]
        def tensors(names: Any) -> dict[str, Any]:
            return {name: {"shape": self.shape(name), "dtype": dtypes[name]} for name in names}

        return {
            "name": self.name(axes),
            "description": f"{self.op} {self.mode}, state "
                           + ("[.., V, K]" if self.layout == "vk" else "[.., K, V]")
                           + (", q and k normalised" if self.norm else ""),
            "op_type": _SHORT[self.op], "tags": [f"stage:{self.mode}", "writer:goldenrule"],
            "axes": {name: {"type": "var"} if name in variable else
                     {"type": "const", "value": value} for name, value in axes.items()},
            "constraints": ["num_v_heads % num_q_heads == 0", "num_k_heads == num_q_heads"],
            "inputs": tensors(parameters), "outputs": tensors(OUTPUTS[self.mode]),
            "reference": self.reference(dtypes["output"], parameters)}

    def reference(self, dtype: str, parameters: tuple[str, ...]) -> str:
        """The rule token by token, in fp32, as a kernel's author reads it."""
        gate = "[..., None]" if self.op == "kda" else "[..., None, None]"
        rate = "[:, None]" if self.op == "kda" else ""
        turn = ".transpose(-1, -2)" if self.layout == "vk" else ""
        norm = _NORM.format(eps=_L2_EPS) if self.norm else ""
        text = _REFERENCE.format(arguments=", ".join(parameters), gate=gate, rate=rate, norm=norm,
                                 dtype=dtype, rows=_BODIES[self.mode].format(
                                     turn=turn, keep="" if self.commits else "  # the pool stays",
                                     write=f"final_state[slot] = S{turn}" if self.commits else "pass",
                                     buffer=_STORE.format(turn=turn) if BUFFER in parameters else ""))
        return re.sub(r"\n{3,}", "\n\n\n", text)


_NORM = """    q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + {eps!r})
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + {eps!r})
"""
_STORE = """            intermediate_states_buffer[slot, t] = S{turn}
"""
_REFERENCE = """import math

import torch
import torch.nn.functional as F


@torch.no_grad()
def run({arguments}):
    scale = scale or 1.0 / math.sqrt(q.shape[-1])
    heads = v.shape[-2] // q.shape[-2]
    q = q.float().repeat_interleave(heads, dim=-2)
    k = k.float().repeat_interleave(heads, dim=-2)
{norm}    alpha = torch.exp(-torch.exp(A_log.float()){rate} * F.softplus(a.float() + dt_bias.float()))
    beta = torch.sigmoid(b.float())
    output = torch.zeros(v.shape, dtype=torch.{dtype}, device=v.device)

    def step(S, q_t, k_t, v_t, alpha_t, beta_t):
        S = S * alpha_t{gate}
        u = beta_t[:, None] * (v_t.float() - torch.einsum("hkv,hk->hv", S, k_t))
        S = S + k_t[:, :, None] * u[:, None, :]
        return S, scale * torch.einsum("hkv,hk->hv", S, q_t)

{rows}"""
_BODIES = {
    "decode": """    new_state = state.clone()
    for row in range(q.shape[0]):
        S, o = step(state[row].float(){turn}, q[row, 0], k[row, 0], v[row, 0], alpha[row, 0],
                    beta[row, 0])
        new_state[row] = S{turn}
        output[row, 0] = o
    return output, new_state
""",
    "mtp": """    final_state = initial_state.clone(){keep}
    for row in range(q.shape[0]):
        slot = int(initial_state_indices[row])
        S = initial_state[slot].float(){turn}
        for t in range(q.shape[1]):
            S, o = step(S, q[row, t], k[row, t], v[row, t], alpha[row, t], beta[row, t])
            output[row, t] = o
{buffer}        {write}
    return output, final_state
""",
    "prefill": """    new_state = state.clone()
    for n in range(state.shape[0]):
        S = state[n].float(){turn}
        for t in range(int(cu_seqlens[n]), int(cu_seqlens[n + 1])):
            S, o = step(S, q[t], k[t], v[t], alpha[t], beta[t])
            output[t] = o
        new_state[n] = S{turn}
    return output, new_state
"""}

# Digests of the references of the public dataset (in flashinfer-ai/flashinfer-bench, January to April
# 2026) and, last in a line, of FlashInfer itself (fb28d72, flashinfer/trace/templates/gdn.py).
_GDN = "gated_delta_rule"
PUBLIC: Mapping[str, Form] = {
    **dict.fromkeys(("15c1e6bc44cacab2", "c99cae7637a5e245", "127267c1838e42af"),
                    Form(_GDN, "decode")),
    "6d8253e4c90aa16c": Form(_GDN, "decode", "kv"),
    "65a8101e0343ad3f": Form(_GDN, "mtp", commits=False),
    "c976108b3cbea9bd": Form(_GDN, "mtp", "kv", commits=False),
    "7b6c2253c915564b": Form(_GDN, "mtp"),
    **dict.fromkeys(("a31f435cede0aef6", "f660857eb7d995d8", "abaf2453e3929afa"),
                    Form(_GDN, "prefill", clears=True)),
    "1b360c853073805f": Form(_GDN, "prefill", "kv", clears=True),
}


def digest(reference: str) -> str:
    """Of what a reference computes: its tokens without comments, docstrings, assertions and imports
    from __future__; the last function is `run`, whatever its name is."""
    words: list[str] = []
    line: list[str] = []
    last_function = -1
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(reference).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER):
            continue
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            depth += 1 if token.type == tokenize.INDENT else -1
            words.append("{" if token.type == tokenize.INDENT else "}")
        elif token.type == tokenize.NEWLINE:
            if line and not _says_nothing(line):
                if depth == 0 and line[0] == "def":
                    last_function = len(words) + 1
                words += [*line, ";"]
            line = []
        else:
            line.append(token.string)
    if last_function >= 0:
        words[last_function] = "run"
    # A trailing comma and the parentheses of a wrapped line change nothing.
    text = re.sub(r", ([)\]])", r"\1", " ".join(words))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _says_nothing(line: list[str]) -> bool:
    docstring = len(line) == 1 and line[0].lstrip("rRuUbB").startswith(("'", '"'))
    plain = not {";", ":=", "(", "[", "lambda"} & set(line)  # nothing that could change a value
    return docstring or (plain and (line[:1] == ["assert"] or line[:2] == ["from", "__future__"]))


def own_forms(op: str, mode: str) -> list[Form]:
    """Those that are written."""
    commits = (True, False) if mode == "mtp" else (True,)
    return [Form(op, mode, layout, norm, update) for layout in _LAYOUTS for norm in (False, True)
            for update in commits]


def _meaning(op: str, mode: str, definition: Mapping[str, Any]) -> Form | None:
    """What the reference of a definition computes; None where that is not known."""
    reference = definition.get("reference")
    if not isinstance(reference, str):
        return None
    try:
        given = digest(reference)
    except (tokenize.TokenError, SyntaxError):
        return None
    parameters, dtype = tuple(definition["inputs"]), str(definition["outputs"]["output"]["dtype"])
    own = (form for form in own_forms(op, mode)
           if digest(form.reference(dtype, parameters)) == given)
    return PUBLIC.get(given) or next(own, None)


_NAME = re.compile(r"(gdn|kda)_(decode|mtp|prefill)_qk(\d+)_v(\d+)_d(\d+)(_\w+)?")


def form_of(definition: Mapping[str, Any]) -> Form:
    """What a definition means. ValueError names what is not known about it."""
    name = str(definition["name"])
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r}: expected a definition gdn_ or kda_, decode, mtp or prefill, "
                         "_qkH_vHV_dK and a suffix")
    op, mode = _OPS[found[1]], found[2]
    parameters = tuple(definition["inputs"])
    expected = tuple(INPUTS[mode])
    without = tuple(parameter for parameter in expected if parameter != BUFFER)
    if parameters not in (expected, without):
        raise ValueError(f"{name}: inputs: expected {', '.join(expected)}, actual "
                         f"{', '.join(map(str, parameters))}")
    if tuple(definition["outputs"]) != tuple(OUTPUTS[mode]):
        raise ValueError(f"{name}: outputs: expected {', '.join(OUTPUTS[mode])}, actual "
                         f"{', '.join(map(str, definition['outputs']))}")
    form = _meaning(op, mode, definition)
    if form is None or (form.op, form.mode) != (op, mode):
        raise ValueError(f"{name}: its reference is none that is known, so that what its kernels must "
                         "compute is not known either")
    for tensor, row in {**definition["inputs"], **definition["outputs"]}.items():
        if row["shape"] != form.shape(tensor):
            raise ValueError(f"{name}: {tensor}: expected the axes {form.shape(tensor)}, actual "
                             f"{row['shape']}")
        if not isinstance(row.get("dtype"), str):
            raise ValueError(f"{name}: {tensor}: expected a dtype, actual {row.get('dtype')!r}")
        lacking = [axis for axis in row["shape"] or () if axis not in definition["axes"]]
        if lacking:
            raise ValueError(f"{name}: axes: expected {lacking[0]}, actual "
                             f"{', '.join(map(str, definition['axes']))}")
    return form

# SPDX-License-Identifier: Apache-2.0
"""Functions with the signatures of flash-linear-attention (fla-core 0.6), forward only:

    from goldenrule.ops.fla import fused_recurrent_gated_delta_rule, chunk_gated_delta_rule
    from goldenrule.ops.fla import fused_recurrent_kda, chunk_kda

One token goes to decode, more go to prefill; what is recurrent there computes in fp32 throughout. A
value of an argument whose mathematics is another is refused by its name: gk, gv, cp_context,
return_intermediate_states, use_graph, chunk sizes other than 64, beta=None. The final state is fp32, so
a start state has to be.
"""

from typing import Any

import torch

from . import decode, prefill
from ._meaning import Meaning, meaning_of, packed

Tensor = torch.Tensor


def _called(function: str, arguments: dict[str, Any], o_like: str) -> tuple[Tensor, Tensor | None]:
    arguments.update(arguments.pop("kwargs"))
    if arguments["allow_neg_eigval"] and not arguments["use_beta_sigmoid_in_kernel"]:
        raise ValueError("allow_neg_eigval=True: expected use_beta_sigmoid_in_kernel=True, actual False")
    asked = meaning_of(function, arguments)
    v = arguments["v"]
    o = torch.empty(v.shape, dtype=arguments[o_like].dtype, device=v.device)
    start = asked.inputs.get("initial_state")
    cu_seqlens = asked.inputs.get("cu_seqlens")
    B, T, K, (HV, V) = v.shape[0], v.shape[1], arguments["k"].shape[-1], v.shape[2:4]
    N = B if cu_seqlens is None else cu_seqlens.shape[0] - 1
    state = (V, K) if asked.options["state_layout"] == "vk" else (K, V)
    final = None
    if arguments["output_final_state"]:
        final = torch.empty((N, HV, *state), dtype=torch.float32, device=v.device)
    if T == 1 and cu_seqlens is None:
        _one_token(asked, o, start, final, (B, HV, *state))
    else:
        _more_tokens(asked, o, start, final, cu_seqlens, (B, T))
    return o, final


def _one_token(asked: Meaning, o: Tensor, start: Tensor | None, final: Tensor | None,
               shape: tuple[int, ...]) -> None:
    if start is None:
        start = torch.zeros(shape, dtype=torch.float32, device=o.device)
    decode(*asked.token_inputs(), start, o=o, final_state=final, disable_state_update=final is None,
           **asked.options)


def _more_tokens(asked: Meaning, o: Tensor, start: Tensor | None, final: Tensor | None,
                 cu_seqlens: Tensor | None, rows: tuple[int, int]) -> None:
    tokens = [packed(name, tensor) for name, tensor in zip(("q", "k", "v", "g", "beta"),
                                                           asked.token_inputs())]
    if cu_seqlens is None:
        B, T = rows
        cu_seqlens = torch.arange(B + 1, dtype=torch.int32, device=o.device) * T
    prefill(*tokens, cu_seqlens, o=packed("o", o), state=start, final_state=final,
            disable_state_update=final is None, precise=asked.recurrent, **asked.options)


def fused_recurrent_gated_delta_rule(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, gk: Tensor | None = None,
        gv: Tensor | None = None, beta: Tensor | None = None, scale: float | None = None,
        initial_state: Tensor | None = None, output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
        A_log: Tensor | None = None, dt_bias: Tensor | None = None,
        use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
        state_v_first: bool = False, cu_seqlens: Tensor | None = None,
        **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    return _called("fla.ops.gated_delta_rule.fused_recurrent.fused_recurrent_gated_delta_rule",
                   dict(locals()), "v")


def chunk_gated_delta_rule(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None,
        initial_state: Tensor | None = None, output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False,
        allow_neg_eigval: bool = False, state_v_first: bool = False, cu_seqlens: Tensor | None = None,
        cu_seqlens_cpu: Tensor | None = None, chunk_indices: Tensor | None = None,
        cp_context: Any = None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    return _called("fla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule", dict(locals()), "q")


def fused_recurrent_kda(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor | None = None,
        dt_bias: Tensor | None = None, scale: float | None = None,
        initial_state: Tensor | None = None, output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
        use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
        lower_bound: float | None = None, state_v_first: bool = False,
        cu_seqlens: Tensor | None = None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    return _called("fla.ops.kda.fused_recurrent.fused_recurrent_kda", dict(locals()), "v")


def chunk_kda(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None,
        initial_state: Tensor | None = None, output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
        use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
        safe_gate: bool = False, lower_bound: float | None = None, disable_recompute: bool = False,
        return_intermediate_states: bool = False, state_v_first: bool = False,
        cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None, cp_context: Any = None,
        use_graph: bool = False, max_num_seqs: int | None = None,
        **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    return _called("fla.ops.kda.chunk.chunk_kda", dict(locals()), "q")

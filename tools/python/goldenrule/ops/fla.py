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
from ._bounds import bounds_of
from ._meaning import Meanings

Tensor = torch.Tensor


_GDN = "fla.ops.gated_delta_rule"
_RECURRENT_GDN = Meanings(f"{_GDN}.fused_recurrent.fused_recurrent_gated_delta_rule")
_CHUNK_GDN = Meanings(f"{_GDN}.chunk.chunk_gated_delta_rule")
_RECURRENT_KDA = Meanings("fla.ops.kda.fused_recurrent.fused_recurrent_kda")
_CHUNK_KDA = Meanings("fla.ops.kda.chunk.chunk_kda")


def _called(meanings: Meanings, arguments: dict[str, Any], o_like: str) -> tuple[Tensor, Tensor | None]:
    arguments.update(arguments.pop("kwargs"))
    if arguments["allow_neg_eigval"] and not arguments["use_beta_sigmoid_in_kernel"]:
        raise ValueError("allow_neg_eigval=True: expected use_beta_sigmoid_in_kernel=True, actual False")
    meaning = meanings.of(arguments)
    given = meaning.operands(arguments)
    v, start, cu_seqlens = arguments["v"], arguments["initial_state"], arguments["cu_seqlens"]
    o = arguments[o_like].new_empty(v.shape)
    B, T, HV, V = v.shape
    K = arguments["k"].shape[-1]
    N = B if cu_seqlens is None else cu_seqlens.shape[0] - 1
    shape = (N, HV, K, V) if given["state_layout"] == "kv" else (N, HV, V, K)
    final = v.new_empty(shape, dtype=torch.float32) if arguments["output_final_state"] else None
    if T == 1 and cu_seqlens is None:
        if start is None:
            start = v.new_zeros(shape, dtype=torch.float32)
        decode(**given, state=start, o=o, final_state=final, disable_state_update=final is None)
        return o, final
    if cu_seqlens is None:
        cu_seqlens = bounds_of(B, T, v.device)
    prefill(**given, cu_seqlens=cu_seqlens, o=o, state=start, final_state=final,
            disable_state_update=final is None, precise=meaning.recurrent)
    return o, final


def fused_recurrent_gated_delta_rule(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, gk: Tensor | None = None,
        gv: Tensor | None = None, beta: Tensor | None = None, scale: float | None = None,
        initial_state: Tensor | None = None, output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
        A_log: Tensor | None = None, dt_bias: Tensor | None = None,
        use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
        state_v_first: bool = False, cu_seqlens: Tensor | None = None,
        **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    return _called(_RECURRENT_GDN, dict(locals()), "v")


def chunk_gated_delta_rule(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None,
        initial_state: Tensor | None = None, output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False,
        allow_neg_eigval: bool = False, state_v_first: bool = False, cu_seqlens: Tensor | None = None,
        cu_seqlens_cpu: Tensor | None = None, chunk_indices: Tensor | None = None,
        cp_context: Any = None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    return _called(_CHUNK_GDN, dict(locals()), "q")


def fused_recurrent_kda(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor | None = None,
        dt_bias: Tensor | None = None, scale: float | None = None,
        initial_state: Tensor | None = None, output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
        use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
        lower_bound: float | None = None, state_v_first: bool = False,
        cu_seqlens: Tensor | None = None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    return _called(_RECURRENT_KDA, dict(locals()), "v")


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
    return _called(_CHUNK_KDA, dict(locals()), "q")

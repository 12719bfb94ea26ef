# SPDX-License-Identifier: Apache-2.0
"""Functions with the signatures of FlashInfer (0.7.2):

    from goldenrule.ops.flashinfer import gated_delta_rule_decode_pretranspose, gated_delta_rule_mtp
    from goldenrule.ops.flashinfer import chunk_gated_delta_rule, gated_delta_rule_decode

States are updated in place, as there. `backend` and other arguments that choose a kernel are taken and
mean nothing. A row of padding (slot < 0) leaves every slot as it is and its o is 0; FlashInfer's
kernels of bf16 states write slot 0 for it. Refused by name: cache_replayssm, checkpoints of a prefill,
pools of five axes, and a prefill with state_indices whose output_state is another pool.
"""

from typing import Any

import torch

from . import decode, prefill, mtp
from ._meaning import meaning_of

Tensor = torch.Tensor


def _rows(function: str, arguments: dict[str, Any], pool: Tensor) -> tuple[Tensor, Tensor]:
    q, v, output = arguments["q"], arguments["v"], arguments["output"]
    asked = meaning_of(function, arguments)
    if output is None:
        output = torch.empty(v.shape, dtype=q.dtype, device=q.device)
    slots = {name: asked.inputs[name] for name in ("state_indices", "output_state_indices",
                                                   "ssm_state_indices") if name in asked.inputs}
    kept = arguments.get("intermediate_states_buffer")
    if kept is None and q.shape[1] == 1 and "ssm_state_indices" not in slots:
        decode(*asked.token_inputs(), pool, o=output, **slots, **asked.options)
    else:
        rows = None if kept is None else kept[:q.shape[0]]
        mtp(*asked.token_inputs(), pool, o=output, intermediate_states=rows, **slots,
               **asked.options)
    return output, pool


def gated_delta_rule_decode_pretranspose(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, A_log: Tensor, a: Tensor,
        dt_bias: Tensor, b: Tensor, scale: float | None = None, output: Tensor | None = None,
        use_qk_l2norm: bool = True, initial_state: Tensor | None = None,
        initial_state_indices: Tensor | None = None, output_state_indices: Tensor | None = None,
        intermediate_states_buffer: Tensor | None = None, disable_state_update: bool = False,
        backend: str = "auto") -> tuple[Tensor, Tensor]:
    pool = state if initial_state is None else initial_state
    if pool is None or (state is not None and initial_state is not None):
        raise ValueError("state: expected one of state and initial_state, actual "
                         + ("none" if pool is None else "both"))
    return _rows("flashinfer.gdn_decode.gated_delta_rule_decode_pretranspose",
                 {name: value for name, value in locals().items() if name != "pool"}, pool)


def gated_delta_rule_decode(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, state: Tensor, A_log: Tensor, a: Tensor, dt_bias: Tensor,
        b: Tensor, scale: float | None = None, output: Tensor | None = None,
        use_qk_l2norm: bool = True, backend: str = "auto") -> tuple[Tensor, Tensor]:
    return _rows("flashinfer.gdn_decode.gated_delta_rule_decode", dict(locals()), state)


def gated_delta_rule_mtp(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, initial_state: Tensor, initial_state_indices: Tensor,
        A_log: Tensor, a: Tensor, dt_bias: Tensor, b: Tensor, scale: float | None = None,
        output: Tensor | None = None, intermediate_states_buffer: Tensor | None = None,
        ssm_state_indices: Tensor | None = None, disable_state_update: bool | None = None,
        use_qk_l2norm: bool = True, output_state_indices: Tensor | None = None,
        cache_replayssm: bool = False, replayssm_rawv: Tensor | None = None,
        replayssm_rawk: Tensor | None = None, replayssm_g: Tensor | None = None,
        replayssm_beta: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return _rows("flashinfer.gdn_decode.gated_delta_rule_mtp", dict(locals()), initial_state)


def chunk_gated_delta_rule(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, beta: Tensor | None = None,
        scale: float | None = None, initial_state: Tensor | None = None,
        output_final_state: bool = False, cu_seqlens: Tensor | None = None,
        use_qk_l2norm_in_kernel: bool = False, output: Tensor | None = None,
        output_state: Tensor | None = None, state_checkpoints: Tensor | None = None,
        checkpoint_cu_starts: Tensor | None = None, checkpoint_every_n_tokens: int = 0,
        use_cp: str | bool = "auto", state_indices: Tensor | None = None,
        _cp_chunk_len: int | None = None, backend: str = "auto",
        max_seqlen: int | None = None) -> Tensor | tuple[Tensor, Tensor]:
    if cu_seqlens is None:
        raise ValueError("cu_seqlens: expected a tensor, actual None")
    asked = meaning_of("flashinfer.gdn_prefill.chunk_gated_delta_rule", dict(locals()))
    if state_indices is not None and output_final_state and output_state is not initial_state:
        raise ValueError("output_state: expected initial_state itself beside state_indices, actual "
                         "another pool")
    N, HV, V, K = cu_seqlens.shape[0] - 1, v.shape[1], v.shape[-1], q.shape[-1]
    if output is None:
        output = torch.empty(v.shape, dtype=q.dtype, device=q.device)
    final = output_state
    if output_final_state and final is None:
        final = torch.empty((N, HV, V, K), dtype=torch.float32, device=q.device)
    in_place = final is initial_state
    prefill(*asked.token_inputs(), cu_seqlens, o=output, state=initial_state,
            final_state=None if in_place or not output_final_state else final,
            disable_state_update=not output_final_state, state_indices=state_indices, **asked.options)
    return (output, final) if output_final_state else output  # type: ignore[return-value]

# SPDX-License-Identifier: Apache-2.0
"""Functions with the signatures of FlashInfer (0.7.2):

    from goldenrule.ops.flashinfer import gated_delta_rule_decode_pretranspose, gated_delta_rule_mtp
    from goldenrule.ops.flashinfer import chunk_gated_delta_rule, gated_delta_rule_decode
    from goldenrule.ops.flashinfer import BatchPrefillWithPagedKVCacheWrapper
    from goldenrule.ops.flashinfer import BatchDecodeWithPagedKVCacheWrapper

States are updated in place, as there. `backend` and other arguments that choose a kernel are taken and
mean nothing. A row of padding (slot < 0) leaves every slot as it is and its o is 0; FlashInfer's
kernels of bf16 states write slot 0 for it. Refused by name: cache_replayssm, checkpoints of a prefill,
pools of five axes, and a prefill with state_indices whose output_state is another pool. Of the wrappers:
masks of one's own, soft caps, position encodings, scales of fp8, sinks. With use_cuda_graph, plan()
copies into the buffers, and a captured run() reads them; options of a later plan() need a new capture.
"""

from typing import Any

import torch

from . import decode, prefill, mtp
from ._meaning import Meanings
from ._paged import (BatchDecodeWithPagedKVCacheWrapper as BatchDecodeWithPagedKVCacheWrapper,
                     BatchPrefillWithPagedKVCacheWrapper as BatchPrefillWithPagedKVCacheWrapper)

Tensor = torch.Tensor


_PRETRANSPOSE = Meanings("flashinfer.gdn_decode.gated_delta_rule_decode_pretranspose")
_DECODE = Meanings("flashinfer.gdn_decode.gated_delta_rule_decode")
_MTP = Meanings("flashinfer.gdn_decode.gated_delta_rule_mtp")
_CHUNK = Meanings("flashinfer.gdn_prefill.chunk_gated_delta_rule")


def _rows(meanings: Meanings, arguments: dict[str, Any], pool: Tensor) -> tuple[Tensor, Tensor]:
    given = meanings.of(arguments).operands(arguments)
    q, output = arguments["q"], arguments["output"]
    if output is None:
        output = q.new_empty(arguments["v"].shape)
    kept = arguments.get("intermediate_states_buffer")
    if kept is None and q.shape[1] == 1 and "ssm_state_indices" not in given:
        decode(**given, state=pool, o=output)
    else:
        rows = None if kept is None else kept[:q.shape[0]]
        mtp(**given, state=pool, o=output, intermediate_states=rows)
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
    given = dict(locals())
    del given["pool"]
    return _rows(_PRETRANSPOSE, given, pool)


def gated_delta_rule_decode(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, state: Tensor, A_log: Tensor, a: Tensor, dt_bias: Tensor,
        b: Tensor, scale: float | None = None, output: Tensor | None = None,
        use_qk_l2norm: bool = True, backend: str = "auto") -> tuple[Tensor, Tensor]:
    return _rows(_DECODE, dict(locals()), state)


def gated_delta_rule_mtp(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, initial_state: Tensor, initial_state_indices: Tensor,
        A_log: Tensor, a: Tensor, dt_bias: Tensor, b: Tensor, scale: float | None = None,
        output: Tensor | None = None, intermediate_states_buffer: Tensor | None = None,
        ssm_state_indices: Tensor | None = None, disable_state_update: bool | None = None,
        use_qk_l2norm: bool = True, output_state_indices: Tensor | None = None,
        cache_replayssm: bool = False, replayssm_rawv: Tensor | None = None,
        replayssm_rawk: Tensor | None = None, replayssm_g: Tensor | None = None,
        replayssm_beta: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return _rows(_MTP, dict(locals()), initial_state)


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
    arguments = dict(locals())
    given = _CHUNK.of(arguments).operands(arguments)
    if state_indices is not None and output_final_state and output_state is not initial_state:
        raise ValueError("output_state: expected initial_state itself beside state_indices, actual "
                         "another pool")
    if output is None:
        output = q.new_empty(v.shape)
    final = output_state
    if output_final_state and final is None:
        shape = (cu_seqlens.shape[0] - 1, v.shape[1], v.shape[-1], q.shape[-1])
        final = q.new_empty(shape, dtype=torch.float32)
    in_place = final is initial_state
    prefill(**given, cu_seqlens=cu_seqlens, o=output, state=initial_state,
            final_state=None if in_place or not output_final_state else final,
            disable_state_update=not output_final_state)
    return (output, final) if output_final_state else output  # type: ignore[return-value]

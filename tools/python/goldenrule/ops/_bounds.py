# SPDX-License-Identifier: Apache-2.0
"""The bounds of rows of equal length on a device, which the functions of other libraries leave out and
the kernels read: made once, as a kernel that counts to a few would take as long as the call."""

import torch

_MOST_KNOWN = 1024
_known: dict[tuple[int, int, torch.device], torch.Tensor] = {}


def bounds_of(rows: int, length: int, device: torch.device) -> torch.Tensor:
    """0, length, .. rows * length."""
    known = _known.get((rows, length, device))
    if known is not None:
        return known
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or (
            device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
        # What a graph computes is there when the graph has run.
        return torch.arange(rows + 1, dtype=torch.int32, device=device) * length
    with torch.inference_mode(False):
        # From the host: this waits for the copy, so that it is complete for every stream.
        made = torch.tensor([row * length for row in range(rows + 1)], dtype=torch.int32, device=device)
    # None is dropped again: another stream may still read it.
    if len(_known) < _MOST_KNOWN:
        _known[rows, length, device] = made
    return made

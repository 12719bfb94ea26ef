# SPDX-License-Identifier: Apache-2.0
"""One call of a function under torch's autograd: fresh leaves, the call, its gradients.

What the caller holds stays as it is: his tensors are copied, their .grad is not touched, and the modes that
he is in (no_grad, inference_mode, autocast) end at this call.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from . import _capture
from ._calls import Call
from ._words import check_contract

_WIDEST = 8  # a leaf keeps the strides of its tensor where these span at most so many times its elements


def torch_module() -> Any:
    """torch. ImportError with one line where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("goldenrule.gradcheck: expected torch, whose autograd it uses, actual none "
                          f"({error})") from error
    return torch


def is_floating(value: Any) -> bool:
    """Whether it is a torch tensor of a floating-point type."""
    torch = torch_module()
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@contextmanager
def plain_autograd(values: tuple[Any, ...], notes: list[str]) -> Iterator[None]:
    """Gradients on, autocast off on the devices of these values; a note says where it was on."""
    torch = torch_module()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        devices = {"cpu"} | {value.device.type for value in values if isinstance(value, torch.Tensor)}
        for device in sorted(devices):
            if torch.is_autocast_enabled(device):
                notes.append(f"autocast of {device} was on: the function was called without it")
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def fresh(value: Any) -> Any:
    """A tensor of the same values in memory of its own, without a history; other values as they are.

    It has the strides of the tensor, so that a kernel sees what its user gives it, unless elements overlap
    or lie far apart.
    """
    torch = torch_module()
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.layout is not torch.strided:
        return value.clone()
    steps = sorted((step, n) for n, step in zip(value.shape, value.stride()) if n > 1)
    span = 1
    for step, n in steps:
        if step < span:  # elements overlap, or may
            return value.clone(memory_format=torch.contiguous_format)
        span = step * (n - 1) + span
    if not value.numel() or span > _WIDEST * value.numel():
        return value.clone(memory_format=torch.contiguous_format)
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(value)


def outputs_of(result: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """o and final_state of what a function returned: a tensor, a sequence in the order of `names`, or
    a mapping. ValueError where o is no tensor."""
    torch = torch_module()
    if isinstance(result, Mapping):
        found = dict(result)
    elif isinstance(result, (tuple, list)):
        found = dict(zip(names, result))
    else:
        found = {"o": result}
    found = {name: found.get(name) for name in ("o", "final_state")}
    if not isinstance(found["o"], torch.Tensor):
        raise ValueError(f"o: expected a torch tensor, (o, final_state) or {{'o': .., 'final_state': ..}} from "
                         f"the function, actual {type(result).__name__}")
    return {name: value for name, value in found.items() if value is not None}


def gradients(outputs: Mapping[str, Any], given: Mapping[str, Any], leaves: Mapping[str, Any],
              notes: list[str]) -> dict[str, Any]:
    """{name of a leaf: gradient or None} of sum(outputs * given).

    outputs: o and final_state as the function returned them; given: their gradients, those that are None
    left out. ValueError where autograd cannot do it, and for gradients of another shape, type or device.
    """
    torch = torch_module()
    taken = []
    for name, gradient in given.items():
        _refuse_other(name, gradient, outputs.get(name))
        if outputs[name].requires_grad:
            taken.append(name)
        else:
            notes.append(f"{name}: no gradient passes through what the function returns")
    if not taken:
        raise ValueError(f"{' and '.join(given)}: expected an output that autograd follows, actual one "
                         "without a backward pass (detached, computed under no_grad, or by a kernel that "
                         "autograd does not know)")
    try:
        found = torch.autograd.grad([outputs[name] for name in taken], list(leaves.values()),
                                    [given[name] for name in taken], allow_unused=True)
    except NotImplementedError as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError("backward: expected a function with a backward pass, actual one without: "
                         f"{reason}") from error
    return dict(zip(leaves, found))


def check_backward(op: str, contract: str | Mapping[str, Any] | None) -> None:
    """Raises where gradients of an operation cannot be judged, or not by the contract."""
    if op not in _capture.OPS:
        raise ValueError(f"gradients: expected a function of {' or '.join(_capture.OPS)}, which have a backward "
                         f"operation, actual one of {op}")
    check_contract(contract, f"{op}_backward", "backward_contract")


def backward_call(forward: Call, given: Mapping[str, Any], gradients: Mapping[str, Any],
                  contract: str) -> Call:
    """The call of the backward operation, on the host. given: the gradients by o and final_state that were
    taken, one by o that was not is zero; gradients: {name of an input: its gradient}."""
    torch = torch_module()
    do = given.get("o")
    inputs = {**forward.inputs, "do": torch.zeros_like(forward.outputs["o"]) if do is None else do}
    if "final_state" in given:
        inputs["dfinal_state"] = given["final_state"]
    return Call(op=f"{forward.op}_backward", mode="prefill", convention=dict(forward.convention), inputs=inputs,
                outputs={f"d{name}": gradient for name, gradient in gradients.items()},
                source=forward.source, contract=contract)


def _refuse_other(name: str, gradient: Any, output: Any) -> None:
    torch = torch_module()
    what = "do" if name == "o" else "dfinal_state"
    if not isinstance(gradient, torch.Tensor):
        raise TypeError(f"{what}: expected a torch tensor, actual {type(gradient).__name__}")
    if not isinstance(output, torch.Tensor):
        raise ValueError(f"{what}: expected None, since the function returned no {name}, actual a gradient of it"
                         + (" (output_final_state=True asks for one)" if name == "final_state" else ""))
    wanted, actual = ((list(each.shape), each.dtype, each.device) for each in (output, gradient))
    if wanted != actual:
        raise ValueError(f"{what}: expected that of {name}, {_told(*wanted)}, actual {_told(*actual)}")


def _told(shape: list[int], dtype: Any, device: Any) -> str:
    return f"{str(dtype).removeprefix('torch.')} {shape} on {device}"

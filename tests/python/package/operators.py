# SPDX-License-Identifier: Apache-2.0
"""Cases of the suites as calls of the operators (goldenrule.ops), for tests here and on a device."""

from goldenrule import _gpu

OPTION_OF = {"gate": "gate_kind", "beta": "beta_kind", "qk_l2norm": "qk_norm"}  # else the same
TENSOR_OF = {"initial_state": "state", "a": "gate", "g": "gate", "b": "beta"}
# Inputs that no kernel takes (gpu/README.md).
NOT_TAKEN = ("parent_tokens", "checkpoint_tokens", "initial_intermediate_states", "has_initial_state",
             "intermediate_state_indices")


class Host(_gpu.Library):
    """The kernels on the CPU (tests/gpu_host), and what goldenrule.ops has for a device. There a kernel
    runs when somebody waits for it."""

    def _call(self, function, *given):
        super()._call(function, *given)
        assert self._functions.cudaDeviceSynchronize() == 0, "a kernel failed: see stderr"

    def run(self, index, launch):
        launch(self, 0)


def taken(call):
    """Whether the kernels take the call."""
    f64 = any(str(x.dtype).endswith("float64") for x in call.inputs.values())
    state = call.inputs.get("initial_state")
    f16_state = state is not None and str(state.dtype).endswith("float16") and \
        not str(state.dtype).endswith("bfloat16")
    packed = call.mode == "mtp" and "cu_seqlens" in call.inputs
    return not (f64 or f16_state or packed or any(name in call.inputs for name in NOT_TAKEN))


def arguments(call, tensors):
    """(operator, positional tensors, options) of a call; tensors: its inputs as torch tensors."""
    options = {OPTION_OF.get(name, name): value for name, value in call.convention.items()}
    options["disable_state_update"] = bool(options.get("disable_state_update", 0))
    options["op"] = call.op
    given = {TENSOR_OF.get(name, name): value for name, value in tensors.items()}
    given.setdefault("gate", None)
    if call.mode == "prefill":
        names = ("q", "k", "v", "gate", "beta", "cu_seqlens")
    else:
        names = ("q", "k", "v", "gate", "beta", "state")
    positional = [given.pop(name) for name in names]
    operator = {"decode": "decode", "mtp": "verify", "prefill": "prefill"}[call.mode]
    return operator, positional, {**options, **given}


def run(torch, ops, call, tensors, wrap=lambda function: function):
    """The outputs of a call, as torch tensors. wrap: what makes another function of an operator, as
    torch.compile does."""
    operator, positional, options = arguments(call, tensors)
    if operator == "prefill" and "state" not in options:
        q, v, cu = positional[0], positional[2], positional[5]
        K, V = q.shape[-1], v.shape[-1]
        state = (V, K) if call.convention.get("state_layout", "vk") == "vk" else (K, V)
        options["final_state"] = torch.zeros((len(cu) - 1, v.shape[1], *state), device=q.device)
    if operator == "prefill" and "checkpoint_offsets" in options:
        held = options.get("state", options.get("final_state"))
        rows = len(options["checkpoint_offsets"])
        options["checkpoints"] = held.new_empty((rows, *held.shape[1:]))
    if operator == "verify" and "ssm_state_indices" not in options:
        B, T, state = positional[0].shape[0], positional[0].shape[1], positional[5]
        options["intermediate_states"] = state.new_zeros((B, T, *state.shape[1:]))
    o = wrap(getattr(ops, operator))(*positional, **options)
    pool = options.get("final_state", options.get("state"))
    outputs = {"o": o, "final_state": positional[5] if operator != "prefill" else pool,
               "intermediate_states": options.get("intermediate_states"),
               "checkpoints": options.get("checkpoints")}
    return {name: value for name, value in outputs.items() if value is not None}

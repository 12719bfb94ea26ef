# SPDX-License-Identifier: Apache-2.0
"""torch.ops.goldenrule.*, where torch is: on the kernels on the CPU (GOLDENRULE_GPU_HOST_LIBRARY), as
they are called on a device. Each function with the signature of another library is judged by the row
that the recorder has for the original."""

import operators
import pytest

import goldenrule

torch = pytest.importorskip("torch")
from goldenrule import ops  # noqa: E402
from goldenrule._rows import ROWS  # noqa: E402
from goldenrule.ops import fla, flashinfer, sglang  # noqa: E402

DECODE = "op=gdn mode=decode B=3 H=2 HV=4 K=64 V=32 slots=permuted"
LINES = [DECODE, "op=kda mode=mtp B=2 T=3 H=1 HV=2 K=64 V=32 slots=scatter",
         "op=kda mode=prefill lens=20,0,9 H=1 HV=2 K=64 V=32 h0=1"]
ROW_OF = {row.function: row for row in ROWS}
H, HV, K, V = 1, 2, 64, 32


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def normal(*shape, dtype=torch.bfloat16):
    made = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), device="cpu")
    return made.to(torch.get_default_device(), dtype)


def decode_arguments(device="cpu"):
    case = goldenrule.fixture(DECODE)
    _, positional, options = operators.arguments(case.call(), case.tensors(device))
    return positional, options


@pytest.mark.parametrize("backend", ["aot_eager", "inductor", "reduce-overhead"])
@pytest.mark.parametrize("line", LINES)
def test_a_compiled_call_is_right(device, line, backend):
    if backend != "aot_eager" and device == "cpu":
        pytest.skip("cuda: for the CPU inductor compiles nothing of a call alone")
    how = dict(backend="inductor", mode=backend) if backend == "reduce-overhead" else dict(backend=backend)
    case = goldenrule.fixture(line)

    def compiled(function):
        return torch.compile(function, fullgraph=True, **how)

    report = case.judge(operators.run(ops, case.call(), case.tensors(device), compiled), explain=False)
    assert report.passed, str(report)


def test_a_call_lies_between_what_is_compiled(device):
    """What comes before it, what it writes, and what reads that, in their order."""
    backend = "inductor" if device == "cuda" else "aot_eager"
    positional, options = decode_arguments(device)
    *tokens, state = positional

    def model(q, k, v, a, b, pool):
        o = ops.decode(q * 1.0, k + 0, v, a, b, pool, **options)
        return o.float() * 2, pool * 2  # nothing is rounded: every backend has the same bits

    states = [state.clone(), state.clone()]
    eager = model(*tokens, states[0])
    compiled = torch.compile(model, backend=backend, fullgraph=True)(*tokens, states[1])
    assert torch.equal(*states) and not torch.equal(states[0], state)
    assert all(torch.equal(*each) for each in zip(eager, compiled))


def test_what_is_written_is_declared(device):
    positional, options = decode_arguments(device)
    o = torch.empty_like(positional[2])
    torch.library.opcheck(torch.ops.goldenrule.decode.default, (*positional, o), options,
                          test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))
    for name in ops.SCHEMAS:
        schema = getattr(torch.ops.goldenrule, name).default._schema
        written = {a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write}
        expected = {"decode": {"state", "o", "final_state"},
                    "mtp": {"state", "o", "final_state", "intermediate_states"},
                    "replay": {"state", "o", "final_state", "ring_d", "ring_k", "ring_g"},
                    "commit": {"state", "final_state", "intermediate_states"},
                    "prefill": {"state", "o", "final_state", "checkpoints"}, "attention": {"o", "lse"}}[name]
        assert written == expected and not schema.returns


def test_fake_tensors_need_no_library():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 1, 1, 64, device="cuda")
        v, pool = torch.empty(2, 1, 2, 32, device="cuda"), torch.empty(9, 2, 32, 64, device="cuda")
        gate = torch.empty(2, 1, 2, device="cuda")
        o = ops.decode(q, q, v, gate, gate, pool)
        assert o.shape == v.shape and o.device == v.device and o.dtype == v.dtype


def test_refusals_are_python_errors(device):
    positional, options = decode_arguments(device)
    if device == "cuda":
        with pytest.raises(ValueError, match=r"q: expected device 0, actual -1 \(-1: the host\)"):
            ops.decode(positional[0].cpu(), *positional[1:], **options)
    with pytest.raises(ValueError, match="o.data: expected memory that nothing else of the call is in"):
        ops.decode(*positional, o=positional[2], **options)
    with pytest.raises(ValueError, match="state: expected the shape"):
        ops.decode(*positional[:5], positional[5][:, :2], **options)
    with pytest.raises(ValueError, match="gate_kind: expected one of softplus, bounded"):
        ops.decode(*positional, **{**options, "gate_kind": "soft"})
    with pytest.raises(ValueError, match=r"q.stride\[0\]: expected 1 or more for 3 elements"):
        ops.decode(positional[0][:1].expand(3, -1, -1, -1), *positional[1:], **options)
    with pytest.raises(TypeError, match="q: expected one of float32, .* actual torch.float64"):
        ops.decode(positional[0].double(), *positional[1:], **options)
    with pytest.raises(ValueError, match="one token per row"):
        ops.decode(*(x.repeat(1, 2, *[1] * (x.dim() - 2)) for x in positional[:5]), positional[5],
                   **options)
    with pytest.raises(NotImplementedError, match="K: expected|f32 or bf16"):
        ops.decode(*positional[:5], positional[5].half(), **options)
    with torch.enable_grad(), pytest.raises(RuntimeError, match="A_log: expected no gradient"):
        ops.decode(*positional, **{**options, "A_log": options["A_log"].requires_grad_()})


@pytest.mark.parametrize("line", ["op=gdn mode=decode B=3 H=2 HV=4 K=64 V=32",
                                  "op=kda mode=prefill lens=20,9 H=1 HV=2 K=64 V=32 h0=1"])
def test_no_rows_are_a_call_too(device, line):
    case = goldenrule.fixture(line)
    operator, positional, options = operators.arguments(case.call(), case.tensors(device))
    parameters = {name: options.pop(name) for name in ("A_log", "dt_bias")}
    pool = (options if operator == "prefill" else positional)[
        "state" if operator == "prefill" else 5]
    before = pool.clone()
    empty = [x.new_empty(0, *x.shape[1:]) for x in positional[:5]]
    if operator == "prefill":
        rest = {name: x for name, x in options.items() if not torch.is_tensor(x)}
        ops.prefill(*empty, torch.zeros(3, dtype=torch.int32), state=pool, **parameters, **rest)
    else:
        ops.decode(*empty, pool, **parameters, **options)
    assert torch.equal(pool, before)


def test_a_tensor_of_the_host_is_refused():
    positional, options = decode_arguments()
    with pytest.raises(ValueError, match="k: expected a tensor of a CUDA device, actual cpu"):
        ops.decode(*positional, **options)


def test_tensors_are_judged_where_they_lie(device, tmp_path):
    case = goldenrule.fixture(DECODE)
    call, inputs, tensors = case.call(), case.tensors(device), case.tensors(device)
    outputs = operators.run(ops, call, tensors)
    asked = dict(op=call.op, mode=call.mode, convention=call.convention, explain=False, name="one")

    def on_the_host(group):
        return {name: x.cpu() for name, x in group.items()}

    report = goldenrule.judge(**asked, inputs=inputs, outputs=outputs)
    assert report.passed, str(report)
    host = goldenrule.judge(**asked, inputs=on_the_host(inputs), outputs=on_the_host(outputs))
    assert host.to_json() == report.to_json()
    wide = torch.empty((*inputs["q"].shape[:-1], 2 * K), dtype=torch.bfloat16)[..., ::2]
    with torch.enable_grad():
        trained = inputs["k"].clone().requires_grad_()
    wide.copy_(inputs["q"])
    assert goldenrule.judge(**asked, inputs={**inputs, "q": wide, "k": trained}, outputs=outputs).passed
    wrong = outputs["o"].clone()
    wrong[1, 0, 2] = 0
    found = goldenrule.judge(**asked, inputs=inputs, outputs={**outputs, "o": wrong}).worst
    assert (found.coordinates["sequence"], found.coordinates["head"]) == (1, 2)
    call.inputs, call.outputs = inputs, outputs
    assert call.expected()["o"].golden.shape == tuple(outputs["o"].shape)
    call.save(tmp_path / "call.h5")
    assert goldenrule.read(tmp_path / "call.h5").judge(explain=False).passed
    with pytest.raises(ValueError, match="final_state"):  # the state from before the call is no more
        goldenrule.judge(**asked, inputs=tensors, outputs=outputs)


def judged(function, name, **arguments):
    with goldenrule.record(function, row=ROW_OF[name], explain=False) as calls:
        calls.function(**arguments)
    assert calls.passed, f"{name}: {calls[0].report}"


@pytest.mark.parametrize("tokens", [1, 5, 40])
@pytest.mark.parametrize("kda", [False, True])
@pytest.mark.parametrize("form", ["fused_recurrent", "chunk"])
def test_the_functions_of_fla(device, form, kda, tokens):
    rule, folder = ("kda", "kda") if kda else ("gated_delta_rule", "gated_delta_rule")
    function, name = getattr(fla, f"{form}_{rule}"), f"fla.ops.{folder}.{form}.{form}_{rule}"
    heads = (2, tokens, HV, K) if kda else (2, tokens, HV)
    x = dict(q=normal(2, tokens, H, K), k=normal(2, tokens, H, K), v=normal(2, tokens, HV, V),
             g=-normal(*heads).abs(), beta=normal(2, tokens, HV).sigmoid(),
             use_qk_l2norm_in_kernel=True)
    judged(function, name, **x, initial_state=normal(2, HV, K, V, dtype=torch.float32),
           output_final_state=True)
    parameters = dict(A_log=normal(HV, dtype=torch.float32), use_gate_in_kernel=True,
                      dt_bias=normal(HV * K if kda else HV, dtype=torch.float32),
                      use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True, state_v_first=True)
    judged(function, name, **x, **parameters, output_final_state=True)
    if tokens == 40:
        one = {key: value[:1] if torch.is_tensor(value) else value for key, value in x.items()}
        judged(function, name, **one, cu_seqlens=torch.tensor([0, 3, 3, 40]), scale=0.25)


def test_what_is_recurrent_in_fla_is_recurrent(device):
    """K = 128 in bf16 is what a kernel of chunks would serve, whose roundings are others."""
    x = dict(q=normal(1, 70, 1, 128), k=normal(1, 70, 1, 128), v=normal(1, 70, 1, 64),
             g=-normal(1, 70, 1).abs(), beta=normal(1, 70, 1).sigmoid())
    judged(fla.fused_recurrent_gated_delta_rule, "fla.ops.gated_delta_rule.fused_recurrent."
           "fused_recurrent_gated_delta_rule", **x, use_qk_l2norm_in_kernel=True,
           output_final_state=True)


def test_what_fla_means_otherwise_is_refused_by_name(device):
    x = dict(q=normal(1, 4, H, K), k=normal(1, 4, H, K), v=normal(1, 4, HV, V), g=-normal(1, 4, HV).abs(),
             beta=normal(1, 4, HV))
    for name, value in (("gk", normal(1, 4, HV, K)), ("gv", normal(1, 4, HV, V)),
                        ("chunk_size", 32), ("head_first", True), ("transpose_state_layout", True)):
        with pytest.raises(ValueError, match=name):
            fla.fused_recurrent_gated_delta_rule(**x, **{name: value})
    with pytest.raises(ValueError, match="beta"):
        fla.fused_recurrent_gated_delta_rule(**{**x, "beta": None})
    with pytest.raises(ValueError, match="return_intermediate_states"):
        fla.chunk_kda(**{**x, "g": normal(1, 4, HV, K)}, return_intermediate_states=True)
    with pytest.raises(ValueError, match="q: expected strides"):
        two = {name: value.repeat(2, *[1] * (value.dim() - 1)) for name, value in x.items()}
        fla.chunk_gated_delta_rule(**{**two, "q": normal(4, 2, H, K).transpose(0, 1)})


def rows(tokens):
    return dict(q=normal(2, tokens, H, K), k=normal(2, tokens, H, K), v=normal(2, tokens, HV, V),
                A_log=normal(HV, dtype=torch.float32), a=normal(2, tokens, HV),
                dt_bias=normal(HV, dtype=torch.float32), b=normal(2, tokens, HV))


def test_the_functions_of_flashinfer(device):
    slots, f32 = torch.tensor([3, 1]), torch.float32
    name = "flashinfer.gdn_decode.gated_delta_rule_"
    pretranspose = flashinfer.gated_delta_rule_decode_pretranspose
    judged(pretranspose, name + "decode_pretranspose", **rows(1), state=normal(2, HV, V, K, dtype=f32))
    judged(pretranspose, name + "decode_pretranspose", **rows(3), state=None,
           initial_state=normal(5, HV, V, K), initial_state_indices=slots,
           intermediate_states_buffer=normal(4, 5, HV, V, K))
    judged(flashinfer.gated_delta_rule_decode, name + "decode", **rows(1),
           state=normal(2, HV, K, V, dtype=f32))
    judged(flashinfer.gated_delta_rule_mtp, name + "mtp", **rows(3), disable_state_update=False,
           initial_state=normal(9, HV, V, K, dtype=f32), initial_state_indices=slots,
           ssm_state_indices=torch.tensor([[0, 2, 4], [5, 6, 7]], dtype=torch.int32))
    pool = normal(6, HV, V, K, dtype=f32)
    judged(flashinfer.chunk_gated_delta_rule, "flashinfer.gdn_prefill.chunk_gated_delta_rule",
           q=normal(40, H, K), k=normal(40, H, K), v=normal(40, HV, V), g=normal(40, HV).sigmoid(),
           beta=normal(40, HV).sigmoid(), use_qk_l2norm_in_kernel=True, initial_state=pool,
           output_state=pool, state_indices=torch.tensor([4, 1]), output_final_state=True,
           cu_seqlens=torch.tensor([0, 10, 40]))
    with pytest.raises(ValueError, match="cache_replayssm"):
        flashinfer.gated_delta_rule_mtp(**rows(3), initial_state=pool, initial_state_indices=slots,
                                        disable_state_update=True, cache_replayssm=True)


def test_the_functions_of_sglang(device):
    B, f32 = 4, torch.float32
    mixed = normal(B, 2 * H * K + HV * V + 8)[:, :-8]  # rows with a gap
    a, b, A_log, dt_bias = normal(B, HV), normal(B, HV), normal(HV, dtype=f32), normal(HV, dtype=f32)
    before, slots = normal(9, HV, V, K, dtype=f32), torch.tensor([3, -1, 5, 0], dtype=torch.int32)
    pool, out = before.clone(), torch.empty(B, 1, HV, V, dtype=torch.bfloat16)
    name = "sglang.kernels.ops.attention."
    judged(sglang.fused_recurrent_gated_delta_rule_packed_decode,
           name + "fla.fused_recurrent.fused_recurrent_gated_delta_rule_packed_decode", mixed_qkv=mixed,
           a=a, b=b, A_log=A_log, dt_bias=dt_bias, scale=K**-0.5, initial_state=pool, out=out,
           ssm_state_indices=slots, use_qk_l2norm_in_kernel=True)
    q, k, v = (x.unflatten(-1, shape)[None] for x, shape in
               zip(mixed.split([H * K, H * K, HV * V], -1), ((H, K), (H, K), (HV, V))))
    update = dict(A_log=A_log, a=a, dt_bias=dt_bias, softplus_beta=1.0, softplus_threshold=20.0, q=q, k=k,
                  v=v, b=b, use_qk_l2norm_in_kernel=True,
                  cu_seqlens=torch.arange(B + 1, dtype=torch.int32))
    again = before.clone()
    o = sglang.fused_sigmoid_gating_delta_rule_update(
        **update, initial_state_source=again, initial_state_indices=slots)
    assert torch.equal(o[0], out[:, 0]) and torch.equal(again, pool)
    judged(sglang.fused_sigmoid_gating_delta_rule_update,
           name + "linear.fused_sigmoid_gating_recurrent.fused_sigmoid_gating_delta_rule_update",
           **update, initial_state_source=again, initial_state_indices=slots.abs())
    with pytest.raises(NotImplementedError, match="cache_ring"):
        sglang.fused_sigmoid_gating_delta_rule_update(
            **update, initial_state_source=again, initial_state_indices=slots, cache_ring=True)


def test_trees_and_buffers_of_sglang(device):
    N, T, f32, parents = 3, 4, torch.float32, torch.tensor([[-1, 0, 0, 1], [-1, 0, 1, 2], [-1, 0, 0, 0]])
    common = dict(
        A_log=normal(HV, dtype=f32), dt_bias=normal(HV, dtype=f32), softplus_beta=1.0,
        softplus_threshold=20.0, q=normal(1, N * T, H, K), k=normal(1, N * T, H, K), b=normal(N * T, HV),
        v=normal(1, N * T, HV, V), a=normal(N * T, HV), use_qk_l2norm_in_kernel=True,
        cu_seqlens=torch.arange(0, N * T + 1, T, dtype=torch.int32), disable_state_update=True, cache_steps=T,
        initial_state_source=normal(9, HV, V, K, dtype=f32), initial_state_indices=torch.tensor([3, 8, 0]),
        intermediate_states_buffer=normal(5, T, HV, V, K, dtype=f32),
        intermediate_state_indices=torch.tensor([4, 0, 2]))
    function = sglang.fused_sigmoid_gating_delta_rule_update
    name = "sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent." + function.__name__
    for tree in (None, parents):
        judged(function, name, **common, retrieve_parent_token=tree)

# SPDX-License-Identifier: Apache-2.0
"""torch.ops.goldenrule.*, where torch is: on the kernels on the CPU (GOLDENRULE_GPU_HOST_LIBRARY), as
they are called on a device. Each function with the signature of another library is judged by the row
that the recorder has for the original."""

import os

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


@pytest.fixture
def host(monkeypatch):
    path = os.environ.get("GOLDENRULE_GPU_HOST_LIBRARY", "")
    if not path:
        pytest.skip("GOLDENRULE_GPU_HOST_LIBRARY is not set: no kernels on the CPU were built")
    monkeypatch.setitem(ops._DEVICES, "cpu", operators.Host(path))


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def decode_arguments():
    case = goldenrule.fixture(DECODE)
    _, positional, options = operators.arguments(case.call(), case.tensors())
    return positional, options


@pytest.mark.parametrize("form", ["eager", "compiled"])
@pytest.mark.parametrize("line", LINES)
def test_a_case_is_right(host, line, form):
    case = goldenrule.fixture(line)
    call = case.call()

    def compiled(function):
        return torch.compile(function, backend="aot_eager", fullgraph=True)

    call.outputs = operators.run(ops, call, case.tensors(),
                                 compiled if form == "compiled" else lambda function: function)
    assert call.judge(explain=False).passed


def test_what_is_written_is_declared(host):
    positional, options = decode_arguments()
    o = torch.empty_like(positional[2])
    torch.library.opcheck(torch.ops.goldenrule.decode.default, (*positional, o), options,
                          test_utils=("test_schema", "test_faketensor"))
    for name in ops.SCHEMAS:
        schema = getattr(torch.ops.goldenrule, name).default._schema
        written = {a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write}
        expected = {"decode": {"state", "o", "final_state"},
                    "verify": {"state", "o", "final_state", "intermediate_states"},
                    "commit": {"state", "final_state", "intermediate_states"},
                    "prefill": {"state", "o", "final_state", "checkpoints"}}[name]
        assert written == expected and not schema.returns


def test_commit_is_verify_without_o(host):
    case = goldenrule.fixture("op=gdn mode=mtp B=2 T=3 H=1 HV=2 K=64 V=32 slots=permuted accepted=mixed")
    states = []
    for name in ("verify", "commit"):
        _, positional, options = operators.arguments(case.call(), case.tensors())
        getattr(ops, name)(*positional[0 if name == "verify" else 1:], **options)
        states.append(positional[5])
    assert torch.equal(*states)


def test_fake_tensors_need_no_library():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 1, 1, 64, device="cuda")
        v, pool = torch.empty(2, 1, 2, 32, device="cuda"), torch.empty(9, 2, 32, 64, device="cuda")
        gate = torch.empty(2, 1, 2, device="cuda")
        o = ops.decode(q, q, v, gate, gate, pool)
        assert o.shape == v.shape and o.device == v.device and o.dtype == v.dtype


def test_refusals_are_python_errors(host):
    positional, options = decode_arguments()
    with pytest.raises(ValueError, match=r"q.stride\[0\]: expected 1 or more for 3 elements"):
        ops.decode(positional[0][:1].expand(3, -1, -1, -1), *positional[1:], **options)
    with pytest.raises(TypeError, match="q: expected one of torch.float32"):
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
def test_no_rows_are_a_call_too(host, line):
    case = goldenrule.fixture(line)
    operator, positional, options = operators.arguments(case.call(), case.tensors())
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


def judged(function, name, **arguments):
    with goldenrule.record(function, row=ROW_OF[name], explain=False) as calls:
        calls.function(**arguments)
    assert calls.passed, f"{name}: {calls[0].report}"


@pytest.mark.parametrize("tokens", [1, 5, 40])
@pytest.mark.parametrize("kda", [False, True])
@pytest.mark.parametrize("form", ["fused_recurrent", "chunk"])
def test_the_functions_of_fla(host, form, kda, tokens):
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


def test_what_is_recurrent_in_fla_is_recurrent(host):
    """K = 128 in bf16 is what a kernel of chunks would serve, whose roundings are others."""
    x = dict(q=normal(1, 70, 1, 128), k=normal(1, 70, 1, 128), v=normal(1, 70, 1, 64),
             g=-normal(1, 70, 1).abs(), beta=normal(1, 70, 1).sigmoid())
    judged(fla.fused_recurrent_gated_delta_rule, "fla.ops.gated_delta_rule.fused_recurrent."
           "fused_recurrent_gated_delta_rule", **x, use_qk_l2norm_in_kernel=True,
           output_final_state=True)


def test_what_fla_means_otherwise_is_refused_by_name(host):
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


def test_the_functions_of_flashinfer(host):
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


def test_the_functions_of_sglang(host):
    B, f32 = 4, torch.float32
    mixed = normal(B, 2 * H * K + HV * V + 8)[:, :-8]  # rows with a gap
    a, b, A_log, dt_bias = normal(B, HV), normal(B, HV), normal(HV, dtype=f32), normal(HV, dtype=f32)
    before, slots = normal(9, HV, V, K, dtype=f32), torch.tensor([3, -1, 5, 0], dtype=torch.int32)
    pool, out = before.clone(), torch.empty(B, 1, HV, V, dtype=torch.bfloat16)
    sglang.fused_recurrent_gated_delta_rule_packed_decode(mixed, a, b, A_log, dt_bias, K**-0.5, pool, out,
                                                          slots, use_qk_l2norm_in_kernel=True)
    q, k, v = (x.unflatten(-1, shape)[:, None] for x, shape in
               zip(mixed.split([H * K, H * K, HV * V], -1), ((H, K), (H, K), (HV, V))))
    report = goldenrule.judge(
        op="gated_delta_rule", mode="decode", outputs=dict(o=out, final_state=pool),
        inputs=dict(q=q, k=k, v=v, a=a[:, None], b=b[:, None], A_log=A_log, dt_bias=dt_bias,
                    initial_state=before, state_indices=slots))
    assert report.passed, str(report)
    again = before.clone()
    update = dict(A_log=A_log, a=a, dt_bias=dt_bias, softplus_beta=1.0, softplus_threshold=20.0,
                  q=q.transpose(0, 1), k=k.transpose(0, 1), v=v.transpose(0, 1), b=b,
                  initial_state_source=again, initial_state_indices=slots, use_qk_l2norm_in_kernel=True,
                  cu_seqlens=torch.arange(B + 1, dtype=torch.int32))
    o = sglang.fused_sigmoid_gating_delta_rule_update(**update)
    assert torch.equal(o[0], out[:, 0]) and torch.equal(again, pool)
    with pytest.raises(NotImplementedError, match="retrieve_parent_token"):
        sglang.fused_sigmoid_gating_delta_rule_update(**update, retrieve_parent_token=slots)

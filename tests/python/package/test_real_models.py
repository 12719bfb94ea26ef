# SPDX-License-Identifier: Apache-2.0
"""The recorder around whole models of transformers (tiny_models.py): the model computes what it computes
without it, to the bit, every call of an honest one passes, and a mistake is refused.

Kernels of another package, which transformers would run in the place of its torch functions, need a GPU:
where one is installed, these models run as they do without it."""

import functools
import inspect
import re
from pathlib import Path

import pytest
import tiny_models

import goldenrule

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
MODELS = [model for model in tiny_models.MODELS if model.is_there()]
NAMES = [model.folder for model in MODELS]
TOKENS = 70  # a whole chunk and a part of one
NEW = 3


@functools.cache
def made(model):
    return model.make()


@pytest.fixture(params=MODELS, ids=NAMES)
def tiny(request, monkeypatch):
    """The line of a model; its functions are the torch ones."""
    module = request.param.module()
    for name in request.param.functions:
        function = tiny_models.torch_function(getattr(module, name))
        monkeypatch.setattr(module, name, function)
    return request.param


def ids():
    return torch.randint(2, tiny_models.VOCABULARY, (2, TOKENS), generator=torch.Generator().manual_seed(1))


def forward(model):
    return model(ids()).logits


def cached(model):
    """A prompt, and a token after it."""
    first = model(ids()[:, :-1], use_cache=True)
    return model(ids()[:, -1:], past_key_values=first.past_key_values, use_cache=True).logits


def uncached(model):
    return model(ids(), use_cache=False, output_hidden_states=True).logits


def generate(model):
    return model.generate(ids(), max_new_tokens=NEW, do_sample=False)


LAYERS = tiny_models.LAYERS["layer_types"].count("linear_attention")
USES = {"forward": (forward, LAYERS, 0), "uncached": (uncached, LAYERS, 0),
        "cached": (cached, LAYERS, LAYERS), "generate": (generate, LAYERS, (NEW - 1) * LAYERS)}


@pytest.mark.parametrize("use", USES)
def test_a_model_computes_the_same_and_its_calls_pass(tiny, use):
    run, of_many, of_one = USES[use]
    model, module = made(tiny), tiny.module()
    with torch.no_grad():
        alone = run(model)
        with (goldenrule.record(getattr(module, tiny.functions[0])) as many,
              goldenrule.record(getattr(module, tiny.functions[1])) as one):
            recorded = run(model)
    assert torch.equal(alone, recorded)
    assert (len(many), len(one)) == (of_many, of_one)
    for calls in (many, one):
        assert calls.passed or not calls, calls.reports


@pytest.mark.parametrize("tiny", [m for m in MODELS if m.folder in ("olmo_hybrid", "kimi_linear")],
                         ids=lambda model: model.folder, indirect=True)
def test_a_compiled_model_computes_the_same_and_its_calls_pass(tiny):
    """Compiling one takes up to a minute: one of GDN and one of KDA."""
    model, module = made(tiny), tiny.module()
    compiled = torch.compile(lambda: model(ids()).logits, backend="eager")
    with torch.no_grad():
        alone = forward(model)
        with goldenrule.record(getattr(module, tiny.functions[0])) as calls:
            recorded = compiled()
    torch._dynamo.reset()
    assert torch.equal(alone, recorded) and len(calls) == LAYERS and calls.passed, calls


def late(g):
    """The gate of the token before."""
    return torch.cat([torch.zeros_like(g[:, :1]), g[:, :-1]], dim=1)


MISTAKES = {
    "scale_missing": lambda given: {"query": given["query"] * given["query"].shape[-1] ** 0.5,
                                    "use_qk_l2norm_in_kernel": False},
    "gate one token late": lambda given: {"g": late(given["g"])},
    "gate_ignored": lambda given: {"g": torch.zeros_like(given["g"])},
    "beta_ignored": lambda given: {"beta": torch.ones_like(given["beta"])},
    # beta * v is the same to the bit, and what beta takes off the state is below its rounding.
    "no_delta": lambda given: {"value": given["value"] * 2.0**40, "beta": given["beta"] * 2.0**-40},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_model_is_refused(tiny, mistake, monkeypatch):
    """The function computes on other arguments than the model hands it."""
    module, name = tiny.module(), tiny.functions[0]
    function = getattr(module, name)

    @functools.wraps(function)
    def sabotaged(*args, **kwargs):
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        given |= given.pop("kwargs", {})
        return function(**{**given, **MISTAKES[mistake](given)})

    monkeypatch.setattr(module, name, sabotaged)
    with torch.no_grad(), goldenrule.record(sabotaged, explain=False) as calls:
        forward(made(tiny))
    assert {report.verdict for report in calls.reports} == {"OUT_OF_BUDGET"}, calls


def test_every_model_that_has_such_a_function_is_here():
    folders = {path.parent.name
               for path in Path(transformers.__file__).parent.glob("models/*/modeling_*.py")
               if re.search(r"^def (torch_chunk_gated_delta_rule|chunk_kimi_delta_attention)\(",
                            path.read_text(), re.MULTILINE)}
    assert folders == set(NAMES)

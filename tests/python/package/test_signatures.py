# SPDX-License-Identifier: Apache-2.0
"""Which function a row of the recorder is for: that of its release, by its parameters."""

import ast
import importlib.metadata
import importlib.util
from pathlib import Path

import pytest
import stand_ins

import goldenrule
from goldenrule._attention_rows import READ_OF_WRAPPER
from goldenrule._rows import ROWS

DISTRIBUTION_OF = {"fla": "fla-core", "flashinfer": "flashinfer-python", "vllm": "vllm",
                   "sglang": "sglang", "flash_qla": "flash-qla", "cudnn": "nvidia-cudnn-frontend",
                   "flash_attn": "flash-attn", "flash_attn_interface": "flash-attn-3"}
OF_PACKAGES = [row for row in ROWS if row.function.partition(".")[0] in DISTRIBUTION_OF]


@pytest.mark.parametrize("known", OF_PACKAGES, ids=lambda known: known.function)
def test_another_signature_is_refused_with_the_release(known):
    _, made = stand_ins.stand_in(known.function, None)
    known.check(made)
    scope = {}
    exec(f"def {made.__name__}({', '.join([*known.parameters, 'added'])}): pass", scope)
    changed = scope[made.__name__]
    changed.__module__ = made.__module__
    with pytest.raises(ValueError, match=f"expected the parameters of {known.release} .*added"):
        with goldenrule.record(changed):
            pass


@pytest.mark.parametrize("options, error, words", [
    ({"contract": "nope"}, ValueError, "^contract: expected one of ideal, .*, actual 'nope'"),
    ({"contract": "adjoint_f32"}, ValueError, "^contract: expected one for family 'delta'"),
    ({"backward_contract": "recurrent_f32"}, ValueError, "^backward_contract: expected one for family 'backward'"),
    ({"backward_contract": {"name": 3}}, TypeError, "^backward_contract: name: expected a string, actual number"),
    ({"backward_contract": 3}, TypeError, "^backward_contract: expected a text, actual int")])
def test_a_contract_that_cannot_judge_is_refused_before_the_block(options, error, words):
    _, made = stand_ins.stand_in("fla.ops.kda.naive.naive_recurrent_kda", None)
    with pytest.raises(error, match=words), goldenrule.record(made, gradients=True, **options):
        raise AssertionError("the block does not begin")


def body_of(row):
    """The statements of the module of a row, or of the class that its method is of, where its release is
    installed. Read in its source: importing it may need a GPU."""
    package, *path = row.function.split(".")[:-1]
    found = importlib.util.find_spec(package)
    version = row.release.rpartition(" ")[2]
    if found is None or not importlib.metadata.version(DISTRIBUTION_OF[package]).startswith(version):
        pytest.skip(f"{row.release} is not installed")
    holder = path.pop() if path and path[-1][0].isupper() else ""
    if found.submodule_search_locations is None:  # a module of its own
        source = Path(found.origin)
    else:
        place = Path(found.submodule_search_locations[0], *path)
        source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    body = ast.parse(source.read_text()).body
    if holder:
        (body,) = [node.body for node in body
                   if isinstance(node, ast.ClassDef) and node.name == holder]
    return body


@pytest.mark.parametrize("known", OF_PACKAGES, ids=lambda known: known.function)
def test_parameters_are_those_of_the_package(known):
    body = body_of(known)
    name = known.function.rpartition(".")[2]
    # Of a method the overloads stand in front.
    given = [node.args for node in body
             if isinstance(node, ast.FunctionDef) and node.name == name][-1]
    names = [each.arg for each in [*given.posonlyargs, *given.args,
                                   *([given.vararg] if given.vararg else []), *given.kwonlyargs]]
    assert (*names, *([given.kwarg.arg] if given.kwarg else [])) == known.parameters


def assigned(body):
    """The names of attributes that methods assign on themselves, and in which methods."""
    found = {}
    for method in body:
        for node in ast.walk(method) if isinstance(method, ast.FunctionDef) else ():
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                        found.setdefault(target.attr, set()).add(method.name)
    return found


@pytest.mark.parametrize("known", [row for row in OF_PACKAGES if ".Batch" in row.function],
                         ids=lambda known: known.function)
def test_a_wrapper_has_what_its_row_reads(known):
    """The buffers and settings of a plan are private: another release may name them otherwise."""
    found = assigned(body_of(known))
    for name in READ_OF_WRAPPER[known.function.split(".")[-2]]:
        assert name in found, f"{known.function}: nothing assigns self.{name}"
        setup = {"_kv_layout", "_jit_module"}  # of the wrapper itself, the others of each plan
        plans = {method for method in found[name] if "plan" in method}
        assert name in setup or plans, f"self.{name} is assigned by {found[name]} alone"

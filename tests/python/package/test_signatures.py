# SPDX-License-Identifier: Apache-2.0
"""Which function a row of the recorder is for: that of its release, by its parameters."""

import ast
import importlib.metadata
import importlib.util
from pathlib import Path

import pytest
import stand_ins

import goldenrule
from goldenrule._rows import ROWS

DISTRIBUTION_OF = {"fla": "fla-core", "flashinfer": "flashinfer-python", "vllm": "vllm",
                   "sglang": "sglang", "flash_qla": "flash-qla", "cudnn": "nvidia-cudnn-frontend"}
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


@pytest.mark.parametrize("known", OF_PACKAGES, ids=lambda known: known.function)
def test_parameters_are_those_of_the_package(known):
    """Read in its source, where that release is installed: importing it may need a GPU."""
    module, _, name = known.function.rpartition(".")
    package, *path = module.split(".")
    found = importlib.util.find_spec(package)
    version = known.release.rpartition(" ")[2]
    if found is None or not importlib.metadata.version(DISTRIBUTION_OF[package]).startswith(version):
        pytest.skip(f"{known.release} is not installed")
    place = Path(found.submodule_search_locations[0], *path)
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    (given,) = [node.args for node in ast.parse(source.read_text()).body
                if isinstance(node, ast.FunctionDef) and node.name == name]
    names = [each.arg for each in given.posonlyargs + given.args + given.kwonlyargs]
    assert (*names, *([given.kwarg.arg] if given.kwarg else [])) == known.parameters

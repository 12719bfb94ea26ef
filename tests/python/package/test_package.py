# SPDX-License-Identifier: Apache-2.0
"""Every module of the package can be imported, also those that are only so when a name of theirs is used."""

import importlib
import pkgutil
import re

import pytest

import goldenrule


@pytest.mark.parametrize("name", [module.name for module in pkgutil.walk_packages(goldenrule.__path__, "goldenrule.")
                                  if not module.name.endswith("__main__")])
def test_a_module_can_be_imported(name):
    try:
        importlib.import_module(name)
    except ImportError as error:
        own = str(error).startswith("cannot import name")
        assert not own and re.search(r"\b(torch|jax|jaxlib)\b", str(error)), error

# SPDX-License-Identifier: Apache-2.0
"""The files of a trace set: JSON, lines of JSON, safetensors. What cannot be read is a ValueError with the
path."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, actual {error}") from error


def read_lines(path: Path) -> list[Any]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: expected JSON, actual {error}") from error
    return rows


def _safetensors() -> Any:
    import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by its name from here on

    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("FlashInfer-Trace keeps tensors as safetensors: "
                          "pip install goldenrule[trace]") from error
    return safetensors


def load(path: Path, key: str) -> np.ndarray:
    library = _safetensors()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of safetensors, actual none")
    with open(path, "rb") as file:
        if file.read(24).startswith(b"version https://git-lfs"):
            raise ValueError(f"{path}: expected safetensors, actual a pointer of Git LFS: git lfs pull")
    try:
        with library.safe_open(path, framework="np") as tensors:
            if key not in tensors.keys():
                raise ValueError(f"{path}: {key}: expected a tensor, actual "
                                 f"{', '.join(sorted(tensors.keys()))}")
            found: np.ndarray = tensors.get_tensor(key)
            return found
    except (library.SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: {key}: expected safetensors, actual {error}") from error


def saved(tensors: Mapping[str, np.ndarray]) -> bytes:
    data: bytes = _safetensors().numpy.save({name: np.ascontiguousarray(value)
                                      for name, value in tensors.items()})
    return data


def replace(path: Path, data: bytes) -> None:
    partial = path.with_name(f"{path.name}.partial{os.getpid()}")
    partial.write_bytes(data)
    os.replace(partial, path)

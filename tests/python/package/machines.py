# SPDX-License-Identifier: Apache-2.0
"""Where the operators run. One test, written against what the three machines here have in common, runs
on NumPy arrays and on torch tensors with the kernels compiled for the CPU (GOLDENRULE_GPU_HOST_LIBRARY,
tests/gpu_host), and on a CUDA device with those of the GPU; a machine that is not to be had skips the
test with the reason. The first one needs no torch, so that a test is run wherever the kernels are built.
"""

import contextlib
import os

import operators

from goldenrule import _gpu


class Absent(Exception):
    """Why a machine is not to be had."""


def host_library():
    path = os.environ.get("GOLDENRULE_GPU_HOST_LIBRARY", "")
    if not path:
        raise Absent("GOLDENRULE_GPU_HOST_LIBRARY is not set: no kernels on the CPU were built")
    return operators.Host(path)


def imported_torch():
    try:
        import torch
    except ImportError as error:
        raise Absent(f"no torch: {error}") from error
    return torch


class Machine:
    """What is the same on all of them; a machine of the CPU has nothing to wait for, one stream, and
    for a graph the call itself."""

    largest = 1 << 16  # of the exact outputs of a case, in bytes: what the CPU makes of it in a moment

    def wait(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def captured(self, function):
        """What runs the function again on the contents that its tensors have then; returns its result."""
        function()
        return function

    def busy_stream(self):
        """A block whose calls lie on another stream, which has something else to do first."""
        return contextlib.nullcontext()


class Arrays(Machine):
    def __init__(self):
        self.ops = operators.OfArrays(host_library())

    def tensors(self, case):
        return {name: operators.Array(x) for name, x in case.inputs.items()}

    def copy(self, x):
        return operators.Array(x.array.copy())

    def fill(self, x, other):
        x.array[...] = other.array


class OfTorch(Machine):
    def tensors(self, case):
        return case.tensors(self.device)

    def copy(self, x):
        return x.clone()

    def fill(self, x, other):
        x.copy_(other)


class Cpu(OfTorch):
    def __init__(self):
        self.torch = imported_torch()
        from goldenrule import ops

        self.ops, self.device = ops, "cpu"
        self._library = host_library()

    def __enter__(self):
        self._before, self.ops._LIBRARY = self.ops._LIBRARY, self._library
        return self

    def __exit__(self, *_):
        self.ops._LIBRARY = self._before


class Cuda(OfTorch):
    largest = 1 << 21

    def __init__(self):
        self.torch = imported_torch()
        if not self.torch.cuda.is_available():
            raise Absent("torch sees no CUDA device")
        from goldenrule import ops

        try:
            _gpu.Library(operators.HostDevice()).open()
        except ImportError as error:
            raise Absent(str(error)) from error
        self.ops, self.device = ops, "cuda"

    def wait(self):
        self.torch.cuda.synchronize()

    def captured(self, function):
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = function()

        def replay():
            graph.replay()
            return result

        return replay

    @contextlib.contextmanager
    def busy_stream(self):
        with self.torch.cuda.stream(self.torch.cuda.Stream()):
            self.torch.cuda._sleep(20_000_000)
            yield


ALL = {"arrays": Arrays, "cpu": Cpu, "cuda": Cuda}

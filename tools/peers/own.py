# SPDX-License-Identifier: Apache-2.0
"""This project's GPU library (gpu/goldenrule_gpu.h) through ctypes, for programs that time or try it beside
public kernels: without checks and without the package, which needs to be built."""

import ctypes


class Tensor(ctypes.Structure):
    """goldenrule_gpu_tensor; dense: strides are not looked at."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("stride", ctypes.c_int64 * 4),
        ("dtype", ctypes.c_int32),
        ("dense", ctypes.c_int32),
    ]


FIELD_TYPES = {
    "u64": ctypes.c_uint64, "i32": ctypes.c_int32, "u32": ctypes.c_uint32, "i64": ctypes.c_int64,
    "f64": ctypes.c_double, "tensor": Tensor, "pointer": ctypes.c_void_p,
}


def args_type(library, call):
    """goldenrule_gpu_recurrent_args, or those of another call, as the library describes them; a
    layout that Python would not reproduce to the byte is refused, because the library writes into
    it."""
    describe = getattr(library, f"goldenrule_gpu_{call}_fields")
    describe.restype = ctypes.c_char_p
    head, *lines = describe().decode().split("\n")
    fields = [line.split(" ") for line in lines]
    layout = [(name, FIELD_TYPES[kind]) for name, kind, _ in fields]
    args = type("Args", (ctypes.Structure,), {"_fields_": layout})
    expected = {name: int(offset) for name, _, offset in fields}
    actual = {name: getattr(args, name).offset for name in expected}
    size = int(head.split(" ")[-1])
    if actual != expected or ctypes.sizeof(args) != size:
        raise RuntimeError(f"{head}: expected {size} bytes and offsets {expected}, "
                           f"actual {ctypes.sizeof(args)} and {actual}")
    return args


class Goldenrule:
    """A call of the library: numbers and tensors by the names of the header's fields."""

    def __init__(self, torch, path):
        self.torch = torch
        self.library = ctypes.CDLL(path)
        self.types = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.int64: 4,
                      torch.int32: 5}
        self.layouts = {}
        self.workspace = None
        self._checked("initialize")

    def _checked(self, function, *arguments):
        message = ctypes.create_string_buffer(256)
        called = getattr(self.library, f"goldenrule_gpu_{function}")
        if called(*arguments, message, ctypes.c_size_t(256)) != 0:
            raise RuntimeError(f"{function}: {message.value.decode()}")

    def run(self, call, numbers, tensors):
        """call: recurrent, prefill or attention; a tensor that is None is left out."""
        if call not in self.layouts:
            self.layouts[call] = args_type(self.library, call)
        args = self.layouts[call]()
        getattr(self.library, f"goldenrule_gpu_{call}_defaults")(
            ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args)))
        for name, number in numbers.items():
            setattr(args, name, number)
        for name, tensor in tensors.items():
            if tensor is not None:
                setattr(args, name, Tensor(data=tensor.data_ptr(), dtype=self.types[tensor.dtype],
                                           dense=1))
        if call == "prefill":
            self._room(args)
        args.stream = self.torch.cuda.current_stream().cuda_stream
        self._checked(call, ctypes.byref(args))

    def _room(self, args):
        size = self.library.goldenrule_gpu_prefill_workspace_size
        size.restype = ctypes.c_size_t
        need = size(ctypes.byref(args))
        if self.workspace is None or self.workspace.numel() < need:
            self.workspace = self.torch.empty(need, device="cuda", dtype=self.torch.uint8)
        args.workspace_size, args.workspace = need, self.workspace.data_ptr()

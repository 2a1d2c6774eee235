#!/usr/bin/env python3
"""A small inference engine in Python: runs a compiled layer on the GPU and checks some elements.

    engine.py LAYER.srtc [--weights WEIGHTS.npy] [-n N] [--library libsparsertc_runtime.so] [--torch]

The library is called through ctypes; nothing but Python is needed. Operands are plain pointers into
device memory: here the library's own, with --torch those of PyTorch tensors on PyTorch's current
stream (anything with data_ptr() or __cuda_array_interface__ works the same way).
Exit status 0: right, 1: something failed, 3: no GPU.
"""
import argparse
import array
import ctypes
import math
import os
import struct
import sys
from ctypes import POINTER, byref, c_char_p, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

NO_GPU = 3


class PlanInfo(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("m", c_int64), ("k", c_int64), ("n", c_int64),
                ("nnz", c_int64), ("dtype", c_char_p), ("layout", c_uint32),
                ("element_size", c_uint32), ("ldb", c_int64), ("ldc", c_int64),
                ("has_bias", c_uint32), ("has_residual", c_uint32), ("activation", c_char_p),
                ("workspace_size", c_uint64), ("workspace_alignment", c_uint64),
                ("operand_alignment", c_uint64), ("target", c_char_p), ("strategy", c_char_p),
                ("pattern_digest", c_char_p), ("manifest", c_char_p), ("code", c_uint32),
                ("registers", c_uint32), ("local_size", c_uint32), ("shared_size", c_uint32),
                ("block_threads", c_uint32), ("reserved", c_uint32)]


class Arguments(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("b", c_void_p), ("c", c_void_p), ("bias", c_void_p),
                ("residual", c_void_p), ("n", c_int64), ("ldb", c_int64), ("ldc", c_int64)]


class ExecutionStatus(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("outcome", c_uint32), ("reserved", c_uint32),
                ("index", c_int64)]


class Runtime:
    """The library; a call that fails ends the program with its message."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        prototypes = {
            "context_create": (ctypes.c_int32, POINTER(c_void_p)),
            "memory_allocate": (c_void_p, c_uint64, POINTER(c_void_p)),
            "memory_free": (c_void_p, c_void_p),
            "memory_write": (c_void_p, c_void_p, c_void_p, c_uint64, c_void_p),
            "memory_read": (c_void_p, c_void_p, c_void_p, c_uint64, c_void_p),
            "plan_load": (c_void_p, c_char_p, POINTER(c_void_p)),
            "plan_query": (c_void_p, POINTER(PlanInfo)),
            "workspace_initialize": (c_void_p, c_void_p, c_void_p),
            "plan_execute": (c_void_p, POINTER(Arguments), c_void_p, c_void_p),
            "plan_status": (c_void_p, c_void_p, c_void_p, POINTER(ExecutionStatus)),
        }
        for name, types in prototypes.items():
            function = getattr(self.library, "sparsertc_" + name)
            function.argtypes, function.restype = types, ctypes.c_int
            setattr(self, name, self.checked(name, function))
        for name in ("plan_destroy", "context_destroy"):
            function = getattr(self.library, "sparsertc_" + name)
            function.argtypes, function.restype = (c_void_p,), None
            setattr(self, name, function)
        self.library.sparsertc_last_error.restype = c_char_p

    def checked(self, name, function):
        def call(*arguments):
            result = function(*arguments)
            if result != 0:
                message = self.library.sparsertc_last_error().decode()
                print(f"engine.py: sparsertc_{name}: {message}", file=sys.stderr)
                sys.exit(3 if result == NO_GPU else 1)
        return call


def device_pointer(operand):
    """The address of a tensor on the GPU, or an address itself."""
    if hasattr(operand, "data_ptr"):
        return operand.data_ptr()
    if hasattr(operand, "__cuda_array_interface__"):
        return operand.__cuda_array_interface__["data"][0]
    return operand


def read_npy(path):
    """The values of an .npy file of little-endian floats, format version 1."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:7] != b"\x93NUMPY\x01" or b"'<f4'" not in data[:200] or b"True" in data[:200]:
        sys.exit(f"engine.py: {path}: not an .npy file of '<f4' in C order")
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])


def count_wrong(a, b, c, m, k, n):
    """Compares some elements of C with A * B in double precision."""
    wrong = 0
    for sample in range(64):
        i, j = sample * 7919 % m, sample * 104729 % n
        products = [a[i * k + p] * b[p * n + j] for p in range(k)]
        bound = k * 2.0**-24 * math.fsum(map(abs, products))
        wrong += not abs(c[i * n + j] - math.fsum(products)) <= bound
    return wrong


def main():
    parser = argparse.ArgumentParser(description="Runs a compiled layer on the GPU.")
    parser.add_argument("layer")
    parser.add_argument("--weights")
    parser.add_argument("-n", type=int, default=256)
    parser.add_argument("--library", default=os.path.join(os.path.dirname(__file__) or ".",
                                                          "libsparsertc_runtime.so"))
    parser.add_argument("--torch", action="store_true")
    options = parser.parse_args()

    runtime = Runtime(options.library)
    context, plan = c_void_p(), c_void_p()
    runtime.context_create(0, byref(context))
    runtime.plan_load(context, options.layer.encode(), byref(plan))
    info = PlanInfo(struct_size=ctypes.sizeof(PlanInfo))
    runtime.plan_query(plan, byref(info))
    m, k, n = info.m, info.k, options.n if info.n < 0 else info.n
    if info.dtype != b"f32" or info.layout != 0 or info.has_bias or info.has_residual \
            or info.activation != b"none" or min(m, k, n) < 1:
        sys.exit("engine.py: this example runs f32, row-major layers without bias, residual and "
                 "activation")

    b = array.array("f", (i * 2654435761 % 2001 / 1000 - 1 for i in range(k * n)))
    c = array.array("f", bytes(4 * m * n))

    def allocate(count):
        address = c_void_p()
        runtime.memory_allocate(context, count, byref(address))
        return address.value

    stream = None
    if options.torch:
        import torch
        device_b = torch.tensor(b, device="cuda").reshape(k, n)
        device_c = torch.empty(m, n, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
    else:
        device_b, device_c = allocate(4 * k * n), allocate(4 * m * n)
        runtime.memory_write(context, device_b, b.buffer_info()[0], 4 * k * n, stream)
    workspace = allocate(info.workspace_size)
    runtime.workspace_initialize(plan, workspace, stream)

    arguments = Arguments(struct_size=ctypes.sizeof(Arguments), b=device_pointer(device_b),
                          c=device_pointer(device_c), n=n)
    runtime.plan_execute(plan, byref(arguments), workspace, stream)
    status = ExecutionStatus(struct_size=ctypes.sizeof(ExecutionStatus))
    runtime.plan_status(plan, workspace, stream, byref(status))
    runtime.memory_read(context, c.buffer_info()[0], device_pointer(device_c), 4 * m * n, stream)
    print(f"{m} x {k}, {info.nnz} non-zeros, N = {n}, {info.strategy.decode()} for "
          f"{info.target.decode()}, {info.registers} registers: C[0][0] = {c[0]:g}")

    wrong = 0
    if options.weights:
        wrong = count_wrong(read_npy(options.weights), b, c, m, k, n)
        print(f"WRONG: {wrong} of 64 elements" if wrong else "right: 64 elements checked")
    if not options.torch:
        runtime.memory_free(context, device_b)
        runtime.memory_free(context, device_c)
    runtime.memory_free(context, workspace)
    runtime.plan_destroy(plan)
    runtime.context_destroy(context)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

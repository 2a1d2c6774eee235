#!/usr/bin/env python3
"""Makes the pruned layer that the demo compiles: tests/data/demo_layer.npy.gz and its bias.

A 128x256 fully connected layer with normally distributed weights, pruned by magnitude to 90 %
zeros: the smallest weights of the whole layer are zeroed, so rows differ in length as they do in
real pruned networks. A row's scale varies, too. Needs Python's standard library only; the same
bytes come out on every run and every machine.

    python3 tools/make_demo_layer.py [--check] [FOLDER]

With --check nothing is written: exits 1 if a file in FOLDER differs from what would be written.
"""

import argparse
import gzip
import io
import pathlib
import random
import struct
import sys

ROWS = 128
COLUMNS = 256
SPARSITY = 0.9
SEED = 2020


def normal(generator):
    """A normally distributed number, by summing uniform ones: a sum of twelve has variance 1.

    Plain additions only, so that no mathematical library can change a bit (nor Python, whose
    `sum` rounds differently since 3.12).
    """
    total = -6.0
    for _ in range(12):
        total += generator.random()
    return total


def to_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def npy(shape, values):
    """The bytes of a .npy file (version 1.0) of little-endian f32 values in C order."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode("ascii")
    padding = -(len(header) + 11) % 64
    header += b" " * padding + b"\n"
    return (
        b"\x93NUMPY\x01\x00"
        + struct.pack("<H", len(header))
        + header
        + struct.pack("<%df" % len(values), *values)
    )


def compress(data):
    """gzip with no time and no name, so that equal data give equal bytes with one zlib."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


def make():
    """Returns {file name: uncompressed bytes}."""
    generator = random.Random(SEED)
    weights = []
    for _ in range(ROWS):
        scale = 0.05 * (0.5 + generator.random())
        weights += [to_f32(scale * normal(generator)) for _ in range(COLUMNS)]
    kept = round(len(weights) * (1 - SPARSITY))
    threshold = sorted((abs(w) for w in weights), reverse=True)[kept - 1]
    weights = [w if abs(w) >= threshold else 0.0 for w in weights]
    bias = [to_f32(0.1 * normal(generator)) for _ in range(ROWS)]
    return {
        "demo_layer.npy.gz": npy((ROWS, COLUMNS), weights),
        "demo_bias.npy.gz": npy((ROWS,), bias),
    }


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=default)
    options = parser.parse_args()

    failed = False
    for name, data in make().items():
        path = options.folder / name
        if not options.check:
            path.write_bytes(compress(data))
            continue
        # The contents are compared, not the compressed bytes: another zlib may compress otherwise.
        if not path.exists():
            print(f"{path}: missing", file=sys.stderr)
            failed = True
        elif gzip.decompress(path.read_bytes()) != data:
            print(f"{path}: differs from what {pathlib.Path(__file__).name} makes", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Makes the list of matrices that `sparsertc bench --device=gpu --set=` times.

    python3 gpu_set.py [DATA] > gpu_set.csv
    SPARSERTC_DATA=DATA sparsertc bench --device=gpu --set=gpu_set.csv --budget=4

DATA is the folder of the test data, else SPARSERTC_DATA. The set:

    weights/mobilenet   every pruned layer at its image size
    dlmc/transformer    90 % and 95 %, with N = 256 and 2048
    dlmc/rn50           the 1x1 layers (bottleneck_1 and bottleneck_3) at 90 % and 95 %, with N of
                        one image

--all takes every level and the 3x3 and final layers of rn50, too.
"""
import argparse
import csv
import gzip
import os
import pathlib
import re
import struct
import sys

# Columns of B by the shape [out, in] of a MobileNetV1 pointwise layer.
MOBILENET_COLUMNS = {
    (64, 32): 12544,
    (128, 64): 3136,
    (128, 128): 3136,
    (256, 128): 784,
    (256, 256): 784,
    (512, 256): 196,
    (512, 512): 196,
    (1024, 512): 49,
    (1024, 1024): 49,
}
TRANSFORMER_COLUMNS = (256, 2048)


def npy_shape_and_zeros(path):
    """Shape of a float32 .npy.gz file and the fraction of its zeros."""
    raw = gzip.open(path).read()
    if raw[:6] != b"\x93NUMPY":
        sys.exit(f"{path}: no .npy file")
    length_bytes = 2 if raw[6] == 1 else 4
    length = int.from_bytes(raw[8 : 8 + length_bytes], "little")
    head = raw[8 + length_bytes : 8 + length_bytes + length].decode("latin1")
    shape = tuple(int(n) for n in re.search(r"'shape': \(([^)]*)\)", head)[1].split(",") if n.strip())
    if "'<f4'" not in head:
        sys.exit(f"{path}: expected float32")
    values = raw[8 + length_bytes + length :]
    zeros = sum(1 for (value,) in struct.iter_unpack("<f", values) if value == 0)
    return shape, zeros / (len(values) // 4)


def mobilenet(data):
    for path in sorted((data / "weights/mobilenet").glob("*.npy.gz"), key=lambda p: (len(p.name), p.name)):
        if "bias" in path.name:
            continue
        shape, zeros = npy_shape_and_zeros(path)
        # The files carry no nominal level; it is the actual one to the nearest 5 %.
        nominal = round(zeros * 20) / 20
        yield path.relative_to(data), MOBILENET_COLUMNS[shape[:2]], nominal


def dlmc(data, everything):
    with open(data / "dlmc.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        path = pathlib.Path("dlmc") / row["path"]
        level = float(row["target_sparsity"])
        if not everything and level not in (0.9, 0.95):
            continue
        if row["model"] == "transformer":
            for columns in TRANSFORMER_COLUMNS:
                yield path, columns, level
        elif everything or re.match(r"bottleneck_[13]_", path.name):
            yield path, int(row["N_per_image"]), level


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("SPARSERTC_DATA"))
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    if not options.data:
        parser.error("no DATA, and SPARSERTC_DATA is not set")
    data = pathlib.Path(options.data)
    print("path,n,nominal_sparsity")
    for path, columns, level in [*mobilenet(data), *dlmc(data, options.all)]:
        if not (data / path).exists():
            sys.exit(f"{data / path}: missing")
        print(f"{path},{columns},{level:g}")


if __name__ == "__main__":
    main()

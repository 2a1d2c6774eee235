#!/usr/bin/env python3
"""Makes the list of convolutions that `sparsertc bench --device=gpu --op=conv2d --set=` times.

    python3 gpu_conv_set.py [DATA] > gpu_conv_set.csv
    SPARSERTC_DATA=DATA sparsertc bench --device=gpu --op=conv2d --set=gpu_conv_set.csv --budget=4

DATA is the folder of the test data, else SPARSERTC_DATA. The set, all 3x3 with stride 1 and padding 1,
for 1 and for 8 images:

    weights/rn90_3x3_*  filters of a pruned ResNet-50: 64x64 at 56x56, 128x128 at 28x28, 256x256 at 14x14
    dlmc/rn50           the 3x3 layers (bottleneck_2) at 90 %, 95 % and 98 %, at their image size
"""
import argparse
import csv
import math
import os
import pathlib
import re
import sys

IMAGES = (1, 8)
LEVELS = (0.9, 0.95, 0.98)
# Height and width of the images by the name of the filters.
IMAGE_SIZE = {"filter_bg1.npy.gz": 56, "filter_bg2.npy.gz": 28, "filter_bg3.npy.gz": 14}


def filters(data):
    for path in sorted((data / "weights").glob("rn90_3x3_*/*.npy.gz")):
        # The nominal level is the end of the folder's name.
        yield path.relative_to(data), IMAGE_SIZE[path.name], int(path.parent.name[-2:]) / 100


def dlmc(data):
    with open(data / "dlmc.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        path = pathlib.Path("dlmc") / row["path"]
        level = float(row["target_sparsity"])
        if row["model"] != "rn50" or level not in LEVELS or not re.match(r"bottleneck_2_", path.name):
            continue
        pixels = int(row["N_per_image"])
        size = math.isqrt(pixels)
        if size * size != pixels:
            sys.exit(f"{path}: {pixels} pixels are no square")
        yield path, size, level


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("SPARSERTC_DATA"))
    options = parser.parse_args()
    if not options.data:
        parser.error("no DATA, and SPARSERTC_DATA is not set")
    data = pathlib.Path(options.data)
    print("path,conv,nominal_sparsity")
    for path, size, level in [*filters(data), *dlmc(data)]:
        if not (data / path).exists():
            sys.exit(f"{data / path}: missing")
        for images in IMAGES:
            print(f'{path},"N={images},H={size},W={size},R=3,S=3,pad=1",{level:g}')


if __name__ == "__main__":
    main()

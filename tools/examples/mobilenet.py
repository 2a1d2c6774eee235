#!/usr/bin/env python3
"""A network of pruned MobileNetV1 pointwise layers, as `sparsertc compile --network` takes it.

  python3 mobilenet.py DATA [--tuning FOLDER] > mobilenet.json

DATA has weights/mobilenet/contraction_1x1_I.npy.gz and _bias.npy.gz. The layers are those at 14 x 14
pixels whose weights are there, one after the other without the depthwise layers between them: the
first takes 256 channels, the others 512. FOLDER: records of `sparsertc tune`.
"""
import argparse
import json
import pathlib
import sys

PIXELS = 14 * 14


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--tuning")
    options = parser.parse_args()
    folder = pathlib.Path(options.data).resolve() / "weights" / "mobilenet"
    layers = []
    for i in range(5, 12):
        weights = folder / f"contraction_1x1_{i}.npy.gz"
        bias = folder / f"contraction_1x1_{i}_bias.npy.gz"
        if weights.exists() and bias.exists():
            layers.append({"name": f"pointwise{i}", "weights": str(weights), "bias": str(bias)})
    if not layers:
        sys.exit(f"{folder}: no layers contraction_1x1_5 to 11")
    network = {"name": "mobilenet", "columns": PIXELS, "activation": "relu"}
    if options.tuning:
        network["tuning"] = str(pathlib.Path(options.tuning).resolve())
        network["tuning_mismatch"] = "similar"
    network["layers"] = layers
    json.dump(network, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()

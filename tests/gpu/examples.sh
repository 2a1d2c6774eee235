#!/usr/bin/env bash
# Compiles a layer into a bundle and runs the example engines on it.
#
#   bash examples.sh COMMAND FOLDER LAYER.npy.gz TARGET N
#
# COMMAND  the sparsertc command
# FOLDER   has engine, engine.py and libsparsertc_runtime.so
# TARGET   what to compile for: native, sm_80, ...
# N        columns
#
# Exit status 0: both were right; 3: no GPU.
set -euo pipefail
command="$1" folder="$2" layer="$3" target="$4" columns="$5"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
gzip -dc "$layer" >"$work/layer.npy"
"$command" compile "$work/layer.npy" -o "$work/layer.srtc" --target="$target"
"$folder/engine" "$work/layer.srtc" "$work/layer.npy" "$columns"
if ! command -v python3 >/dev/null; then
  echo "SKIPPED: engine.py: no python3"
  exit 0
fi
python3 "$folder/engine.py" "$work/layer.srtc" --weights "$work/layer.npy" -n "$columns"
if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  python3 "$folder/engine.py" "$work/layer.srtc" --weights "$work/layer.npy" -n "$columns" --torch
else
  echo "engine.py --torch is left out: no PyTorch with a GPU"
fi

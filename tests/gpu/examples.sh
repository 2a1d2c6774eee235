#!/usr/bin/env bash
# Compiles a layer into a bundle and runs the example engines on it; one compiles and tunes by itself.
#
#   bash examples.sh COMMAND FOLDER LAYER.npy.gz TARGET N NETWORK.json [DATA]
#
# COMMAND  the sparsertc command
# FOLDER   has engine, engine_network, engine_tune, lu_batch, lu_engine, engine.py, mobilenet.py,
#          libsparsertc_runtime.so and libsparsertc.so
# TARGET   what to compile for: native, sm_80, ...
# N        columns
# NETWORK  a network of layers; with DATA, the big test data, also one of MobileNetV1's layers
#
# Without a GPU engine_tune compiles only. Exit status 0: all were right; 3: no GPU.
set -euo pipefail
command="$1" folder="$2" layer="$3" target="$4" columns="$5" network="$6" data="${7:-}"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
gzip -dc "$layer" >"$work/layer.npy"

# What the library of the compiler makes is what the command makes.
SPARSERTC_LIBCUDA=/nonexistent "$command" compile "$work/layer.npy" -o "$work/untuned.srtc" \
  -n "$columns"
SPARSERTC_LIBCUDA=/nonexistent "$folder/engine_tune" "$work/layer.npy" "$work/compiled.srtc" \
  "$columns"
cmp "$work/untuned.srtc" "$work/compiled.srtc"

"$command" compile "$work/layer.npy" -o "$work/layer.srtc" --target="$target"
"$folder/engine" "$work/layer.srtc" "$work/layer.npy" "$columns" | tee "$work/engine.txt"

# Tuned once, then taken from the record without a search.
words="$(sed -n 's/.* for \(sm_[0-9a-z]*\),.*/target=\1/p' "$work/engine.txt")"
[[ "$target" == native ]] || words+=" assembler=none" # an interpreter takes no machine code
export SPARSERTC_EXAMPLE_WORDS="$words"
seconds="${SPARSERTC_EXAMPLE_SECONDS:-2}"
"$folder/engine_tune" "$work/layer.npy" "$work/tuned.srtc" "$columns" "$seconds" 2>/dev/null
cp "$work/tuned.srtc" "$work/first.srtc"
"$folder/engine_tune" "$work/layer.npy" "$work/tuned.srtc" "$columns" "$seconds" 2>/dev/null |
  tee "$work/second.txt"
grep -q "record: holds" "$work/second.txt"
cmp "$work/first.srtc" "$work/tuned.srtc"
"$folder/engine" "$work/tuned.srtc" "$work/layer.npy" "$columns"

# Layers in one bundle: each against float64, then as one graph.
run_network() {
  "$command" compile --network "$1" -o "$work/network.srtc" --target="$target"
  "$command" run "$work/network.srtc" --check --weights "$1" --repeat=3 | tail -n 2
  "$folder/engine_network" "$work/network.srtc" | sed 's/^\(.* us for a replay\)/time: \1/'
}
run_network "$network"

# A simulator's loop: sparse LU with other values in each step.
if [[ "$target" != native ]]; then
  # An interpreter runs one block after the other, and takes no machine code.
  export SPARSERTC_EXAMPLE_LU_WORDS="multiprocessors=1 assembler=none"
fi
"$folder/lu_engine" "${SPARSERTC_EXAMPLE_LU_WIDTH:-48}" "${SPARSERTC_EXAMPLE_LU_STEPS:-50}" \
  "$work/plate.srtc"
# The bundle is there now, and the context without a GPU takes it, too.
SPARSERTC_LIBCUDA=/nonexistent "$folder/lu_engine" "${SPARSERTC_EXAMPLE_LU_WIDTH:-48}" 3 \
  "$work/plate.srtc"
# What is there and is no such bundle stays as it is.
cp "$work/layer.srtc" "$work/other.srtc"
if "$folder/lu_engine" 5 2 "$work/other.srtc" 2>"$work/refused.txt"; then
  echo "lu_engine took the bundle of a layer" >&2
  exit 1
fi
cmp "$work/layer.srtc" "$work/other.srtc"
# Many matrices of one pattern at once.
"$folder/lu_batch" "${SPARSERTC_EXAMPLE_LU_WIDTH:-40}" "${SPARSERTC_EXAMPLE_LU_RODS:-4096}"
SPARSERTC_LIBCUDA=/nonexistent "$folder/lu_batch" 40 64

if ! command -v python3 >/dev/null; then
  echo "SKIPPED: engine.py: no python3"
  exit 0
fi
if [[ -n "$data" ]]; then
  python3 "$folder/mobilenet.py" "$data" >"$work/mobilenet.json"
  run_network "$work/mobilenet.json"
fi
python3 "$folder/engine.py" "$work/layer.srtc" --weights "$work/layer.npy" -n "$columns"
if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  python3 "$folder/engine.py" "$work/layer.srtc" --weights "$work/layer.npy" -n "$columns" --torch
else
  echo "engine.py --torch is left out: no PyTorch with a GPU"
fi

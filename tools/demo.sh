#!/usr/bin/env bash
# The main job, from an empty machine to a checked result: installs what is missing, builds the
# command, compiles the pruned layer that the repository carries to PTX, runs the layer (on the GPU
# if there is one, else on the CPU), checks it against float64 and shows a short table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

layer=tests/data/demo_layer.npy.gz
target=sm_90
columns=256
build=build/release
out=build/demo
jobs="${SPARSERTC_JOBS:-$(nproc)}"

bash tools/setup.sh

echo "== building the command (preset release)"
cmake --preset release >/dev/null
cmake --build "$build" --target sparsertc --parallel "$jobs"
sparsertc="$build/tools/sparsertc"
mkdir -p "$out"

echo "== sparsertc compile $layer -o $out/demo_layer.ptx --target=$target"
"$sparsertc" compile "$layer" -o "$out/demo_layer.ptx" --target="$target"

echo "== sparsertc run $layer -n $columns --check"
"$sparsertc" run "$layer" -n "$columns" --check --report=json >"$out/report.json"

python3 - "$layer" "$out/demo_layer.ptx" "$out/report.json" <<'EOF'
import json
import os
import sys

layer, ptx, report_file = sys.argv[1:]
with open(report_file, encoding="utf-8") as file:
    report = json.load(file)
with open(ptx, encoding="utf-8") as file:
    entries = sum(line.startswith(".visible .entry") for line in file)

rows = [
    ("layer", os.path.basename(layer)),
    ("M x K", f"{report['m']} x {report['k']}"),
    ("non-zeros", f"{report['nnz']}"),
    ("sparsity", f"{100 * report['sparsity']:.2f} %"),
    ("PTX", f"{os.path.getsize(ptx)} bytes, entries: {entries}"),
    ("strategy", report["strategy"]),
    ("run on", report["device"]),
    ("columns of B", f"{report['n']}"),
    ("time", f"{report['time_us']:.1f} us"),
    ("largest error / its bound", f"{report['max_error_over_bound']:.3f}"),
]
width = max(len(name) for name, _ in rows)
print()
for name, value in rows:
    print(f"  {name:<{width}}  {value}")
print()
print("The result is within its bound." if report["check"] == "passed" else "The check FAILED.")
EOF
echo "The code is in $out/demo_layer.ptx, its manifest in $out/demo_layer.ptx.json."

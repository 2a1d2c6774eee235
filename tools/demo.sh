#!/usr/bin/env bash
# The main job, from an empty machine to a checked result: installs what is missing, builds the
# command, compiles the pruned layer that the repository carries to PTX, runs the layer (on the GPU
# if there is one, else on the CPU), checks it against float64 and shows a short table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

layer=tests/data/demo_layer.npy.gz
bias=tests/data/demo_bias.npy.gz
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

epilogue=(--bias --activation=relu)
echo "== sparsertc compile $layer ${epilogue[*]} -o $out/demo_layer.ptx --target=$target"
"$sparsertc" compile "$layer" "${epilogue[@]}" -o "$out/demo_layer.ptx" --target="$target"

run=(run "$layer" -n "$columns" --bias-file "$bias" --activation=relu --check)
echo "== sparsertc ${run[*]}"
"$sparsertc" "${run[@]}" --report=json >"$out/report.json"

python3 - "$out/demo_layer.ptx" "$out/report.json" <<'EOF'
import json
import os
import sys

ptx, report_file = sys.argv[1:]
with open(report_file, encoding="utf-8") as file:
    report = json.load(file)
with open(ptx + ".json", encoding="utf-8") as file:
    manifest = json.load(file)

rows = [
    ("layer", os.path.basename(report["input"])),
    ("M x K", f"{report['m']} x {report['k']}"),
    ("non-zeros", f"{report['nnz']} (sparsity {100 * report['sparsity']:.2f} %)"),
    ("PTX for " + manifest["target"], f"{os.path.getsize(ptx)} bytes"),
    ("  strategy", manifest["strategy"]),
    ("  tile", manifest["tile"]),
    ("  entries", ", ".join(entry["name"] for entry in manifest["entries"])),
    ("run on", report["device"] + (f", {report['threads']} threads" if "threads" in report else "")),
    ("  strategy", report["strategy"]),
    ("  columns of B", f"{report['n']}"),
    ("  time", f"{report['time_us']:.1f} us, {report['gflops']:.1f} GFLOP/s"),
    ("  largest error", f"{report['max_error']:.3g}"),
    ("  largest error / bound", f"{report['max_error_over_bound']:.3f}"),
    ("check against float64", report["check"]),
]
width = max(len(name) for name, _ in rows)
print()
for name, value in rows:
    print(f"{name:<{width}}  {value}")
print()
EOF
echo "The code is in $out/demo_layer.ptx, its manifest in $out/demo_layer.ptx.json."

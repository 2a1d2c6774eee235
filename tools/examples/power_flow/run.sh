#!/usr/bin/env bash
# Solves the AC power flow of a MATPOWER case by `sparsertc jacobian --newton`, and draws it.
#
#   bash run.sh OUT CASE.m [--build BUILD] [--device auto|cpu|gpu] [--start file|flat]
#                          [--loads N | --outages] [-- OPTION...]
#
# OUT      a folder: parameters.npz, x0.npy, x.npy, newton.txt, voltages.svg
# CASE.m   also .m.gz
# --loads N     a batch of N instances, each load times a random factor from 0.9 to 1.1
# --outages     a batch of instances, in each a branch is out
# OPTION        of sparsertc jacobian: --damping=off, --refactor-every=2, --repeat=10
# BUILD    the folder of a build, with its targets sparsertc and sparsertc_example_power_flow; else
#          build/release
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
build="$here/../../../build/release"
device=auto start=file out="" grid="" batch=()
while (($# > 0)); do
  case "$1" in
    --build) build="${2:?}"; shift ;;
    --device) device="${2:?}"; shift ;;
    --start) start="${2:?}"; shift ;;
    --loads) batch=(--loads "${2:?}"); shift ;;
    --outages) batch=(--outages) ;;
    --) shift; break ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    *) if [[ -z "$out" ]]; then out="$1"; else grid="$1"; fi ;;
  esac
  shift
done
if [[ -z "$grid" ]]; then
  echo "usage: bash run.sh OUT CASE.m [--build BUILD] [--device D] [--start file|flat]" \
    "[--loads N | --outages] [-- OPTION...]" >&2
  exit 2
fi
for file in "$build/tools/sparsertc" "$build/tools/examples/power_flow/power_flow"; do
  if [[ ! -x "$file" ]]; then
    echo "run.sh: $file is not there: build it, or name the build's folder by --build" >&2
    exit 2
  fi
done
mkdir -p "$out"
program="$build/tools/examples/power_flow/power_flow"

"$program" parameters "$grid" --start "$start" "${batch[@]}" \
  --output "$out/parameters.npz" --x0 "$out/x0.npy" | tee "$out/case.txt"
# "N instances; --varying NAME..."
read -r -a words < <(sed -n 's/^\([0-9]*\) instances; /--instances \1 /p' "$out/case.txt") || true
status=0
"$build/tools/sparsertc" jacobian "$here/F.cu" --x0 "$out/x0.npy" \
  --parameters "$out/parameters.npz" "${words[@]}" --newton --solution "$out/x.npy" \
  --device "$device" "$@" | tee "$out/newton.txt" || status=$?
"$program" plot "$grid" --start "$start" --solution "$out/x.npy" --output "$out/voltages.svg"
echo "$out/voltages.svg"
exit "$status"

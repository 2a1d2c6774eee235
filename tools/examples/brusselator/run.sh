#!/usr/bin/env bash
# Steps the Brusselator by backward Euler, each step solved by `sparsertc jacobian --newton`, and
# draws it.
#
#   bash run.sh OUT [--build BUILD] [--side N] [--steps N] [--dt SECONDS] [--device auto|cpu|gpu]
#
# OUT      a folder: x0.npy, x1.npy, ..., newton.txt, brusselator.svg
# BUILD    the folder of a build, with its targets sparsertc and sparsertc_example_brusselator; else
#          build/release
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
build="$here/../../../build/release"
side=32 steps=60 dt=0.1 device=auto out=""
while (($# > 0)); do
  case "$1" in
    --build) build="${2:?}"; shift ;;
    --side) side="${2:?}"; shift ;;
    --steps) steps="${2:?}"; shift ;;
    --dt) dt="${2:?}"; shift ;;
    --device) device="${2:?}"; shift ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    *) out="$1" ;;
  esac
  shift
done
if [[ -z "$out" ]]; then
  echo "usage: bash run.sh OUT [--build BUILD] [--side N] [--steps N] [--dt SECONDS] [--device D]" >&2
  exit 2
fi
for file in "$build/tools/sparsertc" "$build/tools/examples/brusselator/brusselator"; do
  if [[ ! -x "$file" ]]; then
    echo "run.sh: $file is not there: build it, or name the build's folder by --build" >&2
    exit 2
  fi
done
mkdir -p "$out"
program="$build/tools/examples/brusselator/brusselator"

"$program" start --side "$side" --output "$out/x0.npy"
: >"$out/newton.txt"
fields=("$out/x0.npy")
for ((step = 1; step <= steps; ++step)); do
  before="${fields[-1]}"
  "$program" parameters --side "$side" --dt "$dt" --previous "$before" --output "$out/step.npz"
  echo "step $step" >>"$out/newton.txt"
  "$build/tools/sparsertc" jacobian "$here/F.cu" --x0 "$before" --parameters "$out/step.npz" \
    --newton --solution "$out/x$step.npy" --device "$device" >>"$out/newton.txt"
  fields+=("$out/x$step.npy")
done
rm "$out/step.npz"
"$program" plot --side "$side" --output "$out/brusselator.svg" "${fields[@]}"
grep -c '^converged' "$out/newton.txt" | sed "s|\$| of $steps steps converged: $out/brusselator.svg|"

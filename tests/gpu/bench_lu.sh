#!/usr/bin/env bash
# Times sparse LU of one matrix with new values beside KLU on one core, on a bare machine with a GPU:
# from the folder that pack.sh made with test data, or beside a build.
#
#   bash bench_lu.sh [OPTION...] [MATRIX...]
#
# OPTION   each with a value, for the program: --threads N, --products N, --solve-products N,
#          --solve auto|dataflow|block|both, --block-threads N, --repeat N, --strategy WORD,...,
#          --stages auto|none|all, --atomics 1, --budget N, --dense-tail N, --rf 1 (bench_lu.cpp)
# MATRIX   names below SPARSERTC_DATA/lu, without the ending; `all` for all of them (--seconds N begins
#          none after so many seconds); else those that the goals are about
#
# SPARSERTC_BENCH_LU   the program; else ./bench_lu_gpu, else the one in sparsertc-gpu.tar.xz
# SPARSERTC_DATA       the big test data; else the folder data/ beside the program
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
program="${SPARSERTC_BENCH_LU:-}"
if [[ -z "$program" && -x "$here/bench_lu_gpu" ]]; then
  program="$here/bench_lu_gpu"
fi
if [[ -z "$program" ]]; then
  if [[ ! -f "$here/sparsertc-gpu.tar.xz" ]]; then
    echo "bench_lu.sh: no bench_lu_gpu: set SPARSERTC_BENCH_LU, or make a folder with pack.sh" >&2
    exit 2
  fi
  if command -v xz >/dev/null; then
    tar -xJf "$here/sparsertc-gpu.tar.xz" -C "$work"
  else
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
      "$here/sparsertc-gpu.tar.xz" "$work"
  fi
  program="$work/bench_lu_gpu"
fi
data="${SPARSERTC_DATA:-$(dirname "$program")/data}/lu"
if [[ ! -d "$data" ]]; then
  echo "bench_lu.sh: no matrices: SPARSERTC_DATA names no folder with lu/ in it" >&2
  exit 2
fi

options=()
while [[ "${1:-}" == --* ]]; do
  options+=("$1" "${2:?$1 needs a number}")
  shift 2
done
names=("$@")
if ((${#names[@]} == 0)); then
  names=(memplus pf_ACTIVSg2000_it0 pf_ACTIVSg10k_it0 pf_13659pegase_it0 ibmpg1_dc_mna orsreg_1
    cryg2500 ScaleMicrogrid_N1000_01)
fi
files=()
for name in "${names[@]}"; do
  if [[ "$name" == all ]]; then
    files+=("$data")
  else
    files+=("$data/$name.mtx.gz")
  fi
done
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "no nvidia-smi"
grep -m 1 "model name" /proc/cpuinfo || true
"$program" "${options[@]}" "${files[@]}"

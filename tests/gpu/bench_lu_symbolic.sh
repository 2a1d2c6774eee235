#!/usr/bin/env bash
# Times symbolic factorization and levels on the GPU beside the CPU's methods on all cores, on a bare
# machine with a GPU and NVRTC: from the folder that pack.sh made, or beside a build.
#
#   bash bench_lu_symbolic.sh [PART...]
#
# PART   of plane, space, large, limited; else all of them, one after the other:
#          plane     grids of two dimensions, to n = 10^6, all methods of the CPU
#          space     grids of three dimensions, to n = 10^6; fill2 on the CPU takes longest
#          large     n = 2 * 10^6, without fill2 on the CPU
#          limited   out of core: n = 10^6 with a limit on the device memory
#        Each is meant for less than 100 s on 16 cores.
#
# SPARSERTC_BENCH_LU_SYMBOLIC   the program; else ./bench_lu_symbolic_gpu, else the one in
#                               sparsertc-gpu.tar.xz
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
program="${SPARSERTC_BENCH_LU_SYMBOLIC:-}"
if [[ -z "$program" && -x "$here/bench_lu_symbolic_gpu" ]]; then
  program="$here/bench_lu_symbolic_gpu"
fi
if [[ -z "$program" ]]; then
  if [[ ! -f "$here/sparsertc-gpu.tar.xz" ]]; then
    echo "bench_lu_symbolic.sh: no bench_lu_symbolic_gpu: set SPARSERTC_BENCH_LU_SYMBOLIC, or make" \
      "a folder with pack.sh" >&2
    exit 2
  fi
  if command -v xz >/dev/null; then
    tar -xJf "$here/sparsertc-gpu.tar.xz" -C "$work"
  else
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
      "$here/sparsertc-gpu.tar.xz" "$work"
  fi
  program="$work/bench_lu_symbolic_gpu"
fi

parts=("$@")
((${#parts[@]} > 0)) || parts=(plane space large limited)
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "no nvidia-smi"
grep -m 1 "model name" /proc/cpuinfo || true
for part in "${parts[@]}"; do
  echo "$part:"
  case "$part" in
    plane) "$program" --details 320x320x1 1000x1000x1 ;;
    space) "$program" --details 50x50x50 100x100x100 ;;
    large) "$program" --details --without=fill2 1500x1400x1 ;;
    limited) "$program" --details --without=fill2 --memory-limit=300000000 1000x1000x1 ;;
    *) echo "bench_lu_symbolic.sh: unknown part $part" >&2; exit 2 ;;
  esac
done

#!/usr/bin/env bash
# Times sparsertc beside cuBLAS and cuSPARSE on a bare machine with a GPU: from the folder that
# pack.sh made (with test data), or beside a build.
#
#   bash bench.sh [--op OP] [--out FOLDER] [--budget SECONDS] [--total SECONDS] [--set FILE]
#                 [--first N] [-- OPTION...]
#
# --op OP           spmm, or conv2d, for which bench_conv.sh adds cuDNN; else spmm
# --out FOLDER      bench.txt, bench.csv and bench.svg (conv2d: bench_conv.txt and .csv) go here;
#                   else the current folder
# --budget SECONDS  of searching, for each matrix; else 4 (76 matrices in about 7 minutes)
# --total SECONDS   of the whole run: budgets become shorter where they would take longer; else no limit
# --set FILE        another list of matrices (tests/performance/gpu_set.py and gpu_conv_set.py make
#                   them)
# --first N         only the first N matrices of the list
# OPTION...         more options of `sparsertc bench`
#
# SPARSERTC_COMMAND     the program; else ./sparsertc, else the one in sparsertc-gpu.tar.xz
# SPARSERTC_DATA        the big test data; else the folder data/ of the archive
# SPARSERTC_LIBCUBLAS, SPARSERTC_LIBCUSPARSE
#                       the libraries; else the loader's, the toolkit's, those of Python's packages
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

op="spmm"
out="."
budget=4
total=0
list=""
first=0
while (($# > 0)); do
  case "$1" in
    --op) op="${2:?--op needs spmm or conv2d}"; shift ;;
    --out) out="${2:?--out needs a folder}"; shift ;;
    --budget) budget="${2:?--budget needs seconds}"; shift ;;
    --total) total="${2:?--total needs seconds}"; shift ;;
    --set) list="${2:?--set needs a file}"; shift ;;
    --first) first="${2:?--first needs a number}"; shift ;;
    --) shift; break ;;
    *) echo "bench.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
case "$op" in
  spmm) name="bench" set_name="gpu_set.csv" reports=(--plot="$out/bench.svg") ;;
  conv2d) name="bench_conv" set_name="gpu_conv_set.csv" reports=() ;;
  *) echo "bench.sh: --op: unknown word $op: spmm or conv2d" >&2; exit 2 ;;
esac

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
command="${SPARSERTC_COMMAND:-}"
if [[ -z "$command" && -x "$here/sparsertc" ]]; then
  command="$here/sparsertc"
fi
if [[ -z "$command" ]]; then
  archive="$here/sparsertc-gpu.tar.xz"
  if [[ ! -f "$archive" ]]; then
    echo "bench.sh: no sparsertc: set SPARSERTC_COMMAND, or make a folder with pack.sh" >&2
    exit 2
  fi
  if command -v xz >/dev/null; then
    tar -xJf "$archive" -C "$work"
  else
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
      "$archive" "$work"
  fi || { echo "bench.sh: cannot unpack $archive" >&2; exit 2; }
  command="$work/sparsertc"
  if [[ -z "${SPARSERTC_DATA:-}" && -d "$work/data" ]]; then
    export SPARSERTC_DATA="$work/data"
  fi
  [[ -z "$list" && -f "$work/$set_name" ]] && list="$work/$set_name"
fi
if [[ -z "$list" ]]; then
  echo "bench.sh: no list of matrices: --set names one" >&2
  exit 2
fi
if ((first > 0)); then
  head -n "$((first + 1))" "$list" >"$work/first.csv"
  list="$work/first.csv"
fi

# NVIDIA's Python packages keep each library in a folder of its own.
export PATH="$PATH:/usr/local/cuda/bin"
folders="$(python3 - <<'PYTHON' 2>/dev/null
import glob, os, site, sys
roots = site.getsitepackages() + [site.getusersitepackages()] + [p for p in sys.path if p]
print(":".join(dict.fromkeys(f for r in roots for f in sorted(glob.glob(os.path.join(r, "nvidia/*/lib"))))))
PYTHON
)"
if [[ -n "$folders" ]]; then
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folders"
fi

mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm --format=csv,noheader \
  2>/dev/null || echo "no nvidia-smi"
"$command" bench --device=gpu --op="$op" --set="$list" --budget="$budget" --total="$total" \
  --csv="$out/$name.csv" \
  "${reports[@]}" "$@" | tee "$out/$name.txt"
status="${PIPESTATUS[0]}"
if ((status == 3)); then
  echo "SKIPPED: no GPU"
  exit 0
fi
exit "$status"

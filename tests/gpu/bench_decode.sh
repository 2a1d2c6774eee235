#!/usr/bin/env bash
# Times products of few columns (decoding) beside cuBLAS and cuSPARSE on a bare machine with a GPU, each
# launch after more than the second-level cache holds had been read: every shape and number of columns at
# every level of zeros, the fastest of the tiles below, and the geometric means for each level.
#
#   bash bench_decode.sh [--out FOLDER] [--columns LIST] [--levels LIST] [--exact] [-- OPTION...]
#
# --out FOLDER      bench_decode.txt and .csv go here; else the current folder
# --columns LIST    of B; else 1,8,16,32
# --levels LIST     percentages of zeros; else 50,70,80,90,95,98
# --exact           NaN and infinity reach exactly the outputs that they must: compressed streams alone
# OPTION...         more options of `sparsertc bench`
#
# SPARSERTC_COMMAND     the program; else ./sparsertc, else one on the PATH
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

out="."
columns="1,8,16,32"
levels="50,70,80,90,95,98"
nonfinite="dense"
while (($# > 0)); do
  case "$1" in
    --out) out="${2:?--out needs a folder}"; shift ;;
    --columns) columns="${2:?--columns needs numbers}"; shift ;;
    --levels) levels="${2:?--levels needs percentages}"; shift ;;
    --exact) nonfinite="exact" ;;
    --) shift; break ;;
    *) echo "bench_decode.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
command="${SPARSERTC_COMMAND:-}"
[[ -z "$command" && -x "$here/sparsertc" ]] && command="$here/sparsertc"
[[ -z "$command" ]] && command="$(command -v sparsertc)"
if [[ -z "$command" ]]; then
  echo "bench_decode.sh: no sparsertc: set SPARSERTC_COMMAND" >&2
  exit 2
fi

shapes=()
for n in ${columns//,/ }; do
  for shape in 4096x4096 11008x4096 4096x11008; do
    shapes+=("${shape}x$n")
  done
done
tiles=(--tile=strategy=compressed --tile=strategy=compressed,cluster=2
  --tile=strategy=compressed,cluster=4)
if [[ "$nonfinite" == dense ]]; then
  tiles+=(--tile=strategy=bitmap --tile=strategy=bitmap,cluster=1 --tile=strategy=bitmap,cluster=2
    --tile=strategy=bitmap,cluster=4)
fi
mkdir -p "$out"
# Room for all tiles of the largest layers, whose streams take seconds to make.
"$command" bench --device=gpu --dtype=f16 --cold --nonfinite="$nonfinite" \
  --shapes="$(IFS=,; echo "${shapes[*]}")" --levels="$levels" "${tiles[@]}" --rounds=5 --budget=60 \
  --csv="$out/bench_decode.csv" "$@" | tee "$out/bench_decode.txt"
exit "${PIPESTATUS[0]}"

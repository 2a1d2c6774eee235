#!/usr/bin/env bash
# Times sparse convolutions beside cuDNN on a bare machine with a GPU: first sparsertc, then cuDNN
# through PyTorch on dense filters of the same shapes.
#
#   bash bench_conv.sh [--out FOLDER] [--budget SECONDS] [--total SECONDS] [--set FILE] [--first N]
#
# --out FOLDER      bench_conv.txt and .csv (sparsertc), cudnn.csv (every mode and layout) and
#                   conv_beside_cudnn.txt go here; else the current folder
# --budget SECONDS  of searching, for each layer; else 4
# --total SECONDS   that sparsertc's part may take: budgets become shorter where it would take longer; else
#                   no limit. cuDNN's part comes on top
# --set FILE        another list of layers (tests/performance/gpu_conv_set.py makes them)
# --first N         only the first N layers of the list
#
# SPARSERTC_PYTHON   the Python that has PyTorch; else python3
# The other variables are those of bench.sh.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

out="."
options=()
while (($# > 0)); do
  case "$1" in
    --out) out="${2:?--out needs a folder}"; shift ;;
    --budget | --total | --set | --first) options+=("$1" "${2:?$1 needs a value}"); shift ;;
    *) echo "bench_conv.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done

mkdir -p "$out"
rm -f "$out/bench_conv.csv" # an older one must not be compared with
bash "$here/bench.sh" --op conv2d --out "$out" "${options[@]}"
status=$?
if [[ ! -f "$out/bench_conv.csv" ]]; then # skipped aloud, or failed
  exit "$status"
fi
"${SPARSERTC_PYTHON:-python3}" "$here/bench_conv.py" "$out/bench_conv.csv" --csv="$out/cudnn.csv" |
  tee "$out/conv_beside_cudnn.txt"
compared="${PIPESTATUS[0]}"
((status == 0)) || exit "$status"
exit "$compared"

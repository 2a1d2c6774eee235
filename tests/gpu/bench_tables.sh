#!/usr/bin/env bash
# Times every strategy, with the compiler's own tiles, beside cuBLAS and cuSPARSE on a bare machine with a
# GPU, warm and cold, and prints for f32, tf32 and f16 the geometric means for each level of zeros over
# cuBLAS of the same precision and over cuSPARSE, and how often the predicted strategy is the fastest:
#
#   transformer  DLMC's layers with N = 1024 and 2048
#   rn50         DLMC's 1x1 layers for a batch of 8 images
#   square       1024x1024x4096, zeros spread evenly
#
#   bash bench_tables.sh [--out FOLDER] [--total SECONDS] [--parts LIST] [--precisions LIST] [--levels LIST]
#                        [--print] [-- OPTION...]
#
# --out FOLDER        tables_PRECISION.txt, .csv and .svg go here, else to the current folder; what the .csv
#                     files have is not measured again, so that a run can be ended and gone on with
# --total SECONDS     of the whole run, which then leaves the rest for the next one; else no limit
# --parts LIST        of the three above; else transformer,rn50,square
# --precisions LIST   of f32,tf32,f16
# --levels LIST       percentages of zeros; else 50,70,80,90,95,98
# --print             only the cases, as lists for bench --set
# OPTION...           more options of `sparsertc bench`
#
# SPARSERTC_COMMAND     the program; else ./sparsertc, else one on the PATH
# SPARSERTC_DATA        the big test data; else ./data
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

out="."
total=0
parts="transformer,rn50,square"
precisions="f32,tf32,f16"
levels="50,70,80,90,95,98"
print=0
while (($# > 0)); do
  case "$1" in
    --out) out="${2:?--out needs a folder}"; shift ;;
    --total) total="${2:?--total needs seconds}"; shift ;;
    --parts) parts="${2:?--parts needs a list}"; shift ;;
    --precisions) precisions="${2:?--precisions needs a list}"; shift ;;
    --levels) levels="${2:?--levels needs percentages}"; shift ;;
    --print) print=1 ;;
    --) shift; break ;;
    *) echo "bench_tables.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
[[ -z "${SPARSERTC_DATA:-}" && -d "$here/data" ]] && export SPARSERTC_DATA="$here/data"
if [[ -z "${SPARSERTC_DATA:-}" ]]; then
  echo "bench_tables.sh: no test data: set SPARSERTC_DATA" >&2
  exit 2
fi
command="${SPARSERTC_COMMAND:-}"
[[ -z "$command" && -x "$here/sparsertc" ]] && command="$here/sparsertc"
[[ -z "$command" ]] && command="$(command -v sparsertc)"
if [[ -z "$command" ]] && ((print == 0)); then
  echo "bench_tables.sh: no sparsertc: set SPARSERTC_COMMAND" >&2
  exit 2
fi

# What dlmc.csv has of these levels, in the order of the parts; N of a layer of rn50 is 8 images' pixels.
list() {
  echo "path,n,nominal_sparsity"
  for part in ${parts//,/ }; do
    for level in ${levels//,/ }; do
      awk -F, -v part="$part" -v level="$level" '
        { sub(/\r$/, "") }
        NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
        $at["model"] == part && $at["method"] == "magnitude_pruning" && 100 * $at["target_sparsity"] == level {
          path = "dlmc/" $at["path"]
          if (part == "transformer") {
            print path ",1024," level / 100
            print path ",2048," level / 100
          } else if (path ~ /bottleneck_[13]_/)
            print path "," 8 * $at["N_per_image"] "," level / 100
        }' "$SPARSERTC_DATA/dlmc.csv"
    done
  done
}
if ((print == 1)); then
  list
  exit 0
fi

mkdir -p "$out"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
list >"$work/list.csv"
cases=(--set="$work/list.csv")
[[ ",$parts," == *,square,* ]] && cases+=(--shapes=1024x1024x4096 --levels="$levels")
status=0
for precision in ${precisions//,/ }; do
  case "$precision" in
    f32) words=() ;;
    tf32) words=(--precision=tf32) ;;
    *) words=(--dtype="$precision") ;;
  esac
  left=0
  if ((total > 0)); then
    left=$((total - SECONDS))
    if ((left <= 0)); then
      echo "bench_tables.sh: $precision is left for another run" >&2
      break
    fi
  fi
  echo "== $precision"
  file="$out/tables_$precision"
  "$command" bench --device=gpu --regimes --libraries --cold --nonfinite=dense --rounds=5 "${words[@]}" \
    "${cases[@]}" --resume="$file.csv" --csv="$file.csv" --plot="$file.svg" --total="$left" "$@" |
    tee "$file.txt"
  result="${PIPESTATUS[0]}"
  ((result != 0)) && status="$result"
done
exit "$status"

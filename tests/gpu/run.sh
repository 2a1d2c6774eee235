#!/usr/bin/env bash
# Runs the GPU tests on a bare machine: from the folder that pack.sh made, or beside a build.
#
#   bash run.sh [--log FOLDER] [--only PATTERN] [--no-sanitizer]
#
# --log FOLDER     what every test printed goes to FOLDER/gpu_tests.log and, of the failed ones, to
#                  the terminal
# --only PATTERN   only the cases whose name matches this extended regular expression
# --no-sanitizer   leave compute-sanitizer out
#
# Small cases under compute-sanitizer, where it is found, and every case against float64 and the host
# program, several beside each other; each is reported when it ends. The last line is
# `N passed, N failed, N skipped`; exit status 1 when one failed. SIGTERM and Ctrl-C end it with what is
# known by then: cases that have not ended count as failed.
#
# SPARSERTC_GPU_TESTS   the test program; else ./gpu_tests, else the one in sparsertc-gpu.tar.xz
# SPARSERTC_DATA        the big test data; else the folder data/ of the archive
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

log_folder=""
only="."
sanitizer=1
while (($# > 0)); do
  case "$1" in
    --log) log_folder="${2:?--log needs a folder}"; shift ;;
    --only) only="${2:?--only needs a pattern}"; shift ;;
    --no-sanitizer) sanitizer=0 ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

unpack() {
  if command -v xz >/dev/null; then
    tar -xJf "$1" -C "$work"
  else
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$work"
  fi
}

program="${SPARSERTC_GPU_TESTS:-}"
command=""
if [[ -z "$program" && -x "$here/gpu_tests" ]]; then
  program="$here/gpu_tests"
fi
if [[ -z "$program" ]]; then
  if [[ ! -f "$here/sparsertc-gpu.tar.xz" ]]; then
    echo "run.sh: no gpu_tests: set SPARSERTC_GPU_TESTS, or make a folder with pack.sh" >&2
    exit 2
  fi
  unpack "$here/sparsertc-gpu.tar.xz" || { echo "run.sh: cannot unpack the archive" >&2; exit 2; }
  program="$work/gpu_tests"
  [[ -x "$work/sparsertc" ]] && command="$work/sparsertc"
  if [[ -z "${SPARSERTC_DATA:-}" && -d "$work/data" ]]; then
    export SPARSERTC_DATA="$work/data"
  fi
fi

export PATH="$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "no nvidia-smi"
ptxas --version 2>/dev/null | grep release || echo "no ptxas"

names=()
mkdir "$work/cases"

# report NUMBER NAME STATUS SECONDS: what became of a case, in one piece; the verdict goes to a file.
report() {
  local name="$2" status="$3" log="$work/cases/$1.log" verdict=passed
  if ((status == 3)) && [[ "$name" == command:* ]]; then
    verdict=skipped # the command's exit status where there is no GPU
  elif ((status != 0)); then
    verdict=failed
  elif grep -q "SKIPPED" "$log"; then
    verdict=skipped
  elif [[ "$name" == sanitizer* ]] &&
    ! grep -qE "(ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards)" "$log"; then
    verdict=failed # it did not come to an end
  fi
  {
    printf '%-8s %4ss  %s' "$verdict" "$4" "$name"
    ((status == 124 || status == 137)) && printf ' (out of time)'
    printf '\n'
    grep -E '^(time|layer): ' "$log" | sed 's/^/    /'
    if [[ "$verdict" == failed ]]; then
      # The first failure says most; the whole log is in the log folder.
      head -n 40 "$log" | sed 's/^/    | /'
    elif [[ "$verdict" == skipped ]]; then
      { grep -m 1 -A 1 SKIPPED "$log" || head -n 1 "$log"; } | sed 's/^ */    | /'
    fi
  } >"$work/cases/$1.report"
  cat "$work/cases/$1.report"
  echo "$verdict (status $status, $4 s)" >"$work/cases/$1.verdict"
}

# start NAME LIMIT COMMAND...: runs a case beside others.
start() {
  local number="${#names[@]}" name="$1" limit="$2"
  shift 2
  names+=("$name")
  (
    trap - EXIT INT
    begin=$SECONDS
    timeout --kill-after=10 "$limit" "$@" >"$work/cases/$number.log" 2>&1 &
    case=$!
    trap 'kill "$case" 2>/dev/null; exit 1' TERM
    wait "$case"
    report "$number" "$name" "$?" "$((SECONDS - begin))"
  ) &
}

# The logs and the last line.
finish() {
  local passed=0 failed=0 skipped=0 number verdict
  for number in "${!names[@]}"; do
    verdict="$(cat "$work/cases/$number.verdict" 2>/dev/null)"
    case "$verdict" in
      passed*) passed=$((passed + 1)) ;;
      skipped*) skipped=$((skipped + 1)) ;;
      failed*) failed=$((failed + 1)) ;;
      *)
        failed=$((failed + 1))
        verdict="not ended"
        echo "not ended       ${names[$number]}"
        ;;
    esac
    if [[ -n "$log_folder" ]]; then
      mkdir -p "$log_folder"
      { printf '==== %s: %s\n' "${names[$number]}" "$verdict"
        cat "$work/cases/$number.log" 2>/dev/null; } >>"$log_folder/gpu_tests.log"
    fi
  done
  echo "$passed passed, $failed failed, $skipped skipped"
  ((failed == 0))
}
trap 'trap "" TERM INT; kill $(jobs -p) 2>/dev/null; finish; exit 1' TERM INT

# At most this many at once; assembling needs the cores, the GPU is shared.
beside="$(( ($(nproc) + 1) / 2 ))"
((beside > 6)) && beside=6
wait_for_room() {
  while (($(jobs -rp | wc -l) >= beside)); do
    wait -n
  done
}

# A case by its name, in which a comma would end a pattern; a name that matches nothing is a failure.
run_case=("$program" --warn NoTests)
pattern_of() { printf '%s' "${1//,/\\,}"; }

# The longest first.
if ((sanitizer)); then
  checker="$(command -v compute-sanitizer || true)"
  for tool in memcheck racecheck initcheck synccheck; do
    grep -qE "$only" <<<"sanitizer $tool" || continue
    wait_for_room
    if [[ -n "$checker" ]]; then
      options=(--tool "$tool" --error-exitcode 86)
      [[ "$tool" == memcheck ]] && options+=(--leak-check full)
      start "sanitizer $tool" 400 "$checker" "${options[@]}" \
        "$program" "[sanitize]"
    else
      start "sanitizer $tool" 10 echo "SKIPPED: compute-sanitizer not found"
    fi
  done
fi
# Catch's exit status for a listing is the number of cases.
mapfile -t cases < <("$program" --list-test-names-only | grep -E "$only")
alone=()
for name in "${cases[@]}"; do
  case "$name" in
    "real layers" | times | "plan: what an execution costs"* | "plan: cold start"* | \
      "bind: how long"*)
      alone+=("$name") ;;
    *) wait_for_room; start "$name" 400 "${run_case[@]}" "$(pattern_of "$name")" ;;
  esac
done
if [[ -n "$command" && -f "$work/demo_layer.npy.gz" ]] && grep -qE "$only" <<<"command"; then
  wait_for_room
  start "command: run --device=gpu --check" 120 \
    "$command" run "$work/demo_layer.npy.gz" --device=gpu --check -n 300
fi
if [[ -n "$command" && -x "$work/engine" ]] && grep -qE "$only" <<<"examples"; then
  wait_for_room
  start "command: examples in C and Python" 120 \
    bash "$work/examples.sh" "$command" "$work" "$work/demo_layer.npy.gz" native 300 \
    "$work/network/tiny.json" ${SPARSERTC_DATA:+"$SPARSERTC_DATA"}
fi
wait
# These measure, so nothing runs beside them.
for name in "${alone[@]}"; do
  start "$name" 500 "${run_case[@]}" "$(pattern_of "$name")"
  wait
done

finish

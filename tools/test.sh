#!/usr/bin/env bash
# Installs what is missing, configures, builds and runs every test that this machine can run.
#
#   bash tools/test.sh [ctest arguments]        for example: bash tools/test.sh -L unit
#
# SPARSERTC_PRESET   another preset than `dev` (assertions on)
# SPARSERTC_DATA     the folder of the big test data; tests that need it are skipped without
# SPARSERTC_JOBS     parallel jobs, else the number of processors
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset="${SPARSERTC_PRESET:-dev}"
jobs="${SPARSERTC_JOBS:-$(nproc)}"
build="build/$preset"

bash tools/setup.sh --tests
format_output="$(bash tools/check_format.sh 2>&1)" || {
  printf '%s\n' "$format_output" >&2
  echo "test: formatting differs from .clang-format; bash tools/check_format.sh --fix repairs it" >&2
  exit 1
}

cmake --preset "$preset" -DSPARSERTC_WERROR=ON >/dev/null
cmake --build "$build" --parallel "$jobs"

fuzz=()
if command -v clang++-14 >/dev/null || command -v clang++ >/dev/null; then
  fuzz=(build/fuzz)
fi

status=0
ctest --test-dir "$build" --output-on-failure --parallel "$jobs" "$@" || status=$?

log="$build/Testing/Temporary/LastTest.log"
skipped="$({
  printf '%s\n' "$format_output"
  [[ -f "$log" ]] && cat "$log"
} | grep -E '(SKIPPED|UNSUPPORTED): ' | sed -E 's/^.*((SKIPPED|UNSUPPORTED): )/\1/' | sort | uniq -c |
  sed -E 's/^ *1 //; s/^ *([0-9]+) (.*)$/\2 (\1 times)/' || true)"
if [[ -n "$skipped" ]]; then
  echo
  echo "Not run on this machine:"
  printf '%s\n' "$skipped" | sed 's/^/  /'
fi
exit "$status"

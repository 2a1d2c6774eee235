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

status=0
format_status=0
format_output="$(bash tools/check_format.sh 2>&1)" || format_status=$?

cmake --preset "$preset" -DSPARSERTC_WERROR=ON >/dev/null
cmake --build "$build" --parallel "$jobs"
logs=("$build")

# The fuzzers want another compiler, so they have a build of their own; each runs for some seconds.
if (($# == 0)); then
  if command -v clang++-14 >/dev/null; then
    cmake --preset fuzz -DSPARSERTC_WERROR=ON >/dev/null
    cmake --build --preset fuzz --parallel "$jobs"
    ctest --preset fuzz --parallel "$jobs" || status=$?
    logs+=(build/fuzz)
  else
    format_output+=$'\n'"SKIPPED: fuzz: clang++-14 not found"
  fi
fi

ctest --test-dir "$build" --output-on-failure --parallel "$jobs" "$@" || status=$?

# What was left out, and why: tests say `SKIPPED: reason`, lit lists what is UNSUPPORTED.
skipped="$({
  printf '%s\n' "$format_output"
  for folder in "${logs[@]}"; do
    cat "$folder/Testing/Temporary/LastTest.log" 2>/dev/null || true
  done
} | grep -oE '(SKIPPED|UNSUPPORTED): .*' | sort | uniq -c |
  sed -E 's/^ *1 //; s/^ *([0-9]+) (.*)$/\2 (\1 times)/' || true)"
echo
if [[ -n "$skipped" ]]; then
  echo "Not run on this machine:"
  printf '%s\n' "$skipped" | sed 's/^/  /'
else
  echo "Nothing was skipped."
fi
if ((format_status != 0)); then
  printf '%s\n' "$format_output" >&2
  echo "Formatting differs from .clang-format; bash tools/check_format.sh --fix repairs it." >&2
  status=1
fi
exit "$status"

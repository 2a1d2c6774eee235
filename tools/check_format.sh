#!/usr/bin/env bash
# Checks that every file of C++ or CUDA C++ is formatted as .clang-format says (clang-format 14; other versions
# differ in small things). With --fix it formats them. Skips aloud where clang-format 14 is absent.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

formatter=""
for candidate in clang-format-14 clang-format; do
  if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q 'version 14\.'; then
    formatter="$candidate"
    break
  fi
done
if [[ -z "$formatter" ]]; then
  echo "SKIPPED: format: clang-format 14 not found"
  exit 0
fi

files=()
while IFS= read -r -d '' file; do
  files+=("$file")
done < <(find ir compiler runtime tools tests \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z)

if [[ "${1:-}" == --fix ]]; then
  "$formatter" -i "${files[@]}"
elif ! output="$("$formatter" --dry-run -Werror "${files[@]}" 2>&1)"; then
  grep -oE '^[^ :]+:[0-9]+' <<<"$output" | sort -u -t: -k1,1 |
    sed 's/$/: error: not formatted as .clang-format says (first such line)/' >&2
  exit 1
fi

#!/usr/bin/env bash
# Checks a shared library with a C API: shows the calls of its header and nothing else, needs neither
# LLVM nor CUDA, is smaller than a limit without debug information.
#
#   bash runtime_library.sh LIBRARY [HEADER] [MEGABYTES]
#
# HEADER     else runtime/include/sparsertc.h
# MEGABYTES  else 2
set -euo pipefail
library="$1"
header="${2:-$(dirname "${BASH_SOURCE[0]}")/../../runtime/include/sparsertc.h}"
limit="${3:-2}"
failed=0
complain() {
  echo "$library: $1" >&2
  failed=1
}

shown="$(nm --dynamic --defined-only --format=posix "$library" | cut -d' ' -f1 | sort)"
declared="$(grep -E '^SPARSERTC_API' -A 1 "$header" | grep -oE '\bsparsertc_[a-z_]+\(' | tr -d '(' |
  sort -u)"
[[ -n "$declared" ]] || complain "nothing is declared in $header"
missing="$(comm -13 <(echo "$shown") <(echo "$declared"))"
[[ -z "$missing" ]] || complain "lacks $missing"
others="$(comm -23 <(echo "$shown") <(echo "$declared"))"
[[ -z "$others" ]] || complain "shows more than $header: $others"

needed="$(readelf --dynamic "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')"
! grep -qiE 'llvm|cuda|nvrtc|nvJitLink' <<<"$needed" || complain "needs $needed"

stripped="$(mktemp)"
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$library"
bytes="$(stat -c %s "$stripped")"
echo "$bytes bytes stripped, $(wc -l <<<"$shown") calls, needs: ${needed//$'\n'/ }"
((bytes < limit * 1000000)) || complain "$bytes bytes, the limit is $limit MB"
exit "$failed"

#!/usr/bin/env bash
# Checks the shared runtime library: shows sparsertc_* and nothing else, needs neither LLVM nor CUDA,
# is smaller than 2 MB without debug information.
#
#   bash runtime_library.sh LIBRARY
set -euo pipefail
library="$1"
failed=0
complain() {
  echo "$library: $1" >&2
  failed=1
}

shown="$(nm --dynamic --defined-only --format=posix "$library" | cut -d' ' -f1)"
[[ "$(grep -c '^sparsertc_' <<<"$shown")" -ge 18 ]] || complain "lacks calls of sparsertc.h"
others="$(grep -v '^sparsertc_' <<<"$shown" || true)"
[[ -z "$others" ]] || complain "shows more than the C API: $others"

# Every call that the header declares is there.
header="$(dirname "${BASH_SOURCE[0]}")/../../runtime/include/sparsertc.h"
while read -r name; do
  grep -qx "$name" <<<"$shown" || complain "lacks $name"
done < <(grep -oE '\bsparsertc_[a-z_]+\(' "$header" | tr -d '(' | sort -u)

needed="$(readelf --dynamic "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')"
! grep -qiE 'llvm|cuda|nvrtc|nvJitLink' <<<"$needed" || complain "needs $needed"

stripped="$(mktemp)"
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$library"
bytes="$(stat -c %s "$stripped")"
echo "$bytes bytes stripped, $(wc -l <<<"$shown") calls, needs: ${needed//$'\n'/ }"
((bytes < 2000000)) || complain "$bytes bytes, the limit is 2 MB"
exit "$failed"

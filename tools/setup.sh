#!/usr/bin/env bash
# Installs what building and testing need on Debian 12: only what is missing, by apt-get, as root or
# through sudo. Does nothing (and needs no rights) when everything is there.
#
#   bash tools/setup.sh            for building and for the demo
#   bash tools/setup.sh --tests    for the tests, too
#
# With SPARSERTC_SKIP_SETUP=1 it leaves the machine as it is.
set -euo pipefail

if [[ "${SPARSERTC_SKIP_SETUP:-0}" == 1 ]]; then
  exit 0
fi

packages=(cmake ninja-build g++ ccache
  llvm-22-dev llvm-22-tools libzstd-dev zlib1g-dev
  libfmt-dev libcli11-dev nlohmann-json3-dev
  libsuitesparse-dev libmetis-dev
  libopenblas0 libeigen3-dev
  python3)
case "${1:-}" in
'') ;;
--tests) packages+=(catch2 clang-14 libclang-rt-14-dev clang-format-14) ;;
*)
  echo "usage: bash tools/setup.sh [--tests]" >&2
  exit 2
  ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  cat >&2 <<EOF
setup: this is not a Debian system, so nothing was installed. Needed are CMake >= 3.25, Ninja, a
C++20 compiler and what these Debian 12 packages contain:
  ${packages[*]}
Install them your own way and set SPARSERTC_SKIP_SETUP=1.
EOF
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status="$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)"
  [[ "$status" == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    cat >&2 <<EOF
setup: these packages are missing, and installing them needs root (sudo was not found):
  ${missing[*]}
Install them as root:  apt-get update && apt-get install ${missing[*]}
or, if you have them from elsewhere, set SPARSERTC_SKIP_SETUP=1.
EOF
    exit 1
  fi
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}" >&2
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
  apt-get install -y --no-install-recommends "${missing[@]}")
if ! { "${as_root[@]}" apt-get update && "${install[@]}"; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  cat >&2 <<EOF
setup: apt-get could not install everything (its last words are above). LLVM 22 comes from Debian
12's security suite: see that /etc/apt lists it (bookworm-security main).
EOF
  exit 1
fi

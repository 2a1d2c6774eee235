#!/usr/bin/env bash
# Makes a folder to be carried to a bare x86-64 machine with a GPU: run.sh and an archive with the
# test program and the command (LLVM linked in, stripped), the runtime library with the example
# engines, and test data.
#
#   bash tests/gpu/pack.sh FOLDER [--build BUILD] [--data DATA]
#
# --build BUILD   the folder of a portable build (preset `portable`); else build/portable. It is
#                 configured with the tests and built.
# --data DATA     the big test data (dlmc/, weights/, lu/ and power/ are taken); else SPARSERTC_DATA,
#                 else none
#
# There: bash FOLDER/run.sh tests, bash FOLDER/bench.sh times beside cuBLAS and cuSPARSE,
# bash FOLDER/bench_decode.sh products of few columns, cold,
# bash FOLDER/bench_tables.sh every strategy by level of zeros,
# bash FOLDER/bench_conv.sh convolutions beside cuDNN (through PyTorch, where that is there),
# bash FOLDER/bench_lu.sh beside KLU, where its library is on this machine (it is carried along),
# bash FOLDER/bench_lu_symbolic.sh patterns and levels beside the CPU's methods.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"

limit_mib=60
folder=""
build="$root/build/portable"
data="${SPARSERTC_DATA:-}"
while (($# > 0)); do
  case "$1" in
    --build) build="${2:?--build needs a folder}"; shift ;;
    --data) data="${2:?--data needs a folder}"; shift ;;
    -*) echo "pack.sh: unknown option $1" >&2; exit 2 ;;
    *) folder="$1" ;;
  esac
  shift
done
if [[ -z "$folder" ]]; then
  echo "usage: bash tests/gpu/pack.sh FOLDER [--build BUILD] [--data DATA]" >&2
  exit 2
fi

cmake -S "$root" --preset portable -B "$build" -DSPARSERTC_TESTS=ON >/dev/null
targets=(gpu_tests bench_lu_gpu bench_lu_batch_gpu bench_lu_symbolic_gpu bench_newton_gpu)
# What this tree does not build is left out.
known="$(cmake --build "$build" --target help)"
for target in sparsertc engine engine_network engine_tune lu_batch lu_engine; do
  if grep -q "^$target:" <<<"$known"; then
    targets+=("$target")
  fi
done
cmake --build "$build" --target "${targets[@]}" --parallel

stage="$(mktemp -d)"
trap 'rm -rf "$stage"' EXIT
files=("${targets[@]}")
if [[ " ${targets[*]} " == *" engine "* ]]; then
  files+=(libsparsertc_runtime.so libsparsertc.so)
  cp "$root/tools/examples/engine.py" "$root/tools/examples/mobilenet.py" \
    "$root/tests/gpu/examples.sh" "$stage/"
fi
for target in "${files[@]}"; do
  file="$(find "$build" -type f -name "$target" -perm -u+x -print -quit)"
  strip -o "$stage/$target" "$file"
done
cp "$build"/tools/libmetis.so.* "$stage/" # the command finds it in its own folder
cp -r "$root/tests/data/demo_layer.npy.gz" "$root/tests/data/network" "$stage/"
cp "$root/tests/data/grid7.m" "$root/tools/examples/power_flow/F.cu" "$stage/"
# KLU is a shared library beside the program (LGPL), opened at run time.
for library in libklu.so.1 libbtf.so.1 libcolamd.so.2 libamd.so.2 libsuitesparseconfig.so.5; do
  path="$(ldconfig -p | sed -n "s|.*[[:space:]]$library .*=> ||p" | head -n 1)"
  if [[ -n "$path" ]]; then
    cp -L "$path" "$stage/$library"
  else
    echo "no $library: bench_lu.sh will not compare with KLU"
  fi
done
if [[ -n "$data" ]]; then
  mkdir "$stage/data"
  cp -r "$data/dlmc" "$data/dlmc.csv" "$data/weights" "$data/lu" "$data/power" "$stage/data/"
  python3 "$root/tests/performance/gpu_set.py" "$data" >"$stage/gpu_set.csv"
  python3 "$root/tests/performance/gpu_conv_set.py" "$data" >"$stage/gpu_conv_set.csv"
else
  echo "no test data: SPARSERTC_DATA is not set; the real layers will be skipped"
fi

mkdir -p "$folder"
for file in run.sh bench.sh bench_decode.sh bench_tables.sh bench_conv.sh bench_conv.py bench_lu.sh bench_lu_symbolic.sh; do
  cp "$root/tests/gpu/$file" "$folder/"
done
# LLVM is in both programs: one behind the other, in one window, with addresses that do not depend on
# where the calls stand, the second costs little. Packed so the archive is a third smaller.
mapfile -t others < <(cd "$stage" && ls -A | grep -vxE "gpu_tests|sparsertc")
tar -cf - --sort=name --owner=0 --group=0 --mtime=@0 -C "$stage" gpu_tests sparsertc "${others[@]}" |
  xz -T1 --x86 --lzma2=preset=6,dict=128MiB >"$folder/sparsertc-gpu.tar.xz"
mib=$(($(du -sm "$folder" | cut -f1)))
echo "$folder: $mib MiB; run there: bash run.sh"
if ((mib > limit_mib)); then
  echo "pack.sh: $mib MiB are more than $limit_mib" >&2
  exit 1
fi

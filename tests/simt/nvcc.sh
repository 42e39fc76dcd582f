#!/usr/bin/env bash
# nvcc.sh -- every kernel, the lab's too, compiles for each architecture with
# warnings as errors.
#
# usage: nvcc.sh ROOT [JOBS]
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
cd "$1"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

compile() {
    nvcc -std=c++17 -Icapture/backend -Icapture/cuda -Ibase \
        -Werror all-warnings -Xcompiler -Wall,-Wextra \
        -gencode arch=compute_80,code=sm_80 \
        -gencode arch=compute_90,code=sm_90 \
        -gencode "arch=compute_100,code=[sm_100,compute_100]" \
        -c "$1" -o "$2/$(basename "$1").o" || exit 255
}
export -f compile
printf '%s\n' capture/cuda/*.cu capture/cuda/lab/*.cu |
    xargs -P "${2:-2}" -I{} bash -c 'compile "$1" "$2"' - {} "$out"

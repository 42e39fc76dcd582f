#!/usr/bin/env bash
# configure.sh SOURCE -- what the configuration says where there is no toolkit:
# AUTO goes on, ON is an error with the remedy, another word is refused.
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CUDACXX=/nowhere/nvcc

# expect CODE TEXT KVR_CUDA
expect() {
    local code=0
    cmake -S "$source" -B "$work/$3" -DKVR_TESTS=OFF "-DKVR_CUDA=$3" \
        >"$work/said" 2>&1 || code=1
    if [ $code -ne "$1" ] ||
        ! tr -s ' \n' ' ' <"$work/said" | grep -q "$2"; then
        cat "$work/said" >&2
        echo "KVR_CUDA=$3: exit $code, expected $1 with '$2'" >&2
        exit 1
    fi
}
expect 0 "no nvcc that works: no module is built" AUTO
expect 1 "no nvcc that works. Install the CUDA toolkit" ON
expect 0 "off (KVR_CUDA=OFF)" OFF
expect 1 "expected AUTO, ON or OFF" MAYBE
echo "configure: each case is said"

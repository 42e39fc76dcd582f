#!/usr/bin/env bash
# kernels.sh -- kernels read the same for nvcc and for the emulation: no
# #if in them, launches and shared memory in one place each.
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"

# grep fails where it finds nothing, which is what is hoped for here
seek() { grep "$@" || true; }

{
    # shellcheck disable=SC2046
    seek -nHE '^[[:space:]]*#[[:space:]]*(if|elif|else)' \
        $(sources .cu .cuh | grep -v '/launch\.cuh$') |
        seek -v '#ifndef KVR_[A-Z_]*_CUH' | sed 's/$/ : only in launch.cuh/'
    # shellcheck disable=SC2046
    seek -nHE '<<<' $(sources .cu .cuh | grep -v '/launch\.cuh$') |
        sed 's/$/ : only in launch.cuh/'
    # shellcheck disable=SC2046
    seek -nHE '__shared__' $(sources .cu .cuh | grep -v '/device\.cuh$') |
        sed 's/$/ : only in device.cuh/'
    # shellcheck disable=SC2046
    seek -nHE '\<__(exp|log|sin|cos|tan|pow|fdivide|frcp|fsqrt)[a-z0-9]*\(' \
        $(sources .cu .cuh) | sed 's/$/ : not exact enough/'
} | verdict "kernels: as nvcc and the emulation both read them"

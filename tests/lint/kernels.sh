#!/usr/bin/env bash
# kernels.sh -- kernels read the same for nvcc and for the emulation: no
# #if in them, launches and shared memory in one place each.
# SPDX-License-Identifier: GPL-3.0-or-later
. "$(dirname "$0")/lint.sh" "$1"

# complain PATTERN EXCEPT WHY: lines of kernels, but for the file EXCEPT.
complain() {
    local found
    # shellcheck disable=SC2046
    found=$(grep -nHE "$1" $(sources .cu .cuh | grep -v "/$2\$") || true)
    [ -z "$found" ] || sed "s/\$/ : $3/" <<<"$found"
}

{
    complain '^[[:space:]]*#[[:space:]]*(if|elif|else|ifdef)\>' \
        launch.cuh 'only in launch.cuh'
    complain '<<<' launch.cuh 'only in launch.cuh'
    complain '__shared__' device.cuh 'only in device.cuh'
    complain '\<__(exp|log|sin|cos|tan|pow|fdivide|frcp|fsqrt)[a-z0-9]*\(' \
        none 'not exact enough'
} | verdict "kernels: as nvcc and the emulation both read them"

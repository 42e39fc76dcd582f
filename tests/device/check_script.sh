#!/usr/bin/env bash
# check_script.sh SOURCE BUILD -- what of check.sh can be tested without a
# device: that it says so, and that its measuring program runs.
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bash -n "$source/tests/device/check.sh"
bash -n "$source/tests/device/carry.sh"
if ! command -v nvidia-smi >/dev/null; then
    code=0
    bash "$source/tests/device/check.sh" 2>"$work/said" || code=$?
    [ $code -eq 3 ] || { echo "exit $code, expected 3" >&2; exit 1; }
    grep -q 'no NVIDIA device' "$work/said"
fi
if [ -z "${KVREPLAY_CUDA_MODULE:-}" ]; then
    echo "skipped: no emulated device"
    exit 77
fi
# The bounds are for a device: exit 1 is fine, the figures must be there.
code=0
"$build/tests/kvr_device_bench" "$work" tiny 40 8 bf16 >"$work/figures" ||
    code=$?
[ $code -le 1 ] || { echo "the bench: exit $code" >&2; exit 1; }
n=$(grep -c '^{"figure": ".*}$' "$work/figures")
cat "$work/figures"
[ "$n" -eq 13 ] || { echo "$n figures, expected 13" >&2; exit 1; }
grep -q '"decode, attention / not recorded".*"bound": 0.6, "pass"' \
    "$work/figures"
grep -q '"value": "bf16 products' "$work/figures"
[ ! -e "$work/bench.kvt.h5.part" ]

#!/usr/bin/env bash
# check.sh -- everything that needs a real device, in at most 8 minutes on one
# H200: builds, the golden data on the device, compute-sanitizer on a tiny
# model, then what recording costs. One JSON line a figure on standard output,
# talk on standard error; exit 0 all pass, 1 a bound is missed, 3 no device.
#
# usage: check.sh [MODEL.gguf]     (default: SmolLM2 where ./run model put it)
#
# From a bare machine with the toolkit. What it lacks is installed with apt, or
# from build-carry/*.deb where there is no network (carry.sh fills that).
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
cd "$(dirname "$0")/../.."
started=$SECONDS
limit=${KVR_DEVICE_SECONDS:-480}
build=build-device
failed=0

say() { printf '%s\n' "check.sh [$((SECONDS - started)) s]: $*" >&2; }
# line NAME PASS [DETAIL]
line() {
    printf '{"figure": "%s", "pass": %s, "detail": "%s"}\n' "$1" "$2" "${3:-}"
    [ "$2" != false ] || failed=1
}
left() { echo $((limit - (SECONDS - started))); }
# check NAME COMMAND..: a JSON line; what was said only where it failed.
check() {
    local name=$1 log
    shift
    log=$(mktemp)
    if [ "$(left)" -le 10 ]; then
        line "$name" null "no time left"
    elif timeout "$(left)" "$@" >"$log" 2>&1; then
        line "$name" true
    elif [ $? -eq 77 ]; then
        line "$name" null "skipped"
    else
        tail -n 30 "$log" >&2
        line "$name" false
    fi
    rm -f "$log"
}

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1 ||
    [ -z "$(nvidia-smi -L)" ]; then
    say "there is no NVIDIA device here: nothing was measured"
    exit 3
fi
device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader |
    head -n 1)
say "on $device"
printf '{"device": "%s", "date": "%s"}\n' "$device" "$(date -u +%F)"

if ls build-carry/*.deb >/dev/null 2>&1; then
    dpkg -i build-carry/*.deb >/dev/null 2>&1 || say "some packages are missing"
else
    ./run setup >&2 || say "./run setup failed: building with what there is"
fi
export PATH=$PATH:/usr/local/cuda/bin
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader |
    head -n 1 | tr -d .)
say "building for $arch"
cmake -S . -B $build -DKVR_CUDA=ON -DKVR_WERROR=ON \
    -DKVR_CUDA_ARCHITECTURES="$arch" >/dev/null || exit 4
cmake --build $build -j "$(nproc)" --target kvreplay kvr_cuda \
    kvr_device_bench check_tiny check_gguf_golden check_capture \
    check_capture_store check_decoder_smollm2 >/dev/null || exit 4
line build true

model=${1:-}
if [ -z "$model" ]; then
    for file in build-carry/*.gguf \
        "${KVREPLAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvreplay}"/*.gguf; do
        [ -f "$file" ] && model=$file && break
    done
fi
# One process per suite: CUDA does not survive a fork.
export KVR_TEST_BACKEND=cuda CK_FORK=no KVREPLAY_MODEL=$model
export KVREPLAY_CUDA_MODULE=$PWD/$build/kvr_cuda.so
check "golden: tiny models" $build/tests/check_tiny
check "golden: quantised files" $build/tests/check_gguf_golden
check "captures" $build/tests/check_capture
check "captures of queries and keys" $build/tests/check_capture_store
if [ -n "$model" ]; then
    check "golden: SmolLM2" $build/tests/check_decoder_smollm2
else
    line "golden: SmolLM2" null "no model was carried"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sanitizer=$(command -v compute-sanitizer || true)
for tool in memcheck racecheck; do
    if [ -z "$sanitizer" ]; then
        line "compute-sanitizer $tool" null "not installed"
        continue
    fi
    for store in attention qk; do
        check "compute-sanitizer $tool, $store" "$sanitizer" --tool $tool \
            --error-exitcode 9 $build/kvreplay capture --backend cuda --force \
            -m tests/awkward/gguf_ok_tiny.gguf -p "a few words to read" -n 3 \
            --store $store --prompt-chunk 5 -o "$work/tiny.kvt.h5"
    done
done

# bench NAME ARGUMENTS..: its figures, tagged.
bench() {
    local name=$1
    shift
    if [ "$(left)" -le 30 ]; then
        line "$name" null "no time left"
        return 0
    fi
    say "measuring: $name"
    local code=0
    timeout "$(left)" $build/tests/kvr_device_bench "$work" "$@" \
        >"$work/figures" || code=$?
    sed "s/^{/{\"model\": \"$name\", /" "$work/figures"
    ! grep -q '"pass": false' "$work/figures" || failed=1
    case $code in
    0 | 1) ;;
    124) line "$name" null "no time left for all figures" ;;
    *) line "$name: the run" false "exit $code" ;;
    esac
    rm -f "$work"/*
}
bench "llama 7B, random" 7b 2048 128
if [ -n "$model" ]; then
    bench SmolLM2-135M tiny 2048 128 auto "$model"
else
    line "SmolLM2-135M" null "no model was carried"
fi
bench "llama 7B, random, bf16" 7b 2048 128 bf16
say "done"
exit $failed

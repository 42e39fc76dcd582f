#!/usr/bin/env bash
# bench.sh [TRACE] -- called by ./run bench: a trace of SmolLM2's size (or the
# given one) through tests/bench/bench.c, and through numpy where it is there;
# then capture against transformers, where they and the model are there.
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
cmake -S . -B build -DKVR_TESTS=ON >/dev/null
cmake --build build --target kvreplay kvr_bench -j "$(nproc)" >/dev/null
trace=${1:-}
if [ -z "$trace" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    trace=$folder/bench.kvt.h5
    build/kvreplay trace synth -q --kind zipf -T 1024 --layers 30 --heads 9 \
        --kv-heads 3 --seed 1 --prompt-len 256 -o "$trace"
fi
build/tests/kvr_bench "$trace"
if python3 -c 'import numpy, h5py' 2>/dev/null; then
    python3 tests/bench/peer_numpy.py build/kvreplay "$trace"
else
    echo "numpy and h5py are not here: the numpy opponent is left out" >&2
fi
model=${KVREPLAY_MODEL:-$(sh capture/get_model.sh --cached || true)}
if [ -z "$model" ]; then
    echo "no model (./run model gets it): capture is left out" >&2
elif python3 -c 'import torch, transformers, accelerate, gguf, h5py' \
    2>/dev/null; then
    python3 tests/bench/peer_transformers.py build/kvreplay "$model"
else
    echo "torch, transformers, accelerate, gguf, h5py: not all are here:" \
        "capture against transformers is left out" >&2
fi

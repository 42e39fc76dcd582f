#!/usr/bin/env bash
# demo.sh [DIR] -- from a real model to a table of what each rule loses.
# Called by ./run demo in the project's root; writes to demo-out/.
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail

out=${1:-demo-out}
kv=build/kvreplay
policies=h2o,lru,lfu,oracle,submodular-greedy
baselines=full,window,random,streaming-llm,tova,greedy-future,topk
budgets=5%,10%,20%,40%

say() { printf '\n== %s\n' "$*"; }

./run build
mkdir -p "$out"
rm -f "$out"/{demo,greedy}.kvt.h5{,.part} \
    "$out"/{replay,gap,sparsity,powerlaw}.{json,csv,txt} "$out/summary.txt"

model=$(./run model || true)
if [ -n "$model" ]; then
    say "capture: SmolLM2-135M-Instruct reads a text; every head is recorded"
    "$kv" capture -m "$model" --text traces/samples/harbour.txt \
        --prompt-len 192 -o "$out/demo.kvt.h5"
    say "capture: and writes a little of its own, greedily"
    "$kv" capture -m "$model" -p "The harbour master kept two books." \
        -n 48 --ignore-eos -o "$out/greedy.kvt.h5"
    trace=$out/demo.kvt.h5
else
    say "the model could not be had: the shipped trace stands in for it"
    trace=traces/samples/smollm2-harbour.kvt.h5
fi

say "replay: what each rule loses, at 5, 10, 20 and 40 % of the tokens"
"$kv" replay "$trace" -p "$policies" -p "$baselines" -b "$budgets" \
    --save "$out/replay.json" --save "$out/replay.csv" |
    tee "$out/replay.txt"

say "gap: how much of that was avoidable"
"$kv" gap -q "$trace" -p "$policies" -p streaming-llm,tova -b "$budgets" \
    --save "$out/gap.json" --save "$out/gap.csv" | tee "$out/gap.txt"

"$kv" sparsity -q "$trace" --save "$out/sparsity.json" >"$out/sparsity.txt"
"$kv" powerlaw -q "$trace" --save "$out/powerlaw.json" \
    --save "$out/powerlaw.csv" >"$out/powerlaw.txt" 2>"$out/powerlaw.log" ||
    cat "$out/powerlaw.log" >&2
rm -f "$out/powerlaw.log"

bash tests/demo/summary.sh "$out" "$trace" | tee "$out/summary.txt"

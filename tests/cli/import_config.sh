#!/usr/bin/env bash
# import_config.sh -- trace import --config: which layers get a window, as
# transformers makes layer_types of the same configuration.
#
# usage: import_config.sh PROGRAM
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
bad=0

# 30 layers of one head, rows (1, 0) and (1/2, 1/2).
make_npy() {
    local header="{'descr': '<f4', 'fortran_order': False, \
'shape': (30, 1, 2, 2), }" l
    printf '\x93NUMPY\x01\x00\x76\x00%s%*s\n' "$header" \
        $((118 - ${#header} - 1)) ''
    for ((l = 0; l < 30; l++)); do
        printf '\x00\x00\x80\x3f\x00\x00\x00\x00'
        printf '\x00\x00\x00\x3f\x00\x00\x00\x3f'
    done
}
make_npy >a.npy

# spans CONFIG: those of the 30 layers, or what the refusal says.
spans() {
    printf '%s' "$1" >c.json
    rm -f o.kvt.h5
    if "$program" trace import a.npy --axes lhqk --prompt-len 1 -q \
        --config c.json -o o.kvt.h5 2>said; then
        "$program" trace info o.kvt.h5 --format json |
            sed -n 's/.*"span": \([0-9]*\).*/\1/p' | tr '\n' ' '
    else
        echo "exit $?: $(cat said)"
    fi
}

expect() {
    local got
    got=$(spans "$1")
    # shellcheck disable=SC2053
    if [[ "$got" != $2 ]]; then
        printf '%s\n  gives    %s\n  expected %s\n' "$1" "$got" "$2"
        bad=1
    fi
}

# every FROM PERIOD: layers from FROM on see 9, each PERIOD-th all (0: none).
every() {
    local l
    for ((l = 0; l < 30; l++)); do
        if ((l < $1 || ($2 > 0 && (l + 1) % $2 == 0))); then
            printf '0 '
        else
            printf '9 '
        fi
    done
}

layers='"num_hidden_layers": 30'
w='"sliding_window": 9'
expect "{$layers}" "$(every 30 0)"
expect "{$layers, \"sliding_window\": null}" "$(every 30 0)"
expect "{$layers, $w, \"model_type\": \"mistral\"}" "$(every 0 0)"
expect "{$layers, $w, \"use_sliding_window\": false}" "$(every 30 0)"
expect "{$layers, $w, \"model_type\": \"qwen2\"}" "$(every 30 0)"
expect "{$layers, $w, \"model_type\": \"qwen2\", \
\"use_sliding_window\": true}" \
    "$(every 28 0)"
expect "{$layers, $w, \"model_type\": \"qwen3\", \"use_sliding_window\": true, \
\"max_window_layers\": 3}" "$(every 3 0)"
expect "{$layers, $w, \"model_type\": \"gemma2\"}" "$(every 0 2)"
expect "{$layers, $w, \"model_type\": \"gemma3_text\"}" "$(every 0 6)"
expect "{\"model_type\": \"gemma3\", \"text_config\": {$layers, $w, \
\"model_type\": \"gemma3_text\", \"sliding_window_pattern\": 5}}" "$(every 0 5)"
expect "{$layers, $w, \"_sliding_window_pattern\": 4}" "$(every 0 4)"
full='"full_attention"' slides='"sliding_attention"'
types=$slides
for ((l = 1; l < 30; l++)); do
    if ((l % 3 == 0)); then types+=", $slides"; else types+=", $full"; fi
done
expect "{$layers, $w, \"layer_types\": [$types]}" \
    "9 0 0 9 0 0 9 0 0 9 0 0 9 0 0 9 0 0 9 0 0 9 0 0 9 0 0 9 0 0 "
expect "{$layers, \"layer_types\": [$types]}" "exit 3: *no sliding_window*"
expect "{$layers, $w, \"layer_types\": [$slides]}" "exit 3: *1 entries*30*"
expect "{$layers, $w, \"layer_types\": [${types/sliding/linear}]}" \
    "exit 3: *linear_attention*"
expect "{$layers, $w, \"_sliding_window_pattern\": 4, \
\"sliding_window_pattern\": 5}" "exit 3: *is 5*is 4*"
expect "{$layers, \"sliding_window\": -1}" "exit 3: *sliding_window is -1*"
expect "{$layers, \"sliding_window\": \"9\"}" "exit 3: *is \"9\"*"
expect "{$layers, \"sliding_window\": 1}" \
    "exit 3: *layer 0 head 0 row 1 key 0: weight outside of the window*"
expect "{\"num_hidden_layers\": 20, $w}" "exit 3: *layer 20*has 20 layers*"
expect "{$w}" "exit 3: *num_hidden_layers is 0*"
expect "{$layers, \"attention_chunk_size\": 8}" "exit 3: *attention_chunk_size*"
expect "[]" "exit 3: *not a JSON object*"
expect "{" "exit 3: *not JSON*line 1*"
code=0
"$program" trace import a.npy --axes lhqk --prompt-len 1 --window 3 \
    --config c.json -o o.kvt.h5 2>said || code=$?
[ "$code" = 2 ] || { echo "--window with --config: exit $code"; bad=1; }
printf '{%s, "num_key_value_heads": 3}' "$layers" >c.json
code=0
"$program" trace import a.npy --axes lhqk --prompt-len 1 --n-kv-head 1 \
    --config c.json -o o.kvt.h5 2>said || code=$?
[ "$code" = 2 ] || { echo "--n-kv-head against --config: exit $code"; bad=1; }
exit "$bad"

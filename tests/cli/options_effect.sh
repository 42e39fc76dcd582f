#!/usr/bin/env bash
# options_effect.sh -- every option of every command has an effect, or is
# refused. Each one that --help prints stands in the table below with a value;
# the command's output with it must differ from that without.
#
# usage: options_effect.sh PROGRAM SOURCE PLUGIN
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
program=$1 source=$2 plugin=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$source/traces/samples/smollm2-harbour.kvt.h5" "$work/t.kvt.h5"
cp "$source/tests/golden/gguf/q8_0.gguf" "$work/m.gguf"
cp "$plugin" "$work/p.so"
echo "5 6 7 8 9 10 11 12" >"$work/ids.txt"
printf '%s\n' 1.5 2.25 3.5 4 6 9 11 30 0.75 >"$work/v.txt"
seq 1 1 40 >>"$work/v.txt"
cd "$work"
export SOURCE_DATE_EPOCH=0 # two runs a second apart are the same
"$program" trace synth -T 70 --heads 4 --kv-heads 2 --no-provenance -q \
    -o s.kvt.h5
"$program" trace synth -T 70 --heads 4 --kv-heads 2 --no-provenance -q \
    --seed 5 -o exists.kvt.h5
bad=0

# Arguments of the plain run of a command.
plain() {
    case $1 in
    replay | gap)
        echo "$1 s.kvt.h5 -p h2o,lru,random,tova,topk -b 20 --layers 0-1" \
            "--format csv" ;;
    sparsity) echo "$1 s.kvt.h5 --format csv" ;;
    powerlaw) echo "$1 s.kvt.h5 --format csv" ;;
    policies) echo "$1 --format csv" ;;
    capture) echo "$1 -m m.gguf --ids ids.txt -n 3 --ignore-eos" \
        "--format json -o out.kvt.h5" ;;
    "trace info" | "trace check" | "trace show")
        echo "$1 t.kvt.h5 --format json" ;;
    "trace import") echo "$1 a.npy --axes lhqk --prompt-len 4 -o out.kvt.h5" ;;
    "trace synth") echo "$1 -T 50 --layers 1 --heads 2 -o out.kvt.h5" ;;
    "trace repair") echo "$1 j.part -o out.kvt.h5" ;;
    esac
}

# One array of two layers and heads, in pure shell: numpy's header, f4 rows
# that spread evenly over what they see, or see themselves only.
make_npy() {
    local n=12 header pad
    header="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, $n, $n), }"
    pad=$((118 - ${#header} - 1))
    printf '\x93NUMPY\x01\x00\x76\x00%s%*s\n' "$header" "$pad" ''
    local l t i
    # 1/(t+1) as little-endian f4, t = 0..11
    local words=(0000803f 0000003f abaaaa3e 0000803e cdcc4c3e abaa2a3e
        2549123e 0000003e 398ee33d cdcccc3d 8c2eba3d abaaaa3d)
    for l in 1 2 3 4; do
        for ((t = 0; t < n; t++)); do
            for ((i = 0; i < n; i++)); do
                if ((l % 2 == 0)); then
                    printf '%s' $((i == t ? 1 : 0)) | sed \
                        's/1/0000803f/; t; s/0/00000000/'
                elif ((i <= t)); then
                    printf '%s' "${words[t]}"
                else
                    printf 00000000
                fi
            done
        done
    done | sed 's/../\\x&/g' | xargs -0 printf '%b'
}
make_npy >a.npy
printf '{"num_hidden_layers": 2, "sliding_window": 12}' >c.json

# What a run prints and leaves behind, as one file.
observe() {
    local out=$1 code=0
    shift
    rm -f out.kvt.h5 out.kvt.h5.part made.* j.part
    cp "$source/tests/traces/journal_1.2.bin" j.part
    "$program" "$@" >said 2>&1 || code=$?
    {
        echo "exit $code"
        sed -e 's/[0-9.]* tokens\/s//g' -e '/_per_second/d' -e '/"command"/d' \
            -e 's/, [0-9]* MB of memory//' said
        for f in out.kvt.h5 made.*; do
            [ -e "$f" ] || continue
            echo "file $f"
            "$program" trace info --format json --no-provenance "$f" 2>&1 |
                grep -v '"options"' || true
            case $f in *.kvt.h5)
                "$program" trace show --format csv --no-provenance "$f" 2>&1
                "$program" trace show --format csv --no-provenance --head 1 \
                    "$f" 2>&1 || true ;;
            esac
        done
    } >"$out"
}

# command ; option and value ; what is expected:
#   differs (default), same (said why), or the exit status of a refusal
table() {
    local c
    for c in replay gap; do
        cat <<ROWS
$c;--policy window
$c;--budget 5
$c;--budget-of prompt -b 50%
$c;--budget-is floor --when every:2
$c;--when every:3
$c;--prefill stream
$c;--prompt-len 30
$c;--score-rows 50..60
$c;--observe raw
$c;--group max
$c;--access topm:3
$c;--ties newest
$c;--protect-first 4
$c;--protect-last 4
$c;--loss value
$c;--seeds 3
$c;--evictions made.csv
$c;--steps made.csv
$c;--plugin p.so -p mass
$c;--threads 1;same
$c;--memory 10k;3
$c;--seed 7
$c;--format json
$c;--output made.txt
$c;--save made.json
$c;--layers 1
$c;--heads 1
$c;--layers nonsense;2
$c;--heads nonsense;2
$c;--layers 99;2
ROWS
    done
    cat <<'ROWS'
replay;--hit-scope prompt
replay;--bounds
gap;--hit-scope prompt;same
gap;--bounds;same
sparsity;--prompt-len 60
sparsity;--threads 1;same
sparsity;--memory 10k;3
sparsity;--format json
sparsity;--output made.csv
sparsity;--save made.json
sparsity;--layers 1
sparsity;--heads 2
sparsity;--layers x;2
powerlaw;--xmin 0.5
powerlaw;--min-tail 30
powerlaw;--min-points 90
powerlaw;--ks left-unique
powerlaw;--kind discrete;3
powerlaw;--rows decode
powerlaw;--per-row
powerlaw;--skip-first 4
powerlaw;--rows decode --prompt-len 60
powerlaw;--threads 1;same
powerlaw;--memory 10k;3
powerlaw;--format json
powerlaw;--output made.csv
powerlaw;--save made.json
powerlaw;--layers 1
powerlaw;--heads 2
powerlaw;--heads x;2
powerlaw;--values v.txt;2
policies;--plugin p.so
policies;--format json
policies;--output made.csv
policies;--save made.json
capture;--model nothing.gguf;3
capture;--prompt hello;2
capture;--file ids.txt;2
capture;--text ids.txt;2
capture;--generate 5
capture;--prompt-len 4
capture;--backend cuda;3
capture;--compute bf16;3
capture;--dtype f32
capture;--store both
capture;--with none
capture;--round-bits 4
capture;--temp 3
capture;--top-p 0.5;2
capture;--prompt-chunk 2
capture;--tokenizer nothing.json;3
capture;--chat;2
capture;--no-special;2
capture;--show-tokens
capture;--sync;same
capture;--dry-run
capture;--threads 1;same
capture;--memory 10k;3
capture;--temp 3 --seed 9
capture;--format csv
capture;--save made.json
capture;--layers 1
capture;--heads 0-1
capture;--layers x;2
trace info;--format csv
trace info;--output made.txt
trace info;--save made.json
trace info;--layers 1;2
trace check;--threads 1;same
trace check;--memory 10k;3
trace check;--format csv
trace check;--output made.txt
trace check;--save made.json
trace check;--heads 1;2
trace show;--layer 9
trace show;--head 2
trace show;--row 5
trace show;--top 2
trace show;--format csv
trace show;--output made.txt
trace show;--save made.json
trace show;--layers 1;2
trace import;--dataset x;2
trace import;--axes hlqk
trace import;--batch-item 1;2
trace import;--pad 2
trace import;--prompt-len 5
trace import;--n-kv-head 1
trace import;--dtype f16
trace import;--not-causal
trace import;--sink
trace import;--renormalise
trace import;--layers 1
trace import;--layers 7;2
trace import;--layers x;2
trace import;--heads 1
trace import;--heads 2;2
trace import;--window 12
trace import;--window 3;3
trace import;--config c.json
trace import;--config a.npy;3
trace import;--memory 10k;3
trace import;--output made.kvt.h5
trace import;--seed 3;2
trace synth;--kind zipf;same
trace synth;--tokens 60
trace synth;--layers 2
trace synth;--heads 4
trace synth;--kv-heads 1
trace synth;--prompt-len 9
trace synth;--dtype f32
trace synth;--round-bits 3
trace synth;--threads 1;same
trace synth;--memory 10k;3
trace synth;--seed 4
trace synth;--output made.kvt.h5
trace repair;--output made.kvt.h5
trace repair;--heads 1;2
ROWS
    for c in replay gap sparsity powerlaw policies "trace info" "trace check" \
        "trace show"; do
        echo "$c;--output exists.kvt.h5;3"
        echo "$c;--format json --no-provenance"
        echo "$c;--verbose;same"
    done
    for c in capture "trace import" "trace synth"; do
        echo "$c;--output exists.kvt.h5;3"
        echo "$c;--no-provenance"
    done
}

seen=" "
while IFS=';' read -r command option expected; do
    [ -n "$command" ] || continue
    read -ra first <<<"$(plain "$command")"
    read -ra more <<<"$option"
    observe without "${first[@]}"
    observe with "${first[@]}" "${more[@]}"
    for word in "${more[@]}"; do
        case $word in --*) seen="$seen$command$word " ;; esac
    done
    code=$(sed -n '1s/exit //p' with)
    case ${expected:-differs} in
    differs)
        if cmp -s without with; then
            echo "$command $option: no effect" >&2
            bad=1
        fi ;;
    same)
        if ! cmp -s without with; then
            echo "$command $option: an effect where there is to be none" >&2
            diff without with | head -5 >&2 || true
            bad=1
        fi ;;
    *)
        if [ "$code" != "$expected" ]; then
            echo "$command $option: exit $code, expected $expected" >&2
            sed -n 2,4p with >&2
            bad=1
        fi ;;
    esac
done < <(table)

# Nothing that --help prints is missing above.
for command in replay gap sparsity powerlaw policies capture "trace info" \
    "trace check" "trace show" "trace import" "trace synth" "trace repair"; do
    # shellcheck disable=SC2086
    for option in $("$program" $command --help |
        sed -nE 's/^  (    |-[A-Za-z], )(--[a-z-]+).*/\2/p'); do
        case $option in --help | --quiet | --verbose | --force) continue ;; esac
        case $seen in
        *" $command$option "* | *"$command$option "*) ;;
        *)
            case "$command $option" in
            "capture --ids" | "capture --ignore-eos" | "capture --output" | \
                *" --no-provenance") ;;
            *)
                echo "$command $option: not in the table" >&2
                bad=1 ;;
            esac ;;
        esac
    done
done
exit $bad

#!/usr/bin/env bash
# inject.sh -- the n-th malloc, read, write or sync of each command fails: it
# ends with what it would have said anyhow, or with exit 3 or 4, one message and
# no output; never with less and exit 0, never by a signal.
#
# usage: inject.sh PROGRAM SOURCE INJECT.SO; INJECT_POINTS: how many places of
# each kind are tried in each command (default 25).
# SPDX-License-Identifier: GPL-3.0-or-later
set -uo pipefail
program=$1 source=$2 library=$3
points=${INJECT_POINTS:-25}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$source/tests/awkward/gguf_ok_tiny.gguf" "$work/m.gguf"
cp "$source/tests/awkward/att_ok_f32.npy" "$work/a.npy"
cp "$source/tests/traces/journal_1.2.bin" "$work/j.bin"
cd "$work" || exit 1
echo "5 6 7 8 9 10 11 12" >ids.txt
"$program" trace synth -T 70 --layers 1 --heads 2 --kv-heads 1 \
    --no-provenance -q -o t.kvt.h5
seq 1 60 >v.txt
bad=0 tried=0

made=out.kvt.h5
commands=(
    "replay t.kvt.h5 -p h2o,lru,oracle -b 9,20 --threads 1 --format json"
    "gap t.kvt.h5 -p tova,topk -b 9 --threads 1 --format csv"
    "sparsity t.kvt.h5 --threads 1 --format json"
    "powerlaw t.kvt.h5 --threads 1"
    "powerlaw --values v.txt --format json"
    "policies --format json"
    "trace info t.kvt.h5 --format json"
    "trace check t.kvt.h5 --threads 1 --format json"
    "trace show t.kvt.h5 --format csv"
    "trace synth -T 40 --layers 1 --heads 2 --threads 1 -o out.kvt.h5"
    "trace import a.npy --axes lhqk --prompt-len 4 --n-kv-head 2 -o $made"
    "trace repair j.part -o out.kvt.h5"
    "capture -m m.gguf --ids ids.txt -n 2 --ignore-eos --threads 1 -o $made"
)

# run OUT COMMAND..: with INJECT as it stands.
run() {
    local out=$1
    shift
    rm -f out.kvt.h5 out.kvt.h5.part
    cp j.bin j.part
    # a file for each of the two: nothing may hide in the other
    timeout 20 env ${inject:+INJECT=$inject LD_PRELOAD=$library} \
        ${counted:+INJECT_COUNT=$counted} OPENBLAS_NUM_THREADS=1 \
        "$program" "$@" -q --no-provenance >"$out.out" 2>"$out.err"
    code=$?
    sed -i '/_per_second/d' "$out.out"
    case " $* " in
    " capture "*) : >"$out.out" ;; # its table has rates
    esac
    if [ -e out.kvt.h5 ]; then
        env -u LD_PRELOAD "$program" trace info out.kvt.h5 --format json \
            --no-provenance >>"$out.out" 2>&1
    fi
}

complain() {
    echo "$inject: $line: $*" >&2
    head -n 2 with.err >&2
    bad=1
}

for line in "${commands[@]}"; do
    read -ra words <<<"$line"
    inject='' counted=''
    run without "${words[@]}"
    [ $code -eq 0 ] || { echo "$line: exit $code" >&2; cat without.err >&2
        bad=1; continue; }
    for call in malloc pread read write fsync; do
        inject=$call:0 counted=$work/count
        run with "${words[@]}"
        counted=''
        n=$(cat "$work/count" 2>/dev/null || echo 0)
        [ "$n" -gt 0 ] || continue
        step=$((n > points ? n / points : 1))
        for ((i = 1; i <= n; i += step)); do
            inject=$call:$i
            run with "${words[@]}"
            tried=$((tried + 1))
            case $code in
            0)
                cmp -s without.out with.out ||
                    complain "exit 0, but other output" ;;
            3 | 4)
                [ -s with.err ] || complain "exit $code without a message"
                # a trace that is whole stays, though its report failed
                grep -q 'memory for the report' with.err && continue
                [ ! -e out.kvt.h5 ] || complain "exit $code and an output"
                case ${words[0]}${words[1]} in
                tracecheck | traceinfo) ;;
                *) [ ! -s with.out ] || complain "exit $code and a table" ;;
                esac ;;
            1)
                [ "${words[1]}" = check ] || complain "exit 1" ;;
            *) complain "exit $code" ;;
            esac
            case ${words[1]} in
            repair)
                [ -e j.part ] || complain "the journal is gone" ;;
            esac
        done
    done
done
echo "inject: $tried places"
exit $bad

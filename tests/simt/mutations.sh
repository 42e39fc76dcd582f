#!/usr/bin/env bash
# mutations.sh -- breaks the kernels one line at a time (mutations.txt, and
# every barrier) and demands that their checks fail.
#
# usage: mutations.sh ROOT BUILD daily|all CXX [FLAG ..]
# BUILD is a finished build without sanitizers.
# A mutant that survives fails the test, and so does one whose text is not in
# its file exactly once.
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
root=$1 build=$2 which=$3 cxx=$4
shift 4
here=$root/tests/simt
kernels=$root/capture/cuda
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CK_FORK=no
jobs=${KVR_MUTATION_JOBS:-2}

flags=(-std=c++17 -O1 -Wno-unknown-pragmas -ffp-contract=off "-I$here"
    "-I$here/include" "-I$root/tests/support" "-I$root/capture/backend"
    "-I$root/base" "$@")

# The kernels that a check needs, and those that a header is part of.
sources_of() {
    case $1 in
    attention) echo attention.cu attention_flash.cu attention_rows.cu \
        attention_step.cu lab/attention_rows_1.cu lab/attention_rows_2.cu ;;
    kernels) echo elementwise.cu embed.cu log_prob.cu norm.cu value_out.cu ;;
    expand) echo expand.cu ;;
    esac
}

users_of() {
    case $1:$2 in
    *.cu) echo "$2" ;;
    *attention_tiles.cuh) echo attention_flash.cu attention_rows.cu ;;
    *) sources_of "$1" ;;
    esac
}

# compile FOLDER SOURCE ..
compile() {
    local folder=$1 source
    shift
    for source in "$@"; do
        "$cxx" "${flags[@]}" "-I$folder" -x c++ -c "$folder/$source" \
            -o "$folder/${source//\//_}.o" || return 1
    done
}

# The mutated objects come first: the rest is from the build's archives.
link() { # CHECK FOLDER
    # shellcheck disable=SC2046
    "$cxx" "${flags[@]}" "$work/check_$1.o" \
        $(find "$2" -maxdepth 1 -name '*.cu.o') \
        "$build/tests/simt/libkvr_simt_kernels.a" \
        "$build/capture/libkvr_capture.a" "$build/base/libkvr_base.a" \
        -lcheck -lsubunit -lm -lrt -lpthread -o "$2/check"
}

copy_kernels() {
    mkdir -p "$1/lab"
    cp "$kernels"/*.cu "$kernels"/*.cuh "$1"
    cp "$kernels"/lab/* "$1/lab"
}

# Without a mutation the checks must pass; ctest has seen to it where a few
# mutants are tried only.
prepare() {
    local check
    mkdir "$work/good"
    for check in attention kernels expand; do
        "$cxx" "${flags[@]}" "-I$kernels" -include "$here/first_failure.h" \
            -c "$here/check_$check.cpp" -o "$work/check_$check.o"
        [ "$which" = all ] || continue
        link "$check" "$work/good"
        "$work/good/check" >/dev/null ||
            { echo "$check: fails without a mutation"; return 1; }
    done
}

# One mutation a folder, named by a number: `check`, `file`, `text` (what is
# wrong, for people) and the changed sources.
n=0
add() { # CHECK FILE WHAT TEXT
    local folder
    n=$((n + 1))
    folder=$work/$(printf '%03d' "$n")
    copy_kernels "$folder"
    printf '%s' "$4" >"$folder/$2"
    printf '%s\n' "$1" >"$folder/name.check"
    printf '%s\n' "$2" >"$folder/name.file"
    printf '%s\n' "$3" >"$folder/name.what"
}

# CHECK FILE FROM TO
add_replacement() {
    local text once
    text=$(cat "$kernels/$2" && echo .)
    text=${text%.}
    once=${text/"$3"/}
    if [ "$once" = "$text" ] || [ "${once/"$3"/}" != "$once" ]; then
        echo "$2: '$3' does not stand there exactly once"
        return 1
    fi
    add "$1" "$2" "$3" "${text/"$3"/"$4"}"
}

add_listed() {
    local line head=() from=''
    while IFS= read -r line; do
        case $line in
        '#'*) ;;
        '- '*) from=${line#- } ;;
        '+ '*)
            [ "$which" = all ] || [ "${head[0]}" = daily ] || continue
            add_replacement "${head[-2]}" "${head[-1]}" "$from" "${line#+ }"
            ;;
        *) read -ra head <<<"$line" ;;
        esac
    done <"$here/mutations.txt"
}

check_of() {
    case $1 in
    *attention*) echo attention ;;
    stored.cuh | expand.cu) echo expand ;;
    *) echo kernels ;;
    esac
}

add_barriers() {
    local at file line text
    while IFS=: read -r at line _; do
        file=${at#"$kernels"/}
        if [ "$which" = daily ]; then
            case $file in
            attention_tiles.cuh | device.cuh) ;;
            *) continue ;;
            esac
        fi
        text=$(sed "${line}s/__sync[a-z]*()/(void)0/" "$at" && echo .)
        add "$(check_of "$file")" "$file" "the barrier of line $line" \
            "${text%.}"
    done < <(grep -n '__syncthreads\|__syncwarp' "$kernels"/*.cu \
        "$kernels"/*.cuh "$kernels"/lab/*.cu)
}

# Whether a mutant dies: a crash and an endless loop count.
try() {
    local folder=$1 check file what
    check=$(cat "$folder/name.check")
    file=$(cat "$folder/name.file")
    what=$(cat "$folder/name.what")
    # shellcheck disable=SC2046
    if ! { compile "$folder" $(users_of "$check" "$file") &&
        link "$check" "$folder"; } 2>"$folder/log"; then
        echo "$file: $what: does not compile: $(head -n 1 "$folder/log")"
    elif timeout 120 "$folder/check" >/dev/null 2>&1; then
        echo "$file: $what: survives"
    fi
    rm -rf "$folder"
}

add_listed
add_barriers
prepare
running=0
for folder in "$work"/[0-9]*; do
    try "$folder" >>"$work/survivors" &
    running=$((running + 1))
    if [ "$running" -ge "$jobs" ]; then
        wait -n
        running=$((running - 1))
    fi
done
wait
if [ -s "$work/survivors" ]; then
    cat "$work/survivors" >&2
    exit 1
fi
echo "mutations: $n, all caught"

#!/usr/bin/env bash
# full.sh -- what is too slow for every day (./run test --full calls it after
# the sanitizer builds): memcheck, cppcheck, clang-tidy, long fuzz runs, many
# kill points. A tool that is missing is skipped with a line; a finding fails
# the script, but only after the other parts have run.
#
# usage: full.sh [JOBS [PART ..]]; parts: memcheck cppcheck tidy fuzz kills
# bytes inject mutants nvcc emulated clang
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-2}
[ $# -gt 0 ] && shift
rooms=(base policies traces sim analysis capture cli)
seen=(base policies traces traces/{format,hdf5,read,write,import}
    sim/{optimum,cache,replay} analysis capture
    capture/{backend,models,tokenizer,cpu} cli)
failed=()

say() { printf 'full: %s\n' "$*" >&2; }

have() {
    command -v "$1" >/dev/null && return 0
    say "skipped: no $1"
    return 1
}

# configure_build FOLDER OPTIONS ..
configure_build() {
    local folder=$1
    shift
    cmake -S . -B "$folder" -DKVR_TESTS=ON -DKVR_WERROR=ON "$@" >/dev/null
    cmake --build "$folder" -j "$jobs" -- --no-print-directory >/dev/null
}

# The other compiler: no warning, and the tests pass.
clang_part() {
    have clang || return 0
    configure_build build-clang -DCMAKE_C_COMPILER=clang || return 1
    (cd build-clang && ctest -j "$jobs" -L 'unit|tiny|golden' \
        --output-on-failure >ctest.log 2>&1) || {
        cat build-clang/ctest.log >&2
        return 1
    }
    say "clang: built, tests passed"
}

# Unit tests under valgrind. AVX-512 is unknown to it, and it runs a program
# thirty times slower: the suites with much arithmetic are left to the
# sanitizers.
memcheck_part() {
    have valgrind || return 0
    configure_build build-debug -DCMAKE_BUILD_TYPE=Debug \
        "-DCMAKE_C_FLAGS_DEBUG=-O1 -g -DKVR_WATCHED" || return 1
    local suite bad=0 n=0
    for suite in base trace journal damage import optimum sparsity \
        tokenizer capture cli; do
        local program=build-debug/tests/check_$suite
        [ -x "$program" ] || continue
        n=$((n + 1))
        CK_FORK=no OPENBLAS_CORETYPE=Haswell valgrind -q \
            --error-exitcode=9 --leak-check=full \
            --errors-for-leak-kinds=definite,indirect --num-callers=40 \
            --child-silent-after-fork=yes \
            --suppressions=tests/memcheck.supp "$program" \
            >build-debug/memcheck-"$suite".log 2>&1 || {
            [ $? -eq 77 ] && continue
            cat build-debug/memcheck-"$suite".log >&2
            bad=1
        }
        say "memcheck: $suite"
    done
    say "memcheck: $n suites"
    return $bad
}

cppcheck_part() {
    have cppcheck || return 0
    cppcheck --enable=warning,performance,portability --std=c11 -q \
        -j "$jobs" '-Djson_object_foreach(o,k,v)=while (next(o, &k, &v))' \
        --error-exitcode=9 --suppressions-list=tests/cppcheck.txt \
        "${seen[@]/#/-I}" \
        "${rooms[@]}" || return 1
    say "cppcheck: nothing found"
}

tidy_part() {
    have clang-tidy || return 0
    [ -d build-debug ] ||
        configure_build build-debug -DCMAKE_BUILD_TYPE=Debug || return 1
    local checks
    checks=-*,$(grep -v '^#' tests/clang_tidy.txt | tr '\n' ',')
    # isa.c asks gcc's __builtin_cpu_supports for names that clang lacks.
    find "${rooms[@]}" -name '*.c' -not -name isa.c -print0 |
        xargs -0 -P "$jobs" -n 1 clang-tidy -p build-debug --quiet \
            --warnings-as-errors='*' --checks="$checks" 2>/dev/null || return 1
    say "clang-tidy: nothing found"
}

# The address sanitizer's build, with many more mutations.
fuzz_part() {
    configure_build build-asan -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DKVR_SANITIZE=address || return 1
    local rounds=${FUZZ_ROUNDS:-5000}
    # not through ctest, whose limits are for every day
    find build-asan/tests -maxdepth 1 -type f -name '*fuzz*' -perm -u+x \
        -print0 | FUZZ_ROUNDS=$rounds xargs -0 -P "$jobs" -n 1 timeout 7200 \
        >&2 || return 1
    say "fuzz: $rounds mutations of each file"
}

# One tile, one stream: as often as a fault of one tile in 10,000 needs.
bytes_part() {
    configure_build build-release || return 1
    CK_TIMEOUT_MULTIPLIER=10 KVR_CODEC_ROUNDS=3000 \
        build-release/tests/check_codec >&2 || return 1
    say "bytes: 3000 compressors, 96 tiles each"
}

# Every place where a call can fail, up to 600 of a kind in a command.
inject_part() {
    configure_build build-release || return 1
    local built=$PWD/build-release
    INJECT_POINTS=600 bash tests/inject/inject.sh "$built/kvreplay" "$PWD" \
        "$built/tests/kvr_inject.so" >&2 || return 1
    say "inject: every command survives a call that fails"
}

kills_part() {
    configure_build build-asan -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DKVR_SANITIZE=address || return 1
    local points=${KVR_KILL_POINTS:-600}
    (cd build-asan && KVR_KILL_POINTS=$points ctest --output-on-failure \
        -R '^(journal|capture)$' --timeout 3000) >&2 || return 1
    say "kills: $points places"
}

# Every mutation of a kernel; ctest runs a few of them.
mutants_part() {
    have g++ || return 0
    [ -d build-debug ] ||
        configure_build build-debug -DCMAKE_BUILD_TYPE=Debug || return 1
    KVR_MUTATION_JOBS=$jobs tests/simt/mutations.sh "$PWD" \
        "$PWD/build-debug" all g++ >&2
}

nvcc_part() {
    have nvcc || return 0
    tests/simt/nvcc.sh "$PWD" "$jobs" >&2 || return 1
    say "nvcc: every kernel compiles"
}

# All of the golden texts of the real model on the emulated device, every way.
emulated_part() {
    have g++ || return 0
    if [ -z "${KVREPLAY_MODEL:-}" ]; then
        say "skipped: no model"
        return 0
    fi
    configure_build build-emulated -DKVR_CUDA=OFF || return 1
    KVR_TEST_BACKEND=cuda \
        KVREPLAY_CUDA_MODULE=$PWD/build-emulated/tests/kvr_cuda_emulated.so \
        build-emulated/tests/check_decoder_smollm2 >&2
}

parts=(memcheck cppcheck tidy fuzz kills bytes inject mutants nvcc emulated
    clang)
[ $# -gt 0 ] && parts=("$@")
for part in "${parts[@]}"; do
    say "$part"
    "${part}_part" || failed+=("$part")
done
if [ ${#failed[@]} -gt 0 ]; then
    say "found something: ${failed[*]}"
    exit 1
fi
say "all parts are clean"

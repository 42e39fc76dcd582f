#!/usr/bin/env bash
# carry.sh -- fills build-carry/ with the packages that check.sh's build needs,
# for a machine without a network: those of ./run setup that it lacks.
#
# usage: carry.sh [MODEL.gguf]   run it on the same release of the system
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p build-carry
packages=$(sed -n '/^build_packages=(/,/)/p; /^test_packages=(/,/)/p' run |
    tr -d '()' | sed 's/^[a-z_]*=//')
# shellcheck disable=SC2086
needed=$(apt-get install --reinstall -y --print-uris $packages |
    sed -nE "s/^'[^']*' ([^ ]*\.deb) .*/\1/p" | sed 's/_.*//' | sort -u)
# shellcheck disable=SC2086
(cd build-carry && apt-get download $needed)
[ $# -eq 0 ] || cp -- "$1" build-carry/
du -sh build-carry

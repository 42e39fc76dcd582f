# lint.sh -- what the lint tests share; sourced with the root as $1.
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=bash
set -euo pipefail
export LC_ALL=C
cd "${1:?usage: $0 ROOT}"

# Source files whose names end in one of the arguments, generated and recorded
# data left out.
sources() {
    local names=(-false) end
    for end in "$@"; do
        names+=(-o -name "*$end")
    done
    find CMakeLists.txt run .ci cmake base policies traces sim analysis \
        capture cli tests -type f \( "${names[@]}" \) \
        -not -path 'tests/golden/*' -not -path 'tests/awkward/*' \
        -not -path 'tests/demo/demo-out/*' | sort
}

# Complaints come on standard input; any line is a failure.
verdict() {
    local complaints
    complaints=$(cat)
    if [ -n "$complaints" ]; then
        printf '%s\n' "$complaints" >&2
        exit 1
    fi
    echo "$1"
}

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

# Objects of the rooms as they are built now (not of their double builds): a
# folder that was built before may hold others.
objects() { # BUILD
    awk -F'"' '/"directory":/ { folder = $4 }
        /"command":/ && match($0, / -o [^ ]+\.c\.o /) {
            print folder "/" substr($0, RSTART + 4, RLENGTH - 5) }' \
        "$1/compile_commands.json" | sed "s@^$(realpath "$1")/@@" |
        grep -E '^(base|policies|traces|sim|analysis|capture|cli)/' |
        grep -vE '_double\.dir/|/examples/' | sort
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

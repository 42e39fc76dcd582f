# layout.awk -- lengths: of lines, functions and files; the licence line.
#
# A function starts with { in column 0 and ends with } in column 0, as
# clang-format lays it out.
# SPDX-License-Identifier: GPL-3.0-or-later
function end_of_file() {
    if (name == "")
        return
    if (!spdx) print name ": no SPDX-License-Identifier line"
    if (lines > 600) print name ": " lines " lines, at most 600"
}

FNR == 1 { end_of_file(); name = FILENAME; spdx = 0; start = 0 }
{ lines = FNR }
/SPDX-License-Identifier: GPL-3\.0-or-later/ { spdx = 1 }
{
    text = $0
    gsub(/[\200-\277]/, "", text) # a character counts once
    if (length(text) > 80)
        print FILENAME ":" FNR ": " length(text) " columns, at most 80"
}
/[ \t\r]$/ { print FILENAME ":" FNR ": white space at the end" }
FILENAME !~ /\.(c|h|cu|cuh|cpp)$/ { next }
/^[A-Za-z_].*\(/ { head = $0 }
/^\{$/ { start = FNR }
/^\}/ {
    if (start && FNR - start - 1 > 80) {
        sub(/\(.*/, "", head)
        sub(/.*[ *]/, "", head)
        print FILENAME ":" start ": " head " has " FNR - start - 1 \
            " lines, at most 80"
    }
    start = 0
}
END { end_of_file() }

# bans.awk -- banned functions, comments and literals left out.
# SPDX-License-Identifier: GPL-3.0-or-later
function find(words, why,    rest, at) {
    rest = code
    while (match(rest, "(^|[^A-Za-z0-9_])(" words ")[ ]*\\(")) {
        at = substr(rest, RSTART, RLENGTH)
        gsub(/[^A-Za-z0-9_]/, "", at)
        print FILENAME ":" FNR ": " at ": " why
        rest = substr(rest, RSTART + RLENGTH)
    }
}

# The line without literals and comments; in_comment goes from line to line.
function strip(text,    out, c, two, quote, i) {
    out = ""
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        two = substr(text, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i++ }
        } else if (quote != "") {
            if (c == "\\") i++
            else if (c == quote) quote = ""
        } else if (two == "/*") { in_comment = 1; i++; out = out " " }
        else if (two == "//") break
        else if (c == "\"" || c == "'") { quote = c; out = out " " }
        else out = out c
    }
    return out
}

FNR == 1 { in_comment = 0 }
{
    code = strip($0)
    find("v?sprintf|str(n?cpy|n?cat)|ato[ifl]|v?f?scanf|v?sscanf|gets|strtok" \
         "|s?rand|alloca|setlocale", "banned")
    if (FILENAME !~ /^(cli|tests)\//)
        find("v?printf|puts|putchar|perror|exit|quick_exit|abort",
             "the library never prints, exits or aborts")
    # a child process of the library's own ends with it
    if (FILENAME !~ /^(cli|tests)\/|^traces\/hdf5\/h5_(child|walk)\.c$/)
        find("_exit", "the library never exits")
    if (FILENAME ~ /^policies\// &&
        FILENAME !~ /\/(registry|spec)\.c$/)
        find("malloc|calloc|realloc|free|fopen|fprintf",
             "a rule has neither memory nor files of its own")
}

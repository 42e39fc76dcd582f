#!/usr/bin/env bash
# summary.sh DIR TRACE -- the demo's last screen, from the files in DIR.
# SPDX-License-Identifier: GPL-3.0-or-later
set -euo pipefail
out=$1 trace=$2

# Rows of a CSV as "name=value" records for awk; quoted commas become ';'.
csv() {
    awk -v OFS='\t' 'NR == 1 { n = split($0, name, ","); next }
    {
        line = $0
        while (match(line, /"[^"]*"/)) {
            cell = substr(line, RSTART + 1, RLENGTH - 2)
            gsub(/,/, ";", cell)
            line = substr(line, 1, RSTART - 1) cell \
                substr(line, RSTART + RLENGTH)
        }
        split(line, cell_, ",")
        for (i = 1; i <= n; i++) printf "%s=%s\t", name[i], cell_[i]
        print ""
    }' "$1"
}

pick='function get(key,  i, m) {
    for (i = 1; i <= NF; i++) {
        m = index($i, "=")
        if (substr($i, 1, m - 1) == key) return substr($i, m + 1)
    }
    return ""
}'

cat <<TEXT

================================================================
What was measured on $trace
================================================================

A cache that holds 20 % of the tokens loses, as a share of all attention
that the full-cache run paid in the decode steps:

TEXT
csv "$out/gap.csv" | awk -F '\t' "$pick"'
get("scope") == "model" && get("budget_spec") == "20%" &&
    get("class") == "online" {
    printf "  %-18s %6.2f %%   unavoidable %5.2f %%   avoidable %5.2f %%  " \
        "(%2.0f %% of its loss)\n", get("policy"), 100 * get("miss"),
        100 * get("oracle"), 100 * get("regret"), 100 * get("avoidable")
    o = 100 * get("oracle"); h = 100 * get("head_bound")
    s = 100 * get("sharing"); v = 100 * get("irrevocability")
}
END {
    printf "\nUnavoidable: the exact optimum loses %.2f %% itself. Of that\n", o
    printf "  %.2f %% because %s,\n", h,
        "the budget is small (each head choosing for itself)"
    printf "  %.2f %% because %s,\n", s, "query heads share one set"
    printf "  %.2f %% because %s.\n", v, "what was evicted does not come back"
}'
csv "$out/gap.csv" | awk -F '\t' "$pick"'
get("scope") == "model" && get("class") == "online" {
    b = get("budget_spec"); v = get("versus_verdict")
    if (v == "least") who[b] = get("spec") who[b]
    if (v == "cannot tell" || v == "equal") who[b] = who[b] " or " get("spec")
    if (!(b in seen)) { order[++n] = b; seen[b] = 1 }
}
END {
    printf "\nLeast loss of the online rules here"
    printf " (\"or\": this text cannot tell):"
    for (i = 1; i <= n; i++)
        printf "\n  %s: %s", order[i], who[order[i]]
    printf "\n"
}'
grep '^model' "$out/sparsity.txt" | awk '{
    printf "\nSparsity: %s of the causal entries are below 1 %% of their " \
        "row'"'"'s\nlargest (rows averaged); masked entries counted too it " \
        "would be %s.\n", $4, $6
}'
csv "$out/powerlaw.csv" | awk -F '\t' "$pick"'
get("alpha") != "" { n++; a[n] = get("alpha") + 0; f += get("tail_fraction") }
END {
    if (n == 0) exit
    for (i = 2; i <= n; i++) {
        x = a[i]
        for (j = i - 1; j > 0 && a[j] > x; j--) a[j + 1] = a[j]
        a[j + 1] = x
    }
    printf "Power law: accumulated attention of %d heads, tail exponent " \
        "alpha\n", n
    printf "  quartiles %.2f %.2f %.2f; the tail is %.0f %% of the tokens on " \
        "average.\n", a[int((n + 3) / 4)], a[int((n + 1) / 2)],
        a[int((3 * n + 3) / 4)], 100 * f / n
}'
cat <<TEXT

Read it so: replay is open loop. Rows are those of the full-cache run; after
an eviction a real model would have asked other questions. One text, one small
model: rankings change with both.

Files in $out/:
TEXT
(cd "$out" && find . -maxdepth 1 -type f | sort | while read -r f; do
    printf '  %-18s %s\n' "${f#./}" "$(du -h "$f" | cut -f1)"
done)
cat <<'TEXT'

Next: kvreplay help | kvreplay policies h2o | docs/manual.md
TEXT

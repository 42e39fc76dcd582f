# circles.awk -- circles of calls between files.
# Input: circles.txt, then lines FOLDER/FILE SYMBOL TYPE ..
# SPDX-License-Identifier: GPL-3.0-or-later
function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }

FILENAME ~ /circles\.txt$/ {
    if ($0 ~ /^#/) next
    split($0, part, /[ ]*\|[ ]*/)
    n = split(part[2], names, " ")
    for (i = 1; i <= n; i++)
        group[part[1] "/" names[i]] = part[1] "/" names[1]
    next
}

$3 ~ /^[TDBRVWC]$/ { owner[$2] = $1 }
{ files[$1] = 1 }
$3 == "U" { n_use++; user[n_use] = $1; used[n_use] = $2 }

# All that `from` reaches, step by step.
function spread(from, edges, reached,    n, queue, i, list, k, j) {
    queue[1] = from; n = 1
    for (i = 1; i <= n; i++) {
        k = split(edges[queue[i]], list, " ")
        for (j = 1; j <= k; j++)
            if (!((from, list[j]) in reached)) {
                reached[from, list[j]] = 1
                queue[++n] = list[j]
            }
    }
}

END {
    for (i = 1; i <= n_use; i++) {
        if (!(used[i] in owner) || owner[used[i]] == user[i])
            continue
        a = user[i]; b = owner[used[i]]
        if (!((a, b) in seen)) {
            seen[a, b] = 1
            calls[a] = calls[a] " " b
        }
        a = folder_of(a); b = folder_of(b)
        if (a != b && !((a, b) in near)) {
            near[a, b] = 1
            folders[a] = folders[a] " " b
        }
    }
    for (file in files) spread(file, calls, reached)
    for (folder in folders) spread(folder, folders, far)
    for (folder in folders)
        if ((folder, folder) in far)
            print folder ": stands in a circle of folders"
    for (pair in seen) {
        split(pair, end, SUBSEP)
        if (!((end[2], end[1]) in reached))
            continue
        if (!(end[1] in group) || group[end[1]] != group[end[2]])
            print end[1] " and " end[2] " call each other in a circle" \
                " (tests/lint/circles.txt)"
        else
            needed[group[end[1]]] = 1
    }
    for (file in group)
        if (!(group[file] in needed) && !(group[file] in told)) {
            told[group[file]] = 1
            print "tests/lint/circles.txt: " group[file] \
                " and those with it are in no circle any more"
        }
}

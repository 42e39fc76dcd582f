# includes.awk -- checks every #include against includes.txt.
# Input: includes.txt, then the output of `grep -n` as FILE:LINE:#include ...
# SPDX-License-Identifier: GPL-3.0-or-later
function basename_of(path) { sub(/.*\//, "", path); return path }
function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }

# The library that a system header belongs to; "" for the C standard's.
function library_of(header) {
    if (header in standard)
        return ""
    if (header ~ /^(hdf5|H5[A-Za-z]+)\.h$/) return "hdf5"
    if (header ~ /^gsl\//) return "gsl"
    if (header ~ /^(cuda|cublas|curand|nvrtc|cooperative_groups|mma)/)
        return "cuda"
    if (header ~ /^mpi\.h$/) return "mpi"
    if (header ~ /^Python\.h$/) return "python"
    if (header ~ /^(luajit-2\.[0-9]\/|lua|luajit|lauxlib|lualib)/)
        return "lua"
    if (header ~ /^jansson/) return "jansson"
    if (header ~ /^xxh/) return "xxhash"
    if (header ~ /^Random123\//) return "random123"
    if (header ~ /^libdeflate\.h$/) return "deflate"
    if (header ~ /^isa-l\//) return "isal"
    if (header ~ /^(cblas|openblas_config|lapacke)/) return "blas"
    if (header ~ /^pcre2/) return "pcre2"
    if (header ~ /^([a-z0-9]*intrin|cpuid)\.h$/) return "intrinsics"
    if (header ~ /^(pthread|threads|semaphore)\.h$/) return "threads"
    if (header ~ /^dlfcn\.h$/) return "dl"
    if (header ~ /^[a-z_]+$/) return "cpp"
    if (header ~ /^(sys\/|arpa\/)/ || header in posix) return "posix"
    return "unknown"
}

# The row of includes.txt for a file.
function row_of(file,    folder) {
    folder = folder_of(file)
    if (file ~ /^policies\/(examples\/)?[^\/]*\.c$/ &&
        !(basename_of(file) in house))
        return "rule"
    while (!(folder in rooms) && folder ~ /\//)
        folder = folder_of(folder)
    return folder
}

function complain(what) {
    print file ":" line ": " what " (tests/lint/includes.txt, " row ")"
}

# A row sees what lies below it: the folders that it names come before it.
function check_order(row, seen,    list, n, i) {
    n = split(seen, list, " ")
    for (i = 1; i <= n; i++)
        if (list[i] !~ /\.h$/ && list[i] != row && !(list[i] in rooms))
            print "tests/lint/includes.txt: " row " sees " list[i] \
                ", which is not below it"
}

BEGIN {
    n = split("assert complex ctype errno fenv float inttypes iso646 limits " \
        "locale math setjmp signal stdalign stdarg stdatomic stdbool " \
        "stddef stdint stdio stdlib stdnoreturn string tgmath time uchar " \
        "wchar wctype", words, " ")
    for (i = 1; i <= n; i++) standard[words[i] ".h"] = 1
    n = split("dirent endian fcntl fnmatch ftw getopt glob libgen poll " \
        "regex sched spawn strings termios unistd", words, " ")
    for (i = 1; i <= n; i++) posix[words[i] ".h"] = 1
    house["registry.c"]; house["spec.c"]; house["table.c"]
}

FILENAME ~ /includes\.txt$/ {
    if ($0 ~ /^#/) next
    split($0, part, /[ ]*\|[ ]*/)
    check_order(part[1], part[2] " " part[4])
    rooms[part[1]] = " " part[2] " "
    libraries[part[1]] = " " part[3] " "
    inside[part[1]] = " " part[4] " "
    next
}

# List of all headers: where each public one lives.
/^header:/ {
    path = substr($0, 8)
    where[basename_of(path)] = folder_of(path)
    private_in[path] = 1
    next
}

{
    split($0, part, ":")
    file = part[1]; line = part[2]
    header = $0
    sub(/^[^<"]*[<"]/, "", header)
    sub(/[>"].*/, "", header)
    row = row_of(file)
    if (!(row in rooms)) {
        complain("no room"); next
    }
    if ($0 ~ /include *</) {
        library = library_of(header)
        if (library != "" && index(libraries[row], " any ") == 0 &&
            index(libraries[row], " " library " ") == 0)
            complain("<" header "> is of " library)
        next
    }
    if (row ~ /^tests/)
        next
    name = basename_of(header)
    if (name ~ /^kvr_/ && header == name) {
        if (row == "rule") {
            if (index(rooms[row], " " name " ") == 0)
                complain("\"" header "\" in a rule")
            next
        }
        if (!(name in where))
            complain("\"" header "\" does not exist")
        else if (folder_of(file) != where[name] &&
                 index(rooms[row], " " where[name] " ") == 0 &&
                 index(rooms[row], " " name " ") == 0)
            complain("\"" header "\" is of " where[name])
        next
    }
    if ((folder_of(file) "/" name) in private_in)
        next
    n = split(inside[row], folders, " ")
    for (i = 1; i <= n; i++)
        if ((folders[i] "/" name) in private_in)
            next
    complain("\"" header "\" is private to another folder")
}

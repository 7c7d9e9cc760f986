# count_cases.awk - counts the cases in Meson's testlog.txt.
#
# A case is a line "ok ..." or "not ok ..." (cmocka's TAP output and our shell
# tests write these). Prints a line for each thing that went wrong, then
# "total PASSED FAILED". Counted as failed as well: a skipped case, a program
# that ended badly without saying which case did it, one that reported no case
# at all, one that reported fewer cases than it announced with "1..N".
# A line is counted once per program: a forked child may repeat its parent's
# buffered output.

function finish_program() {
    if (name == "")
        return
    if (!ended_well && bad == 0)
        complain("ended with \"" result "\" outside of any case")
    else if (ended_well && good + bad == 0)
        complain("reported no case")
    else if (ended_well && plans == 1 && planned > good + bad)
        complain("announced " planned " cases, reported " good + bad)
    passed += good
    failed += bad
    name = ""
}

function complain(what) {
    print "not ok " name ": " what
    bad++
}

/^test: / {
    finish_program()
    name = $0
    sub(/^test: */, "", name)
    sub(/^[^\/]*\/ /, "", name)
    good = bad = plans = planned = 0
    split("", seen)
    next
}
/^result: / {
    result = $0
    sub(/^result: */, "", result)
    ended_well = (result == "exit status 0")
    next
}
/^Summary of Failures:/ { finish_program() }
name == "" || ($0 in seen) { next }
/^1\.\.[0-9]+$/ {
    seen[$0] = 1
    plans++
    planned = substr($0, 4) + 0
    next
}
/^(ok|not ok) / {
    seen[$0] = 1
    if ($0 ~ /# SKIP/)
        complain("skipped:" substr($0, index($0, "SKIP") + 4))
    else if ($0 ~ /^ok/)
        good++
    else
        complain($0)
}
END {
    finish_program()
    print "total " passed + 0 " " failed + 0
}

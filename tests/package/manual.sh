#!/usr/bin/env bash
# manual.sh - every flag that --help names stands in the man page and in the completion of each shell,
# and bash offers what it should.
#
#   manual.sh BUILD_ROOT
. "$(dirname "$0")/check.sh"
cd "$1/src/cli" || exit 1
flags=$work/flags

commands=$(./sheaf help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -v '^help$')
check "the commands are known" test "$(wc -w <<<"$commands")" -ge 11
check "sheaf(1) names them all" diff <(grep -oE '^\.BR sheaf\\-[a-z]+' sheaf.1 | sed 's/.*-//') <(tr ' ' '\n' <<<"$commands")
# Text as man shows it: without fonts, hyphens as they are.
shown() { sed -e 's/\\f[BIR]//g' -e 's/\\-/-/g' -e 's/\\&//g' -e 's/\\(rs/\\/g' "$1"; }
# "-o, out" where a flag has a letter, else "out".
flags_of() { ./sheaf "$1" --help all | sed -nE 's/^  (-[a-z], )?--([a-z0-9-]+).*/\1\2/p'; }
words_of() { tr -s ' \n' '\n' | grep -vE '^-|^$' | sort; }
for c in $commands; do
    flags_of "$c" | sort >"$flags"
    [ "$(wc -l <"$flags")" -ge 2 ] || check "$c has flags" false
    check "sheaf-$c(1): the same flags" diff "$flags" <(shown "sheaf-$c.1" | grep --no-group-separator -A1 '^\.TP' | sed -nE 's/^(-[a-z], )?--([a-z0-9-]*).*/\1\2/p' | sort)
    check "sheaf-$c(1): the same words of help" diff <(./sheaf "$c" --help all | sed -nE '/^  (-[a-z], )?--/,/^  --help/p' | grep -v -e '^  --help' -e '^[a-z]' | words_of) \
        <(shown "sheaf-$c.1" | sed -n '/^\.SH OPTIONS/,/^--help/p' | grep -v -e '^--help' -e '^\.' | words_of)
    check "zsh, $c: the same flags" diff "$flags" \
        <(sed -n "/^    $c)\$/,/;;\$/p" _sheaf | grep -oE "('|\{-[a-z],)--[a-z0-9-]+" | sed -E "s/'--//; s/\{(-[a-z],)--/\1 /" | sort)
    check "fish, $c: the same flags" diff "$flags" \
        <(sed -nE "s/.*seen_subcommand_from $c' -l ([a-z0-9-]+)( -s ([a-z]))?.*/-\3, \1/p" sheaf.fish | sed 's/^-, //' | sort)
    check "bash, $c: the same flags" diff <(sed 's/^-., //' "$flags" | sort) <(sed -n "/^    $c)\$/,/;;\$/s/.*flags='\(.*\)'/\1/p" sheaf.bash | tr ' ' '\n' | sed -n 's/^--//p' | sort)
done

# ---- bash, as it calls the function ----
. ./sheaf.bash
# offers NAME WANTED WORD...: completing the last of these words.
offers() {
    local name=$1 wanted=$2
    COMP_WORDS=("${@:3}")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _sheaf
    check "bash: $name" test "${COMPREPLY[*]}" = "$wanted"
}
offers "a command" "verify version" sheaf ve
offers "a command to explain" "merge" sheaf help me
offers "a flag" "--dtype" sheaf train --dt
offers "flags of this command alone" "--atol" sheaf diff --a
offers "a flag that is on by default" "--no-shuffle" sheaf train --no-s
offers "the values of a flag" "float32 float16" sheaf convert a b --dtype float
offers "after a sign of equality" "bfloat16" sheaf train --dtype = bf
offers "all of them" "none all lora_only" sheaf train --lora-bias =
offers "nothing for a number" "" sheaf train --steps ""
offers "files for a path" "sheaf.fish" sheaf train --model sheaf.f
offers "files for a word" "sheaf.fish" sheaf verify sheaf.f
offers "files for the model as a word" "sheaf.fish" sheaf train sheaf.f

# ---- syntax, by those who read it, where they are installed ----
# Without the shell: quotes are even in each line, and every case is closed.
even() { awk -v q="'" '{ line = $0; gsub(/\\'"'"'/, "", line); if (gsub(q, "", line) % 2) { print FILENAME ":" FNR ": " $0; bad = 1 } } END { exit bad }' "$1"; }
check "bash reads its script" bash -n sheaf.bash
check "zsh: quotes are even" even _sheaf
check "zsh: as many commands as cases" test "$(grep -cE '^    [a-z]+\)$' _sheaf)" -eq "$(wc -w <<<"$commands")"
check "fish: quotes are even" even sheaf.fish
check "fish: every line is a complete" bash -c '! grep -vE "^(#|complete -c sheaf )" sheaf.fish'
! command -v zsh >/dev/null || check "zsh reads its script" zsh -n _sheaf
! command -v fish >/dev/null || check "fish reads its script" fish --no-execute sheaf.fish
if command -v mandoc >/dev/null; then
    # The pages of a version are the same bytes whenever they are made, so they have no date.
    check "mandoc finds nothing to warn of" bash -c '! mandoc -T lint -W warning ./*.1 | grep -v "missing date"'
elif command -v groff >/dev/null; then
    check "groff finds nothing to warn of" bash -c 'w=$(groff -man -Tutf8 -ww -z ./*.1 2>&1); echo "$w"; [ -z "$w" ]'
fi
check "pages: every request is one of man(7)" bash -c '! grep -hE "^\." ./*.1 | grep -vE "^\.(TH|SH|SS|TP|BR|nf|fi|ad)( |$)"'
exit $((failures > 0))

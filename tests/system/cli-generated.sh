#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is generated from the tables of commands and of the configuration is what is in the tree:
# the manual pages and the shell completion. 'make update-generated' writes them anew.
. "$(dirname "$0")/lib/lib.sh"

sh "$TRACERD_SRC/scripts/update-man" "$TRACERD_BUILD" "$TMP" || fail "scripts/update-man"
for f in man/tracectl.1 man/tracerd.conf.5 client/tracectl.bash-completion; do
	diff -u "$TRACERD_SRC/$f" "$TMP/${f#*/}" | sed 's/^/# /'
	cmp -s "$TRACERD_SRC/$f" "$TMP/${f#*/}" || fail "$f is not what the tables say: make update-generated"
	ok "$f"
done

for program in tracerd tracerd-step; do
	[ -x "$TRACERD_BUILD/$program" ] || continue # tracerd-step is for x86-64
	for option in $("$TRACERD_BUILD/$program" --help | sed -n 's/^  --\([a-z-]*\) .*/\1/p'); do
		case $program:$option in tracerd-step:help | tracerd-step:version) continue ;; esac
		grep -q -- "$(printf '%s' "--$option" | sed 's/-/\\\\-/g')" "$TRACERD_SRC/man/$program.8" ||
			fail "$program(8) does not have --$option"
	done
	ok "$program(8) has each option of the program"
done

if command -v groff >/dev/null 2>&1; then
	for page in "$TRACERD_SRC"/man/*.[158]; do
		groff -man -ww -Tutf8 "$page" >"$TMP/page" 2>"$TMP/err" || fail "$page"
		[ ! -s "$TMP/err" ] || { sed 's/^/# /' "$TMP/err"; fail "$page is not clean"; }
		[ "$(wc -l <"$TMP/page")" -gt 10 ] || fail "$page is empty"
	done
	ok "the pages are clean man(7)"
fi

# The functions and macros of the library that the pages name are those of its headers.
for name in $(cat "$TMP/tracectl.1" "$TRACERD_SRC"/man/*.[158] | sed 's/\\//g' | grep -Eoi 'tracerd_[a-z0-9_]+\(\)' | sort -u); do
	grep -qw "${name%()}" "$TRACERD_SRC"/client/include/tracerd/*.h || fail "a manual page names $name, which does not exist"
done
ok "the pages name no function that does not exist"

# The completion as bash uses it; the programs that it asks are told what to answer.
complete_words() {
	bash -c '
		compopt() { :; }
		tracectl() {
			case "$*" in
			list*) echo t7 ;;
			snapshots*) echo 20261121-101500-3f9a ;;
			"fetch --list 20261121-101500-3f9a") printf "%s\\n" trace.pftrace rings/7-1.ring "x\$(echo y)" ;;
			esac
		}
		systemctl() { echo "nginx.service loaded active running A server"; }
		complete() { :; }
		. "$1"; shift
		COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
		_tracectl
		printf "%s\n" "${COMPREPLY[@]}"' bash "$TRACERD_SRC/client/tracectl.bash-completion" "$@"
}
complete_words tracectl sna | grep -qx snapshots || fail "commands are not completed"
complete_words tracectl arm --st | grep -qx -- --stacks= || fail "options are not completed"
complete_words tracectl arm --stacks = dw | grep -qx dwarf || fail "values are not completed"
complete_words tracectl trigger re | grep -qx remove || fail "sub-commands are not completed"
complete_words tracectl trigger add --ov | grep -qx -- --over= || fail "options of sub-commands are not completed"
complete_words tracectl arm $$ | grep -qx $$ || fail "process ids are not completed"
complete_words tracectl show t | grep -qx t7 || fail "show does not complete targets"
complete_words tracectl show 2 | grep -qx 20261121-101500-3f9a || fail "show does not complete snapshots"
complete_words tracectl fetch -f p | grep -qx perf.data || fail "fetch -f does not complete files of a snapshot"
complete_words tracectl fetch --file = tr | grep -qx trace.pftrace || fail "fetch --file= does not complete"
complete_words tracectl fetch 20261121-101500-3f9a -f ri | grep -qx rings/7-1.ring || fail "fetch -f does not ask for the files of the snapshot"
complete_words tracectl fetch 20261121-101500-3f9a -f x | grep -q . && fail "fetch -f lets the shell expand a name"
complete_words tracectl fetch -f ri | grep -q . && fail "fetch -f knows the files of no snapshot"
complete_words tracectl arm --unit = ng | grep -qx nginx.service || fail "--unit does not complete units"
complete_words tracectl arm -u ng | grep -qx nginx.service || fail "-u does not complete units"
complete_words tracectl watch -e tr | grep -qx trigger.hit || fail "watch -e does not complete events"
ok "the completion completes"

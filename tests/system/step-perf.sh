#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 900
# slow
# What tracerd-step records is what ran: stock perf and libipt find in each recording the very instructions that the
# stepper's own log has, without an error, and the program says what it says alone.
. "$(dirname "$0")/lib/lib.sh"

STEP=$TRACERD_BUILD/tracerd-step
ORACLE=$TRACERD_BUILD/tests/programs/ptoracle
INSIDE=$TRACERD_SRC/tests/system/inside
[ "$(uname -m)" = x86_64 ] || skip "tracerd-step is for x86-64"
[ -x "$STEP" ] && [ -x "$ORACLE" ] || skip "tracerd-step is not built"
need_command perf linux-perf
need_command gcc gcc
# A program without threads or files, the least there is.
echo 'int main(void) { return 0; }' >"$TMP/least.c"
gcc -O1 -static -o "$TMP/least" "$TMP/least.c" || skip "no static C library (Debian/Ubuntu package: libc6-dev)"
"$STEP" -o "$TMP/least.data" -- "$TMP/least" 2>"$TMP/err" || {
	grep -q 'not permitted' "$TMP/err" && skip "may not ptrace here"
	fail "the least program: $(cat "$TMP/err")"
}
perf script -i "$TMP/least.data" --itrace=i0ns -F ip >"$TMP/perf" 2>&1
[ "$(wc -l <"$TMP/perf")" -gt 1000 ] || skip "this perf does not decode Intel PT: $(head -n 1 "$TMP/perf")"

# perf_insns FILE: "tid ip" of each instruction, by thread.
perf_insns() { perf script -i "$1" --itrace=i0ns -F tid,ip 2>"$TMP/perf.err" | awk '{ print $1, $2 }' | sort -s -k 1,1; }

# The first place where two lists differ, for the reader of a failed test.
differs() { note "first difference: $(diff "$1" "$2" | head -n 3 | tr '\n' ' ')"; }

# check NAME WANTED-OUTPUT|- [OPTION...] -- COMMAND...
check() {
	name=$1 wanted=$2
	shift 2
	options=()
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	d=$TMP/$name.data
	"$STEP" --output "$d" --log "$TMP/log" "${options[@]}" -- "$@" >"$TMP/out" 2>"$TMP/err" </dev/null ||
		fail "$name: $(cat "$TMP/err")"
	note "$(sed 's/.*data: //' "$TMP/err" | head -n 1)"
	if [ "$wanted" != - ] && [ "$(cat "$TMP/out")" != "$wanted" ]; then
		fail "$name said $(head -n 3 "$TMP/out"), not $wanted"
	fi
	grep -q "unexpected\|not recorded\|early\|cannot" "$TMP/err" && fail "$name: $(cat "$TMP/err")"
	sort -s -k 1,1 "$TMP/log" >"$TMP/want"
	[ -s "$TMP/want" ] || fail "$name: nothing was recorded"

	perf_insns "$d" >"$TMP/got"
	grep -v '^$' "$TMP/perf.err" >"$TMP/words" && fail "$name: perf said $(head -n 3 "$TMP/words")"
	cmp -s "$TMP/want" "$TMP/got" || { differs "$TMP/want" "$TMP/got"; fail "$name: perf decodes other instructions"; }
	for what in cr b e; do
		perf script -i "$d" --itrace=$what -F tid,ip,addr,flags >"$TMP/$what" 2>"$TMP/perf.err" || fail "$name: perf --itrace=$what"
		grep -v '^$' "$TMP/perf.err" >"$TMP/words" && fail "$name: perf --itrace=$what said $(head -n 3 "$TMP/words")"
	done
	[ -s "$TMP/e" ] && fail "$name: perf finds errors"
	[ -s "$TMP/cr" ] && [ -s "$TMP/b" ] || fail "$name: perf finds no branches"

	"$ORACLE" "$d" >"$TMP/oracle" 2>"$TMP/err" || fail "$name: libipt: $(cat "$TMP/err")"
	sort -s -k 1,1 "$TMP/oracle" >"$TMP/got"
	cmp -s "$TMP/want" "$TMP/got" || { differs "$TMP/want" "$TMP/got"; fail "$name: libipt decodes other instructions"; }
	ok "$name: $(wc -l <"$TMP/want") instructions, as perf and libipt see them"
	rm -f "$d"*
}

# check_own NAME WANTED [FLAG...]: one of our own programs.
check_own() {
	name=$1 wanted=$2
	shift 2
	case $name in
	exceptions) set -- g++ "$INSIDE/step-$name.cc" "$@" ;;
	*) set -- gcc "$INSIDE/step-$name.c" "$@" ;;
	esac
	command -v "$1" >/dev/null || { note "no $1: without $name"; return; }
	"$@" -O1 -pthread -o "$TMP/$name" -ldl || fail "$name does not compile"
	[ "$("$TMP/$name")" = "$wanted" ] || fail "$name is wrong without us, too"
	check "$name" "$wanted" -- "$TMP/$name"
}

check static "" -- "$TMP/least"
check static-plain "" --plain-returns --psb-bytes 512 --time-insns 7 -- "$TMP/least"
check true "" -- /bin/true
check sh 3 -- sh -c '(exit 3); echo $?; exec /bin/true'
check_own threads 840
# without the dynamic linking of a large library, which takes a minute
check_own exceptions "18 18" -static-libstdc++ -static-libgcc
check_own signals ok
check_own coroutines "$("${CC:-gcc}" -O1 -o "$TMP/c" "$INSIDE/step-coroutines.c" && "$TMP/c")"
check_own jit "$("${CC:-gcc}" -O1 -pthread -o "$TMP/j" "$INSIDE/step-jit.c" && "$TMP/j")"
check_own exec "$(printf '0.983441\nby a thread')"
python=$(command -v /usr/bin/python3 || command -v python3)
if [ -n "$python" ]; then
	check python - --max-insns 150000 -- "$python" -c pass
else
	note "no python3: without it"
fi

# What is kept of a ring is the end, and decodes on its own.
"$STEP" --output "$TMP/ring.data" --log "$TMP/log" --ring --max-bytes 20000 -- "$TMP/threads" >"$TMP/out" 2>"$TMP/err" ||
	fail "a ring: $(cat "$TMP/err")"
grep -q overwritten "$TMP/err" || fail "nothing was overwritten"
sort -s -k 1,1 "$TMP/log" >"$TMP/want"
perf_insns "$TMP/ring.data" >"$TMP/got"
[ -s "$TMP/got" ] && [ "$(wc -l <"$TMP/got")" -lt "$(wc -l <"$TMP/want")" ] || fail "a ring is not a part of what ran"
for tid in $(cut -d ' ' -f 1 "$TMP/got" | uniq); do
	grep "^$tid " "$TMP/got" >"$TMP/got.1"
	grep "^$tid " "$TMP/want" | tail -n "$(wc -l <"$TMP/got.1")" >"$TMP/want.1"
	cmp -s "$TMP/want.1" "$TMP/got.1" || fail "a ring does not hold the last instructions of thread $tid"
done
ok "a ring holds the last instructions of its threads"

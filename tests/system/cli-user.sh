#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 180
# An ordinary user with a daemon that runs as root: their own process may be recorded and its
# snapshots fetched; another's process is refused by name of its owner, and another's targets and
# snapshots are not even seen.
. "$(dirname "$0")/lib/lib.sh"
need_root
need_command setpriv util-linux
user_programs examples/slowlock tests/programs/leaderless
start_tracerd
chmod 0755 "$TMP" "$RUNDIR"
t="$TMP/bin/tracectl"
tracectl_in() { unshare -fp --mount-proc "$t" "$@"; }
me() { as_user env TRACERD_SOCKET="$SOCK" "$@"; }
mkdir "$TMP/home"
chown 65534:65534 "$TMP/home"

as_user "$TMP/bin/slowlock" --every 800 >"$TMP/service" &
lib_pids="$lib_pids $!"
own=
# by hand: pgrep is not everywhere
find_own() {
	local exe
	for exe in /proc/[0-9]*/exe; do
		[ "$(readlink "$exe")" = "$TMP/bin/slowlock" ] && own=${exe//[!0-9]/} && return
	done
	return 1
}
wait_until $PATIENCE find_own || fail "the user's service does not run"
"$TMP/bin/slowlock" >/dev/null &
others=$!
lib_pids="$lib_pids $others $own"

expect_rc 4 me "$t" arm "$others"
grep -q "not permitted: process $others is owned by uid 0" "$TMP/err" || fail "refused in other words: $(cat "$TMP/err")"
expect_rc 4 me "$t" arm 1
ok "another user's process is refused, with its owner"

expect_rc 0 me "$t" arm "$own"
maintenance=$(grep -lx maintenance "/proc/$own/task/"*/comm)
ticks() { sed 's/.*) //' "${maintenance%comm}stat" | awk '{print $12 + $13}'; }
seen=$(ticks)
worked() { [ "$(ticks)" -ge $((seen + 10)) ]; }
wait_until $PATIENCE worked || fail "the maintenance thread does nothing"
expect_rc 0 me "$t" snapshot "$own" -o "$TMP/home/x.pftrace"
sed 's/^/# /' "$TMP/out"
[ -s "$TMP/home/x.pftrace" ] || fail "no trace"
[ "$(stat -c %u "$TMP/home/x.pftrace")" = 65534 ] || fail "the trace belongs to somebody else"
id=$(sed -n 's/^snapshot \([^ ]*\) of slowlock .*/\1/p' "$TMP/out")
expect_rc 0 me "$t" fetch "$id" -o "$TMP/home/bundle/"
expect_rc 0 me "$t" decode "$TMP/home/bundle" --summary
grep -q 'maintenance' "$TMP/out" || fail "the user's own decoding: $(cat "$TMP/out")"
ok "the user's own process is recorded, and its snapshot fetched and decoded"

# A thread that is not the first one of its process: the user's own, by tracectl.
thread=${maintenance%/comm}
thread=${thread##*/}
[ "$thread" != "$own" ] || fail "the maintenance thread is the first one"
expect_rc 3 me "$t" arm "$thread"
grep -q "$thread is a thread of process $own: --tid arms one thread" "$TMP/err" || fail "not told: $(cat "$TMP/err")"
expect_rc 0 me "$t" arm --tid "$thread" --json
[ "$(json 'j["targets"][0]["scope"], j["targets"][0]["tid"], j["targets"][0]["pid"]' <"$TMP/out")" = "('thread', $thread, $own)" ] ||
	fail "another target: $(cat "$TMP/out")"
one=$(json 'j["targets"][0]["id"]' <"$TMP/out")
expect_rc 0 me "$t" disarm "$one"
expect_rc 4 me "$t" arm --tid "$others"
grep -q "not permitted: thread $others is owned by uid 0" "$TMP/err" || fail "refused in other words: $(cat "$TMP/err")"
expect_rc 3 me "$t" arm --tid 4194303
grep -q "no such thread: 4194303" "$TMP/err" || fail "in other words: $(cat "$TMP/err")"
ok "a thread of the user's own process is recorded by itself"

# One whose main thread has ended: its own maps are empty, and those of the other threads prove it.
as_user "$TMP/bin/leaderless" < <(exec sleep 1000) >"$TMP/ready" &
lib_pids="$lib_pids $!"
wait_until $PATIENCE grep -q ready "$TMP/ready" || fail "the main thread does not end"
leaderless=$(grep -lx leaderless /proc/[0-9]*/comm 2>/dev/null | tail -n 1)
leaderless=${leaderless//[!0-9]/}
lib_pids="$lib_pids $leaderless"
expect_rc 0 me "$t" arm "$leaderless"
expect_rc 0 me "$t" disarm "$leaderless"
ok "so is a process whose main thread has ended"

# From another pid namespace, where the numbers are others': the pidfd says who is meant.
if unshare -fp --mount-proc true 2>/dev/null; then
	expect_rc 3 tracectl_in arm --tid 1
	grep -q "no such thread: 1" "$TMP/err" || fail "in other words: $(cat "$TMP/err")"
	ok "a number of another pid namespace is nobody else's thread"
fi

# Root's things are not the user's.
expect_rc 0 tracectl arm "$others"
expect_rc 0 tracectl snapshot "$others" --json
secret=$(json 'j["snapshot"]["id"]' <"$TMP/out")
expect_rc 0 me "$t" list --json
[ "$(json 'len(j["targets"])' <"$TMP/out")" = 1 ] || fail "the user sees root's target: $(cat "$TMP/out")"
expect_rc 3 me "$t" show "$secret"
expect_rc 3 me "$t" fetch "$secret" -o "$TMP/home/y"
expect_rc 3 me "$t" delete "$secret"
expect_rc 3 me "$t" disarm t2
[ "$(me "$t" snapshots --ids)" = "$id" ] || fail "the user sees root's snapshots"
[ "$(tracectl snapshots --ids | wc -l)" = 2 ] || fail "root does not see both"
ok "another's targets and snapshots are not there"

me "$t" run -q -- sh -c 'exit 5'
[ $? = 5 ] || fail "run as a user"
ok "run works for a user"

expect_rc 0 me "$t" delete "$id"
expect_rc 0 me "$t" disarm "$own"
ok "and what is the user's can be removed by the user"

# By default what a program starts is recorded with it, a user's as well.
expect_rc 0 me "$t" run -- sh -c 'sh -c "i=0; while [ \$i -lt 300000 ]; do i=\$((i+1)); done" & sleep 0.2; wait'
if grep -q 'are not recorded' "$TMP/err"; then fail "run leaves out what it starts: $(cat "$TMP/err")"; fi
target=$(sed -n 's/^armed \(t[0-9]*\):.*/\1/p' "$TMP/err")
expect_rc 0 me "$t" show --json "$target"
grep -qE '"processes": ?([3-9]|[1-9][0-9])' "$TMP/out" || fail "its children are not in the target: $(cat "$TMP/out")"
ok "run records what a user's program starts"
expect_rc 0 me "$t" run --no-children -- sh -c 'sleep 0.1'
if grep -q 'not recorded' "$TMP/err"; then fail "told what was asked for: $(cat "$TMP/err")"; fi
ok "and the program alone where that is asked for"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
# The main job by tracectl, on a service that is not slow by itself (examples/slowlock.c): arm it,
# take a snapshot after a slow request, and read from the summary which thread held the lock.
. "$(dirname "$0")/lib/lib.sh"
need_root
start_tracerd
slowlock=$TRACERD_BUILD/examples/slowlock
[ -x "$slowlock" ] || fail "examples/slowlock is not built"

"$slowlock" --every 1500 >"$TMP/service" &
pid=$!
lib_pids="$lib_pids $pid"
runs() { [ "$(cat "/proc/$pid/comm")" = slowlock ]; }
wait_until $PATIENCE runs || fail "the service was not begun: $(cat "/proc/$pid/comm")"
expect_rc 3 tracectl snapshot "$pid"
grep -q "process $pid is not armed: 'tracectl arm $pid' first" "$TMP/err" || fail "not armed: $(cat "$TMP/err")"
expect_rc 0 tracectl arm "$pid"
grep -q "^armed t1: slowlock (pid $pid), stacks " "$TMP/out" || fail "arm says: $(cat "$TMP/out")"
ok "armed"

has_stacks() { tracectl show t1 --json | json 'j["target"]["stacks"]' | grep -qxE 'bpf|dwarf'; }
wait_until $PATIENCE has_stacks || fail "stacks=auto did not find that it has no frame pointers"
slow_requests() { grep -c '^slow request' "$TMP/service"; }
next_slow() {
	local seen
	seen=$(slow_requests)
	more() { [ "$(slow_requests)" -gt "$seen" ]; }
	wait_until $PATIENCE more || fail "no request was slow"
	# the other workers' slow requests of the same moment
	sleep 0.05
}
# On a busy machine requests are slow without a lock, too: until one has waited for the lock.
next_slow
slow_by_lock() {
	next_slow
	expect_rc 0 tracectl snapshot "$pid" -o "$TMP/slow.pftrace" --reason "a slow request"
	sed -n '/^longest waits for a lock/,/^$/p' "$TMP/out" | sed -n 4p | grep -q 'held by maintenance' &&
		grep -q 'sort_entries <- rebuild_index' "$TMP/out" && return
	cp "$TMP/out" "$TMP/not-by-lock"
	tracectl delete "$(sed -n 's/^snapshot \([^ ]*\) of slowlock .*/\1/p' "$TMP/not-by-lock")"
	rm "$TMP/slow.pftrace"
	return 1
}
wait_until $PATIENCE slow_by_lock || fail "no wait for the lock: $(cat "$TMP/not-by-lock")"
sed 's/^/# /' "$TMP/out"
id=$(sed -n 's/^snapshot \([^ ]*\) of slowlock .*/\1/p' "$TMP/out")
[ -n "$id" ] || fail "no snapshot's id in the output"
[ -s "$TMP/slow.pftrace" ] || fail "no trace"
[ "$(stat -c %a "$TMP/slow.pftrace")" = 600 ] || fail "the trace is readable by others"
grep -q "reason      a slow request" "$TMP/out" || fail "the reason is not kept"
ok "a snapshot with its trace"

cause=$(sed -n '/^longest waits for a lock/,/^$/p' "$TMP/out" | sed -n 2,4p)
echo "$cause" | sed -n 1p | grep -qE '1\. ([0-9]{2,3}(\.[0-9])? m|[0-9.]+ )s  worker-[1-4] ' || fail "the longest wait: $cause"
echo "$cause" | sed -n 2p | grep -q 'mutex_lock.* <- cache_get <- handle_request' || fail "the stack of the wait: $cause"
echo "$cause" | sed -n 3p | grep -q 'held by maintenance .*, which released it in .* <- rebuild_index' || fail "the holder: $cause"
# The README shows such a moment: its lines up to the functions, whose names are the C library's, and the numbers.
shape() { sed -nE '/^ *longest waits for a lock/,/^$/{s/^ +//;s/(, woken after|; the longest of) .*//;s/^(waited|.* released it) in .*/\1 in/
	s/worker-[0-9]/worker-N/;s/[0-9.]+ m?s/TIME/g;s/tid [0-9]+/tid N/;s/in the kernel.s [a-z0-9_]+[(][)], //;p}' "$1" | head -n 4; }
[ "$(shape "$TRACERD_SRC/README.md")" = "$(shape "$TMP/out")" ] || fail "the README shows $(shape "$TRACERD_SRC/README.md"), this is $(shape "$TMP/out")"
ok "the summary names the lock's place and its holder, as the README has it"
grep -q 'sort_entries <- rebuild_index' "$TMP/out" || fail "the heaviest stacks do not have the culprit"
for name in maintenance worker-1 worker-2 worker-3 worker-4 slowlock; do
	grep -q "^  $name  *[0-9]" "$TMP/out" || fail "no thread $name"
done
ok "threads and heaviest stacks"

# The spool keeps it: lists, details, files; a bundle decodes to the same without the daemon.
expect_rc 0 tracectl snapshots
grep -q "^$id  *t1 .*slowlock.*done.*a slow request" "$TMP/out" || fail "the list: $(cat "$TMP/out")"
[ "$(tracectl snapshots --ids)" = "$id" ] || fail "--ids"
expect_rc 0 tracectl show "$id"
grep -q 'held by maintenance' "$TMP/out" || fail "show has no summary"
expect_rc 0 tracectl fetch "$id" -o "$TMP/bundle/"
for f in meta.json perf.data trace.pftrace; do
	[ -s "$TMP/bundle/$f" ] || fail "no $f in the bundle"
done
cmp -s "$TMP/bundle/trace.pftrace" "$TMP/slow.pftrace" || fail "fetch gives another trace than snapshot"
expect_rc 1 tracectl fetch "$id" -o "$TMP/bundle/"
grep -q 'is not empty' "$TMP/err" || fail "a full directory: $(cat "$TMP/err")"
expect_rc 1 tracectl snapshot "$pid" -o "$TMP/no/such/x.pftrace"
kept=$(sed -n "s/^snapshot \([^ ]*\) is in the spool: .*/\1/p" "$TMP/err")
[ -n "$kept" ] || fail "not told where the snapshot is: $(cat "$TMP/err")"
expect_rc 0 tracectl delete "$kept"
expect_rc 0 tracectl fetch "$id" --file meta.json -o "$TMP/meta.json"
cmp -s "$TMP/meta.json" "$TMP/bundle/meta.json" || fail "--file"
(cd "$TMP" && expect_rc 0 tracectl fetch "$id" --json) || exit 1
cmp -s "$TMP/$id.pftrace" "$TMP/slow.pftrace" || fail "the default name"
expect_rc 3 tracectl fetch no-such-id -o "$TMP/x"
[ ! -e "$TMP/x" ] || fail "a file is left"
expect_rc 3 tracectl fetch "$id" --file no-such-file -o "$TMP/x"
tracectl fetch "$id" --list >"$TMP/names" || fail "fetch --list"
for f in trace.pftrace perf.data meta.json; do
	grep -qx "$f" "$TMP/names" || fail "fetch --list does not have $f: $(cat "$TMP/names")"
done
expect_rc 0 tracectl fetch "$id" --file "$(tail -n1 "$TMP/names")" -o "$TMP/last"
tracectl fetch "$id" --list --json | json '[f["name"] for f in j["files"]] and None' || fail "fetch --list --json"
expect_rc 2 tracectl fetch "$id" --list -o "$TMP/x"
expect_rc 3 tracectl fetch no-such-id --list
ok "fetch"

# Whatever was asked of the terminal meanwhile, the reason is the write's.
if [ -w /dev/full ]; then
	for c in list status snapshots "show t1" "show $id" "show $id --json" "snapshot t1"; do
		# shellcheck disable=SC2086 # words
		"$TRACERD_BUILD/tracectl" $c >/dev/full 2>"$TMP/err"
		rc=$?
		[ "$rc" = 1 ] || fail "$c to a full disk: exit code $rc"
		grep -qx 'tracectl: cannot write the output: No space left on device' "$TMP/err" ||
			fail "$c to a full disk says: $(cat "$TMP/err")"
	done
	"$TRACERD_BUILD/tracectl" fetch "$id" -o - >/dev/full 2>"$TMP/err"
	rc=$?
	[ "$rc" = 1 ] || fail "fetch to a full disk: exit code $rc"
	grep -q 'No space left on device' "$TMP/err" || fail "fetch to a full disk says: $(cat "$TMP/err")"
	# the decoder writes it, and reports why it could not
	for c in "" --format=pftrace "--format=pftrace --uncompressed"; do
		# shellcheck disable=SC2086 # words
		"$TRACERD_BUILD/tracectl" decode "$TMP/bundle" -o - $c >/dev/full 2>"$TMP/err"
		rc=$?
		[ "$rc" = 1 ] || fail "decode $c to a full disk: exit code $rc"
		grep -qx 'tracectl decode: cannot write the output: No space left on device' "$TMP/err" ||
			fail "decode $c to a full disk says: $(cat "$TMP/err")"
	done
	"$TRACERD_BUILD/tracectl" decode "$TMP/bundle" -o /dev/full 2>"$TMP/err"
	rc=$?
	[ "$rc" = 1 ] || fail "decode -o /dev/full: exit code $rc"
	grep -qx 'tracectl decode: cannot write /dev/full: No space left on device' "$TMP/err" ||
		fail "decode -o /dev/full says: $(cat "$TMP/err")"
	ok "a full disk is said"
fi

stop_daemon_later=$TRACERD_PID
expect_rc 0 env TRACERD_SOCKET=/nonexistent "$TRACERD_BUILD/tracectl" decode "$TMP/bundle" -o "$TMP/again.pftrace"
expect_rc 0 "$TRACERD_BUILD/tracectl" decode "$TMP/bundle" --summary --json
json 'j["summary"]["waits"]' <"$TMP/out" >"$TMP/waits.offline"
tracectl show "$id" --json | json 'j["snapshot"]["summary"]["waits"]' >"$TMP/waits.daemon"
cmp -s "$TMP/waits.offline" "$TMP/waits.daemon" || fail "decoding offline gives other waits than the daemon's decoder"
expect_rc 0 "$TRACERD_BUILD/tracectl" decode "$TMP/bundle" -o -
grep -q rebuild_index "$TMP/out" || fail "no rebuild_index in the text"
ok "the bundle decodes offline, to the same"
for last in 100 100ms 0.1s; do
	expect_rc 0 "$TRACERD_BUILD/tracectl" decode "$TMP/bundle" --summary --last $last
	grep -Eq 'in the slow moment, (99\.[0-9]|100) ms long:' "$TMP/out" || fail "no moment of 100 ms: $(cat "$TMP/out")"
	grep -q 'in all that was recorded:' "$TMP/out" || fail "all else is left out"
done
ok "the summary of the last 100 ms"
[ "$stop_daemon_later" = "$TRACERD_PID" ] || fail "the daemon was restarted"

# A bundle with the objects decodes where the program is not.
expect_rc 0 tracectl snapshot t1 --with-objects -o "$TMP/full/" --json
find "$TMP/full/images" -name slowlock | grep -q . || fail "the program is not in the bundle"
ok "a bundle with objects"

id2=$(tracectl snapshot t1 --no-wait)
[ -n "$id2" ] || fail "--no-wait prints no id"
ended() { case $(tracectl show "$id2" --json | json 'j["snapshot"]["state"]') in done | failed | cancelled) ;; *) return 1 ;; esac; }
wait_until $PATIENCE ended || fail "the snapshot does not end"
expect_rc 0 tracectl delete "$id" "$id2"
expect_rc 3 tracectl delete "$id"
grep -q "no such snapshot: $id" "$TMP/err" || fail "delete twice: $(cat "$TMP/err")"
expect_rc 3 tracectl show "$id"
ok "no-wait, delete"

expect_rc 0 tracectl list
grep -q "^t1 .* slowlock .* armed " "$TMP/out" || fail "list: $(cat "$TMP/out")"
expect_rc 0 tracectl show "$pid"
grep -q 'look-back' "$TMP/out" || fail "show: $(cat "$TMP/out")"
expect_rc 0 tracectl status
grep -q '^tracerd .* running' "$TMP/out" || grep -q '^tracerd .* degraded' "$TMP/out" || fail "status: $(cat "$TMP/out")"
expect_rc 0 tracectl disarm "$pid"
expect_rc 3 tracectl disarm t1
grep -q 'no such target: t1' "$TMP/err" || fail "disarm twice: $(cat "$TMP/err")"
expect_rc 0 tracectl list
grep -q 'nothing is armed' "$TMP/out" || fail "an empty list"
kill -0 "$pid" || fail "the service did not survive"
ok "list, show, status, disarm"

tracectl watch --json >"$TMP/events" &
lib_pids="$lib_pids $!"
watched() { [ "$(status_json | json 'j["clients"]["subscribers"]')" = 1 ]; }
wait_until $PATIENCE watched || fail "watch does not subscribe"
expect_rc 0 tracectl arm "$pid" --stacks=fp --no-waits
kill "$pid"
has_exit() { grep -q '"exited"' "$TMP/events"; }
wait_until $PATIENCE has_exit || fail "watch does not tell the exit: $(cat "$TMP/events")"
head -n 1 "$TMP/events" | json 'j["event"]' | grep -q 'target.state' || fail "watch: $(head -n 1 "$TMP/events")"
ok "watch"

expect_rc 3 tracectl arm 4194304
grep -q 'no such process: 4194304' "$TMP/err" || fail "no such process: $(cat "$TMP/err")"
expect_rc 3 tracectl snapshot 4194304
grep -q 'no such process' "$TMP/err" || fail "snapshot of no process: $(cat "$TMP/err")"
ok "processes that are not there"

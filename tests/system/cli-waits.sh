#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# What the summary says of waits: an idle worker waits for work and for no lock, whoever posts it; a
# mutex has a holder; --no-waits leaves the stacks out and keeps the times; a program that exited was
# recorded until then.
. "$(dirname "$0")/lib/lib.sh"
need_root
start_tracerd
[ "$(status_json | json 'j["backends"]["sample"]["method"]')" = cpu ] || skip "needs BPF: without it waits have no stacks"

cat >"$TMP/worker.py" <<'PY'
import queue, threading, time
work = queue.SimpleQueue()
def worker():
    while work.get():
        pass
threads = [threading.Thread(target=worker)]
classic = queue.Queue()
threads.append(threading.Thread(target=lambda: [None for _ in iter(classic.get, None)]))
for t in threads:
    t.start()
for i in range(10000):
    time.sleep(0.1)
    work.put(1)
    classic.put(1)
PY
python3 "$TMP/worker.py" &
pid=$!
lib_pids="$lib_pids $pid"
workers_run() { [ "$(find "/proc/$pid/task" -mindepth 1 -maxdepth 1 | wc -l)" = 3 ]; }
wait_until $PATIENCE workers_run || fail "the workers do not start"
expect_rc 0 tracectl arm "$pid"
# The queue's semaphore: up to Python 3.12, and since.
queue_wait='PyThread_acquire_lock|_PySemaphore_Wait'
python_waits() { tracectl snapshot "$pid" >"$TMP/out" 2>&1 && grep -qE "waited in .*($queue_wait)" "$TMP/out"; }
wait_until $PATIENCE python_waits || fail "no wait of a worker: $(cat "$TMP/out")"
sed 's/^/# /' "$TMP/out" | cut -c1-160
# the interpreter's own lock is one, and may be waited for on the way back from the queue
sed -n '/^longest waits for a lock/,/^$/p' "$TMP/out" | grep 'waited in' | grep -v take_gil | grep -qE "$queue_wait" &&
	fail "a wait for work is a lock"
expect_rc 0 tracectl disarm "$pid"
ok "an idle worker waits for no lock"

slowlock=$TRACERD_BUILD/examples/slowlock
"$slowlock" --every 500 >/dev/null &
slow=$!
lib_pids="$lib_pids $slow"
expect_rc 0 tracectl arm "$slow"
mutex_waits() {
	tracectl snapshot "$slow" >"$TMP/out" 2>&1
	sed -n '/^longest waits for a lock/,/^$/p' "$TMP/out" | grep -q 'held by maintenance'
}
wait_until $PATIENCE mutex_waits || fail "the mutex has no holder: $(cat "$TMP/out")"
expect_rc 0 tracectl disarm "$slow"
ok "a mutex is a lock, with its holder"

expect_rc 0 tracectl arm "$slow" --no-waits
times_known() {
	tracectl snapshot "$slow" --json >"$TMP/json" 2>&1 &&
		[ "$(json 'sum(t["off_cpu_ns"] or 0 for t in j["snapshot"]["summary"]["threads"]) > 0' <"$TMP/json")" = true ]
}
wait_until $PATIENCE times_known || fail "--no-waits has no times: $(cat "$TMP/json")"
[ "$(json 'any(w["stack"] for w in j["snapshot"]["summary"]["waits"])' <"$TMP/json")" = false ] ||
	fail "--no-waits has stacks of waits"
[ "$(json 'any((w.get("woken_by") or {}).get("stack") for w in j["snapshot"]["summary"]["waits"])' <"$TMP/json")" = false ] ||
	fail "--no-waits has stacks of who ended waits"
[ "$(tracectl show "$slow" --json | json 'j["target"]["switches"] > 0')" = true ] || fail "--no-waits counts no switches"
ok "--no-waits keeps the times"

kill "$slow"
wait "$slow" 2>/dev/null
exited() { tracectl list | grep -q ' exited '; }
wait_until $PATIENCE exited || fail "no exit is seen"
target=$(tracectl list | sed -n 's/^\(t[0-9]*\) .* exited .*/\1/p')
exit_seen() { expect_rc 0 tracectl snapshot "$target" && grep -q '^  recorded .* before it exited$' "$TMP/out"; }
wait_until $PATIENCE exit_seen || fail "the time after the exit counts as recorded: $(cat "$TMP/out")"
ok "a program that exited was recorded until then"

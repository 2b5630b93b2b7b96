#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 180
# tracectl run: the program is armed before its first instruction, keeps its streams, signals and
# exit code; what cannot be started or armed is not run.
. "$(dirname "$0")/lib/lib.sh"
start_tracerd

tracectl run --quiet -- sh -c 'exit 7'
[ $? = 7 ] || fail "the exit code is not the program's"
tracectl run -q sh -c 'kill -TERM $$'
[ $? = 143 ] || fail "a signal is not told as the shell does"
[ "$(echo in | tracectl run -q cat)" = in ] || fail "the streams are not the program's"
ok "exit codes and streams are the program's"

expect_rc 127 tracectl run /no/such/program
grep -q 'cannot execute' "$TMP/err" || fail "no reason"
expect_rc 126 tracectl run "$TMP"
expect_rc 127 tracectl run ''
expect_rc 2 tracectl run --stacks=bad true
ok "what cannot be executed is 126 and 127"

# It is armed as what it executes, not as the fork of tracectl; --json tells on stderr.
expect_rc 0 tracectl run --json --stacks=fp -- sleep 0.3
[ "$(json 'j["target"]["comm"]' <"$TMP/err")" = sleep ] || fail "armed as something else: $(cat "$TMP/err")"
[ "$(json 'j["target"]["stacks"]' <"$TMP/err")" = fp ] || fail "the options of arm are not passed"
pid=$(json 'j["target"]["pid"]' <"$TMP/err")
state_of() { tracectl list --json | json "[t['state'] for t in j['targets'] if t['pid'] == $pid]"; }
has_exited() { [ "$(state_of)" = '["exited"]' ]; }
wait_until $PATIENCE has_exited || fail "its end is not noticed: $(state_of)"
ok "the target is the program, and its end is noticed"

# What it starts is recorded with it, by those who may.
[ "$(id -u)" = 0 ] && default=true || default=false
for how in "$default:" "false:--no-children"; do
	expect_rc 0 tracectl run --json ${how#*:} -- sh -c 'sleep 0.2 & wait'
	[ "$(json 'str(j["target"].get("children", False)).lower()' <"$TMP/err")" = "${how%%:*}" ] ||
		fail "run ${how#*:}: $(cat "$TMP/err")"
done
expect_rc 2 tracectl run --children --no-children true
ok "the processes that it starts are recorded, unless --no-children"

# Signals go through, also when tracectl itself is asked to end.
"$TRACERD_BUILD/tracectl" --socket "$SOCK" run -q -- sh -c 'trap "echo got; exit 3" TERM; echo ready; while :; do sleep 0.05; done' >"$TMP/sig" &
run=$!
lib_pids="$lib_pids $run"
wait_until $PATIENCE grep -q ready "$TMP/sig" || fail "the program does not run"
kill -TERM "$run"
wait "$run"
rc=$?
[ "$rc" = 3 ] || fail "exit status $rc after SIGTERM"
grep -q got "$TMP/sig" || fail "the signal did not arrive"
ok "signals are passed on"

# The program has neither our blocked signals nor our ignored SIGPIPE, and nobody traces it.
tracectl run -q -- cat /proc/self/status >"$TMP/status"
grep -q '^TracerPid:[[:space:]]*0$' "$TMP/status" || fail "it is still traced"
grep -q '^SigBlk:[[:space:]]*0*$' "$TMP/status" || fail "it has blocked signals: $(grep SigBlk "$TMP/status")"
cat /proc/self/status | grep SigIgn >"$TMP/ign"
grep SigIgn "$TMP/status" | cmp -s - "$TMP/ign" || fail "it ignores signals that we do not"
ls /proc/self/fd >"$TMP/fds.plain"
tracectl run -q -- ls /proc/self/fd >"$TMP/fds"
cmp -s "$TMP/fds.plain" "$TMP/fds" || fail "descriptors leak into it: $(tr '\n' ' ' <"$TMP/fds")"
ok "the program starts clean"

# Nor has it lost what it was to be started with; and a parent that ignores its children's ends does not make us wait.
cat >"$TMP/odd.py" <<'END'
import os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGINT, signal.SIGUSR2, int(sys.argv[1])])
for s in signal.SIGPIPE, signal.SIGHUP, signal.SIGCHLD:
    signal.signal(s, signal.SIG_IGN)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])
END
states='^(SigBlk|SigIgn|SigPnd|ShdPnd|Umask|NoNewPrivs)'
for backend in sample step; do
	[ "$backend" = sample ] || [ -x "$TRACERD_BUILD/tracerd-step" ] || continue
	# SIGTRAP is never blocked in a program that is stepped, though it does not find out.
	[ "$backend" = step ] && more=15 || more=5
	# cat: every instruction is stepped, by a program with sanitizers perhaps
	python3 "$TMP/odd.py" "$more" cat /proc/self/status >"$TMP/status"
	grep -E "$states" "$TMP/status" >"$TMP/odd.plain"
	LC_ALL=C timeout -s KILL $PATIENCE python3 "$TMP/odd.py" "$more" "$TRACERD_BUILD/tracectl" --socket "$SOCK" run -q --backend="$backend" -- \
		cat /proc/self/status >"$TMP/status" 2>"$TMP/said" || fail "$backend: exit status $? where SIGCHLD is ignored"
	grep -E "$states" "$TMP/status" >"$TMP/odd"
	[ ! -s "$TMP/said" ] || fail "$backend: -q is not quiet: $(cat "$TMP/said")"
	cmp -s "$TMP/odd.plain" "$TMP/odd" || fail "$backend: other signals: $(diff "$TMP/odd.plain" "$TMP/odd")"
done
ok "what is blocked and ignored is the program's, and no end is missed"

# Stepping takes long: a line says how far it is.
if [ -x "$TRACERD_BUILD/tracerd-step" ]; then
	expect_rc 0 tracectl run --backend=step -- sleep 3
	grep -q 'still stepping: [0-9]* instructions in [0-9]* s' "$TMP/err" || fail "no sign of life: $(cat "$TMP/err")"
	ok "a program that is stepped for long is said to be"
fi

# A daemon that refuses: the program has not run.
stop_tracerd
expect_rc 125 tracectl run -- touch "$TMP/it-ran"
[ ! -e "$TMP/it-ran" ] || fail "it ran unarmed"
ok "what cannot be armed is not run"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sanitizers
# tracectl without a daemon: every command's help, the errors of usage, and the exit codes that
# scripts rely on. No command may end by a signal or say nothing.
. "$(dirname "$0")/lib/lib.sh"

t=$TRACERD_BUILD/tracectl
none=$TMP/none.sock
commands=$("$t" help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(echo "$commands" | wc -l)" -ge 14 ] || fail "the list of commands is short: $commands"
for c in run arm disarm list show snapshot snapshots cancel fetch delete decode status watch version; do
	echo "$commands" | grep -qx "$c" || fail "'tracectl help' does not list $c"
done

for c in $commands; do
	expect_rc 0 "$t" "$c" --help
	grep -q "^usage: tracectl $c" "$TMP/out" || fail "$c --help has no usage line"
	grep -q -- '--json' "$TMP/out" || fail "$c --help does not have the common options"
	[ ! -s "$TMP/err" ] || fail "$c --help writes to stderr"
	expect_rc 0 "$t" help "$c"
	expect_rc 2 "$t" "$c" --no-such-option
	grep -q "tracectl $c: there is no option '--no-such-option'" "$TMP/err" || fail "$c does not name the option"
done
ok "each command has its help, and refuses what it does not know"

expect_rc 2 "$t"
expect_rc 2 "$t" bogus
grep -q "there is no command 'bogus'" "$TMP/err" || fail "the command is not named"
expect_rc 2 "$t" --stacks=fp arm
expect_rc 5 "$t" --socket "$none" --json list
expect_rc 0 "$t" --help
expect_rc 0 "$t" --version
for c in show snapshot fetch delete cancel disarm decode run; do
	expect_rc 2 "$t" "$c"
	grep -q 'operand is missing' "$TMP/err" || fail "$c without operand"
done
expect_rc 2 "$t" list extra
expect_rc 2 "$t" arm
expect_rc 2 "$t" arm 12x
expect_rc 2 "$t" arm 0
expect_rc 2 "$t" arm 12 --tid 13
expect_rc 2 "$t" arm 12 --stacks=no
expect_rc 2 "$t" disarm x3
expect_rc 2 "$t" snapshot ''
expect_rc 2 "$t" snapshot 12 --no-wait -o x
expect_rc 2 "$t" snapshot 12 --timeout=0
expect_rc 2 "$t" watch -e nope
grep -q "'nope' is not one of target.state, snapshot.state, snapshot.progress, trigger.hit" "$TMP/err" ||
	fail "watch does not say which events there are: $(cat "$TMP/err")"
expect_rc 2 "$t" decode x
expect_rc 2 "$t" fetch x -o "$TMP/" --file perf.data
ok "errors of usage are exit status 2"

for c in list status snapshots watch "arm $$" "disarm t1" "show t1" "snapshot $$" "fetch x" "delete x" "cancel x"; do
	# shellcheck disable=SC2086 # words
	expect_rc 5 "$t" $c --socket "$none"
	grep -q "tracerd is not running: $none: No such file or directory (systemctl start tracerd)" "$TMP/err" ||
		fail "'$c' does not say that the daemon is not running: $(cat "$TMP/err")"
	[ ! -s "$TMP/out" ] || fail "'$c' writes to stdout"
done
TRACERD_SOCKET=$none expect_rc 5 "$t" list
expect_rc 125 "$t" run --socket "$none" -- true
expect_rc 0 "$t" version --socket "$none"
ok "no daemon is exit status 5, with the socket's path"

expect_rc 5 "$t" list --socket "$none" --json
[ "$(json 'j["error"]["code"]' <"$TMP/out")" = not_running ] || fail "--json gives no error object"
expect_rc 5 "$t" list --socket "$(printf '%s/\033[31mx' "$TMP")"
grep -q "$(printf '\033')" "$TMP/err" && fail "an escape sequence got to the terminal"
ok "errors as JSON, and safe to print"

# A socket that nobody listens at, one that is closed to us, and one that does not speak the protocol.
python3 - "$TMP/dead.sock" "$TMP/odd.sock" "$TMP/listens" <<'PY' &
import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.close()
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[2]); s.listen(5)
open(sys.argv[3], "w").close()
while True:
    c, _ = s.accept()
    c.recv(10)
    c.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
    c.close()
PY
lib_pids="$lib_pids $!"
wait_until $PATIENCE test -e "$TMP/listens" || fail "no test server"
expect_rc 5 "$t" list --socket "$TMP/dead.sock"
grep -q 'Connection refused' "$TMP/err" || fail "no reason"
expect_rc 1 "$t" list --socket "$TMP/odd.sock"
grep -q 'not its protocol' "$TMP/err" || fail "an odd server is not told: $(cat "$TMP/err")"
ok "a socket that is dead, or not tracerd's"

expect_rc 3 "$t" decode "$TMP/no-such-file" --summary
mkdir "$TMP/empty"
expect_rc 1 "$t" decode "$TMP/empty" --summary
grep -q 'is not a bundle' "$TMP/err" || fail "an empty directory: $(cat "$TMP/err")"
echo nonsense >"$TMP/nonsense"
expect_rc 8 "$t" decode "$TMP/nonsense" -o "$TMP/out.pftrace"
[ ! -e "$TMP/out.pftrace" ] || fail "a trace is left of nothing"
expect_rc 1 "$t" decode "$TMP/nonsense" -o "$TMP/no/such/dir/x"
ok "decode says what is wrong with its input and output"

# "tracectl ... | head" ends quietly, and a full disk is not success.
"$t" help | head -n 1 >/dev/null
[ "${PIPESTATUS[0]}" -le 1 ] || fail "a closed pipe kills it"
if [ -w /dev/full ]; then
	"$t" help >/dev/full 2>"$TMP/err" && fail "a full disk is not noticed"
	grep -q 'No space left' "$TMP/err" || fail "a full disk is not said"
fi
ok "output that cannot be written"

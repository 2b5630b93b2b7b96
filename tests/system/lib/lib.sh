# SPDX-License-Identifier: Apache-2.0
# For the behaviour tests, sourced by each tests/system/*.sh: a temporary directory, a private
# tracerd in it, and the few words a test says. Everything started here ends with the test.
#
#	. "$(dirname "$0")/lib/lib.sh"
#	start_tracerd [argument...]     sets SOCK STATUS_SOCK RUNDIR STATEDIR TRACERD_PID TRACERD_LOG
#	tracectl arm 123                the built tracectl, talking to that instance
#	ok "text" / fail "text" / skip "reason" / note "text"
#
# From scripts/test: TRACERD_BUILD is the build tree, TEST_TMP a directory of this test's own.
set -u

: "${TRACERD_BUILD:?is the build tree with tracerd and tracectl in it}"
TRACERD_BUILD=$(cd "$TRACERD_BUILD" && pwd)
TRACERD_SRC=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")/../../.." && pwd)
export TRACERD_BUILD TRACERD_SRC

if [ -n "${TEST_TMP:-}" ]; then
	TMP=$TEST_TMP
	lib_own_tmp=
else
	TMP=$(mktemp -d "${TMPDIR:-/tmp}/tracerd-test.XXXXXX")
	lib_own_tmp=1
fi
chmod 0755 "$TMP"
RUNDIR=$TMP/run
STATEDIR=$TMP/state
SOCK=$RUNDIR/control.sock
STATUS_SOCK=$RUNDIR/status.sock
export TRACERD_SOCKET=$SOCK
TRACERD_LOG=$TMP/tracerd.log
TRACERD_CONF=$TMP/tracerd.conf
TRACERD_PID=
# What must happen happens in milliseconds, on a machine with nothing else to do. Only a hang takes as long as this.
PATIENCE=300
lib_pids=
lib_count=0

ok() { lib_count=$((lib_count + 1)); echo "ok $lib_count - $*"; }
note() { echo "# $*"; }
skip() { echo "SKIP: $*"; exit 77; }

# Says what went wrong and ends the test; the daemon's last words help most.
fail() {
	lib_count=$((lib_count + 1))
	echo "not ok $lib_count - $*"
	if [ -s "$TRACERD_LOG" ]; then
		echo "# tracerd's last lines:"
		tail -n 15 "$TRACERD_LOG" | sed 's/^/#   /'
	fi
	exit 1
}

lib_cleanup() {
	lib_rc=$?
	trap - EXIT
	if [ "$lib_rc" = 0 ] && ! check_spool; then
		echo "not ok - the spool at the end"
		lib_rc=1
	fi
	stop_tracerd >/dev/null 2>&1
	for lib_pid in $lib_pids; do
		kill -KILL "$lib_pid" 2>/dev/null
	done
	wait 2>/dev/null
	[ -n "$lib_own_tmp" ] && rm -rf "$TMP"
	exit "$lib_rc"
}
trap lib_cleanup EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

need_root() { [ "$(id -u)" = 0 ] || skip "needs root${1:+ ($1)}"; }
need_command() { command -v "$1" >/dev/null 2>&1 && { [ "$1" != perf ] || perf --version >/dev/null 2>&1; } || skip "needs $1${2:+ (Debian/Ubuntu package: $2)}"; }

# wait_until SECONDS COMMAND...: true as soon as the command is; false when the time is over.
wait_until() {
	lib_end=$(($(date +%s%N) / 1000000 + $1 * 1000))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $(($(date +%s%N) / 1000000)) -lt "$lib_end" ] || return 1
		sleep 0.05
	done
}

# Starts a command that ends with the test; its pid is in $!.
background() {
	"$@" &
	lib_pids="$lib_pids $!"
}

# A private instance: its own sockets, spool and configuration ($TRACERD_CONF, empty if the test
# wrote none). LAUNCH, if set, is put in front of the command (setpriv, prlimit ...).
start_tracerd() {
	mkdir -p "$RUNDIR" "$STATEDIR" || fail "cannot make $RUNDIR"
	[ -e "$TRACERD_CONF" ] || : >"$TRACERD_CONF"
	# shellcheck disable=SC2086 # LAUNCH is words
	${LAUNCH:-} "$TRACERD_BUILD/tracerd" --foreground --config "$TRACERD_CONF" \
		--runtime-dir "$RUNDIR" --state-dir "$STATEDIR" "$@" >>"$TRACERD_LOG" 2>&1 &
	TRACERD_PID=$!
	lib_pids="$lib_pids $TRACERD_PID"
	wait_until $PATIENCE lib_daemon_settled || fail "tracerd did not come up"
	lib_is_gone "$TRACERD_PID" && fail "tracerd ended at start"
	return 0
}

lib_daemon_settled() { lib_is_gone "$TRACERD_PID" || { [ -S "$SOCK" ] && status_json; }; }

# Whatever a test did: the spool's folder, its list and the quota say the same. Not asked of one that does not answer.
check_spool() {
	[ -n "$TRACERD_PID" ] || return 0
	lib_is_gone "$TRACERD_PID" && return 0
	python3 "$TRACERD_SRC/tests/system/lib/__init__.py" spool "$SOCK" "$STATEDIR"
}

# SIGTERM, and the exit status; killed where it does not end.
stop_tracerd() {
	[ -n "$TRACERD_PID" ] || return 0
	if [ -z "${lib_rc:-}" ]; then
		check_spool || fail "the spool when tracerd was stopped"
	fi
	lib_stopping=$TRACERD_PID
	TRACERD_PID=
	kill -TERM "$lib_stopping" 2>/dev/null
	if ! wait_until $PATIENCE lib_is_gone "$lib_stopping"; then
		kill -KILL "$lib_stopping" 2>/dev/null
		wait "$lib_stopping" 2>/dev/null
		return 124
	fi
	wait "$lib_stopping" 2>/dev/null
}

# A zombie of ours is gone, too.
lib_is_gone() {
	lib_state=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) || return 0
	case $lib_state in '' | Z* | X*) return 0 ;; esac
	return 1
}

tracectl() { "$TRACERD_BUILD/tracectl" "$@"; }

# as_user COMMAND...: as uid 65534 without groups and capabilities (needs root). That user may not
# reach a build tree under a closed home directory: user_programs copies to $TMP/bin first.
as_user() {
	setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all "$@"
}

user_programs() {
	mkdir -p "$TMP/bin"
	for lib_program in tracectl tracerd-decode "$@"; do
		cp "$TRACERD_BUILD/$lib_program" "$TMP/bin/" || fail "no $lib_program in the build tree"
	done
	chmod -R a+rX "$TMP/bin"
}

status_json() { python3 "$TRACERD_SRC/tests/system/lib/__init__.py" status "$STATUS_SOCK"; }

# json EXPRESSION: python on the JSON at stdin, as `j`: tracectl list --json | json 'len(j["targets"])'
json() {
	python3 -c 'import json,sys
j = json.load(sys.stdin)
r = eval(sys.argv[1])
print(json.dumps(r) if isinstance(r, (dict, list, bool)) or r is None else r)' "$1"
}

# expect_rc WANT COMMAND...: output in $TMP/out and $TMP/err.
expect_rc() {
	lib_want=$1
	shift
	"$@" >"$TMP/out" 2>"$TMP/err"
	lib_got=$?
	[ "$lib_got" = "$lib_want" ] && return 0
	sed 's/^/# out: /' "$TMP/out" | tail -n 5
	sed 's/^/# err: /' "$TMP/err" | tail -n 5
	fail "exit status $lib_got instead of $lib_want: $*"
}

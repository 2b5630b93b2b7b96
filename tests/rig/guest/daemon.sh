# SPDX-License-Identifier: Apache-2.0
# For scripts in the guest: a daemon, what is waited for, and what is said, in $lines, a line each: NAME VALUE.
debug=/sys/kernel/debug/softpt
lines=/dev/null

say() {
	echo "$@" >>$lines
	echo "rig: $*"
}

# until_so COMMAND...: waits until the command says yes, at most two minutes.
until_so() {
	for i in $(seq 240); do "$@" && return; sleep 0.5; done
	say "timeout $*"
}

# begin_daemon LOG [CONFIG]: with an empty spool; another one that is left is killed. $daemon
begin_daemon() {
	for old in $(pidof tracerd); do kill -9 $old; done
	rm -rf /run/tracerd/control.sock /tmp/spool
	mkdir -p /tmp/spool
	tracerd --config "${2:-/share/guest/tracerd.conf}" >>"$1" 2>&1 &
	daemon=$!
	# Its socket is there before it answers.
	until_so sh -c 'tracectl status >/dev/null 2>&1'
}

end_daemon() {
	kill $daemon
	wait $daemon
}

events() {
	ls -l /proc/$daemon/fd 2>/dev/null | grep -c perf_event
}

no_events() {
	[ "$(events)" = 0 ]
}

# events_left: after a disarming. A thread of the daemon closes them, so that is waited for.
events_left() {
	for i in $(seq 240); do no_events && break; sleep 0.5; done
	events
}

# taken: the snapshot that tracectl has told of in /tmp/said.
taken() {
	sed -n 's/^snapshot \([^ ]*\) of .*/\1/p' /tmp/said
}

# keep_as FOLDER: that one, with the log of the instructions that retired.
keep_as() {
	cp -r "/tmp/spool/spool/$(taken)" "$1"
	cat $debug/retired >"$1/retired"
}

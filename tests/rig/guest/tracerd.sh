# SPDX-License-Identifier: Apache-2.0
# In the guest: what tracerd's own back end records on the software PMU. Each bundle is /share/pt-NAME, with the log of the
# instructions that retired beside it; what is said and counted is in /share/life, a line each: NAME VALUE.
. /share/guest/daemon.sh

lines=/share/life
: >$lines
begin_daemon /share/tracerd.log

# begin NAME ARGUMENT...: life with these arguments, armed, at the read that it waits in. $pid.
begin() {
	name=$1
	shift
	rm -f /tmp/in /tmp/out
	mkfifo /tmp/in
	life "$@" </tmp/in >/tmp/out 2>&1 &
	pid=$!
	exec 7>/tmp/in
	until_so grep -q begun /tmp/out
	echo >$debug/retired
	tracectl arm --backend pt $options $pid || say "$name not armed"
}

# keep NAME: a snapshot of $pid as /share/pt-NAME, and the log.
keep() {
	tracectl snapshot $pid >"/tmp/said" 2>&1
	say "$1-snapshot $?"
	keep_as "/share/pt-$1"
	cp /tmp/said "/share/pt-$1/said"
}

end() {
	tracectl disarm $pid >/dev/null
	kill -9 $pid 2>/dev/null
	exec 7>&-
	say "$1-events-left $(events_left)"
}

# Stopped, so that the log has no more than the trace.
rest() {
	kill -STOP $pid
	sleep 0.5
}

# ---- truth: what was recorded is what retired, whatever the program does meanwhile
options=--no-waits
begin threads storm-exit 20
echo >&7
until_so grep -q made /tmp/out
rest
keep threads
end threads

begin exec exec life spin
echo >&7
sleep 2
rest
keep exec
end exec

begin crash crash
echo >&7
until_so sh -c "! kill -0 $pid 2>/dev/null"
keep crash
end crash

begin killed spin
sleep 1
kill -9 $pid
until_so sh -c "! kill -0 $pid 2>/dev/null"
keep killed
end killed

# The child is a process of its own and is not recorded; its parent is.
begin fork fork
echo >&7
until_so sh -c "! kill -0 $pid 2>/dev/null"
keep fork
end fork

# Signals, exceptions, deep recursion, children, threads: what `mixed` does.
begin mixed exec mixed
echo >&7
until_so sh -c "! kill -0 $pid 2>/dev/null"
keep mixed
end mixed

options='--no-waits --children'
begin children fork
echo >&7
until_so sh -c "! kill -0 $pid 2>/dev/null"
keep children
end children
options=--no-waits

# A ring that has come around, three snapshots of it.
begin wrapped spin
sleep 6
for n in 1 2 3; do
	keep wrapped-$n
	sleep 1
done
end wrapped

# Waits beside it.
options=
begin waits spin
sleep 1
keep waits
tracectl --json show $pid >/share/waits.json
end waits

# ---- who else wants the PMU
options=
begin shared spin
tracectl arm --backend pt --pt-timing high --tid $pid 2>/tmp/said
say "overlap $?"
cp /tmp/said /share/overlap
tracectl arm --pt-timing high --tid $pid >/tmp/said 2>&1
say "overlap-auto $?"
cp /tmp/said /share/overlap-auto
tracectl disarm t$(tracectl --json list | grep -o '"id": *"t[0-9]*"' | tail -1 | tr -dc 0-9)
perf record -q -e intel_pt//u -p $pid -o /tmp/p.data -- sleep 0.1 >/dev/null 2>&1
say "perf-beside-us $?"
end shared
perf record -q -a -e intel_pt//u -o /tmp/p.data -- sleep 20 >/dev/null 2>&1 &
perf=$!
until_so sh -c "ls -l /proc/$perf/fd | grep -q perf_event"
sleep 1
begin held spin 2>/share/held
say "held-events $(events)"
kill -INT $perf
wait $perf
end held

# ---- a unit: its processes, those that they make, and one that is moved into it
mkdir /sys/fs/cgroup/rig
sh -c 'echo $$ >/sys/fs/cgroup/rig/cgroup.procs; exec life spin' >/dev/null &
one=$!
life spin >/dev/null &
two=$!
sleep 1
tracectl arm --backend pt --no-waits --unit /rig
echo $two >/sys/fs/cgroup/rig/cgroup.procs
sleep 4
sh -c 'echo $$ >/sys/fs/cgroup/rig/cgroup.procs; exec life spin' >/dev/null &
three=$!
sleep 4
say "unit-one $one"
say "unit-two $two"
say "unit-three $three"
pid=t$(tracectl --json list | grep -o '"id": *"t[0-9]*"' | tail -1 | tr -dc 0-9)
keep unit
# It is started again: the events of its old processes but the first one are given back.
kill -9 $one $two $three
wait $one $two $three
before=$(events)
rmdir /sys/fs/cgroup/rig
sleep 3
mkdir /sys/fs/cgroup/rig
sh -c 'echo $$ >/sys/fs/cgroup/rig/cgroup.procs; exec life spin' >/dev/null &
again=$!
sleep 4
say "unit-restarted $before $(events)"
say "unit-again $again"
keep unit-again
kill -9 $again
tracectl disarm $pid
say "unit-events-left $(events_left)"

# ---- the host: every process but tracerd's own, which would take minutes to write what it is traced in
echo trace >/sys/module/softpt/parameters/spare
life spin >/dev/null &
one=$!
life spin >/dev/null &
two=$!
sleep 1
tracectl arm --host --no-waits || say "host answered late"
until_so sh -c "tracectl --json list | grep -q '\"scope\": *\"host\"'"
say "host-one $one"
say "host-two $two"
pid=t$(tracectl --json list | grep -o '"id": *"t[0-9]*"' | tail -1 | tr -dc 0-9)
keep host
tracectl disarm $pid
kill -9 $one $two
echo >/sys/module/softpt/parameters/spare
say "host-events-left $(events_left)"

# ---- 64 processes, each a target of its own
many=
for i in $(seq 64); do
	life light >/dev/null &
	many="$many $!"
done
sleep 1
tracectl arm --backend pt --no-waits $many >/dev/null || say "64 processes not armed"
say "processes-events $(events)"
sleep 1
pid=${many##* }
say "processes-last $pid"
keep processes
kill -9 $many
tracectl disarm $many >/dev/null
say "processes-events-left $(events_left)"

# ---- many threads
options=--no-waits
begin storm storm 1000
echo >&7
until_so grep -q made /tmp/out
keep storm
end storm
begin many storm 300
tracectl disarm $pid >/dev/null
echo >&7
until_so grep -q made /tmp/out
tracectl arm --backend pt --no-waits $pid
say "many-events $(events)"
say "many-threads $(ls /proc/$pid/task | wc -l)"
keep many
end many

# ---- a daemon that is killed leaves nothing
begin last spin
kill -9 $daemon
sleep 1
perf record -q -a -e intel_pt//u -o /tmp/p.data -- sleep 0.2 >/dev/null 2>&1
say "perf-after-us $?"
kill -9 $pid

# ---- budgets: refused before anything is opened
ulimit -n 400
rm -f /run/tracerd/control.sock
tracerd --config /share/guest/tracerd.conf >/share/tracerd-2.log 2>&1 &
daemon=$!
until_so [ -S /run/tracerd/control.sock ]
begin budget storm 300
tracectl disarm $pid >/dev/null
echo >&7
until_so grep -q made /tmp/out
tracectl arm --backend pt --no-waits $pid 2>/share/budget
say "budget $?"
end budget

# A unit that has taken most of them grows by a process of one thread, and cannot by one of 300.
sh -c 'echo $$ >/sys/fs/cgroup/rig/cgroup.procs; exec life light' >/dev/null &
one=$!
mkfifo /tmp/in2
life storm 50 </tmp/in2 >/tmp/out2 2>&1 &
most=$!
exec 8>/tmp/in2
until_so grep -q begun /tmp/out2
echo >&8
until_so grep -q made /tmp/out2
echo $most >/sys/fs/cgroup/rig/cgroup.procs
tracectl arm --backend pt --no-waits --unit /rig || say "unit not armed"
life spin >/dev/null &
two=$!
before=$(events)
echo $two >/sys/fs/cgroup/rig/cgroup.procs
sleep 4
say "grown $before $(events)"
begin budget storm 300
tracectl disarm $pid >/dev/null
echo >&7
until_so grep -q made /tmp/out
echo $pid >/sys/fs/cgroup/rig/cgroup.procs
sleep 4
target=t$(tracectl --json list | grep -o '"id": *"t[0-9]*"' | tail -1 | tr -dc 0-9)
tracectl --json show $target >/share/not-grown
kill -9 $one $two $most $pid
exec 7>&- 8>&-
tracectl disarm $target
kill $daemon
wait $daemon
say end 0

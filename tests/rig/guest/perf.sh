# SPDX-License-Identifier: Apache-2.0
# In the guest: what stock perf records on the software PMU, in every mode that a decoder sees a difference in. Each recording is
# /share/NAME/perf.data, with the log of the instructions that retired in it beside it.
. /share/guest/take.sh

# record NAME ARGUMENT...: perf record with these arguments, without its cache of what it has seen.
record() {
	name=$1
	shift
	take "$name" perf record -N -q -o /tmp/perf.data "$@"
}

# The first one with that cache: the vDSO is in it.
take default perf record -q -o /tmp/perf.data -e intel_pt//u -- /rig/mixed
cp "$(find /root/.debug/ -name vdso -type f)" /share/vdso.so

record noretcomp -e intel_pt/noretcomp=1/u -- /rig/mixed
record mtc -e intel_pt/mtc=1,mtc_period=3/u -- /rig/mixed
record cyc -e intel_pt/cyc=1,mtc=1/u -- /rig/mixed
record often-psb -e intel_pt/psb_period=0/u -- /rig/mixed
set_parameter long_tnt 0
set_parameter deferred_tips 0
record short-tnt -e intel_pt//u -- /rig/mixed
set_parameter long_tnt 1
record no-deferral -e intel_pt//u -- /rig/mixed
set_parameter deferred_tips 1
record per-thread --per-thread -e intel_pt//u -- /rig/mixed
record untimed --per-thread -e intel_pt/tsc=0/u -- /rig/mixed
record cpu-wide -a -e intel_pt//u -- /rig/mixed
record small-ring -m,4 -e intel_pt//u -- /rig/mixed
record filter -e intel_pt//u --filter 'filter descend @ /rig/mixed' -- /rig/mixed
record ptwrite -e intel_pt/ptw=1,fup_on_ptw=1/u -- /rig/ptwrites

# On one CPU, so that one ring has the last of everything.
take snapshot taskset 2 perf record -N -q -o /tmp/perf.data -Se -m,16 -e intel_pt/psb_period=0/u -- /rig/mixed 3

snapshot_midway() {
	taskset 2 perf record -N -q -o /tmp/perf.data -S -m,16 -e intel_pt/psb_period=0/u -- /rig/mixed 6 &
	until_counted bytes 100000
	kill -USR2 $!
	wait $!
}
take snapshot-midway snapshot_midway

# A reader that stands still: the ring is full, and what comes then is lost.
slow_reader() {
	perf record -N -q -o /tmp/perf.data -m,4 -e intel_pt//u -- /rig/mixed 2 &
	until_counted bytes 20000
	kill -STOP $!
	until_counted truncations 0
	kill -CONT $!
	wait $!
}
take slow-reader slow_reader

# Of a process that runs already, with all its threads; the last of several, each of which must leave it as it was.
attach() {
	/rig/mixed stay >/dev/null &
	mixed=$!
	for i in $(seq 600); do
		[ "$(ls /proc/$mixed/task | wc -l)" = 4 ] && break
		sleep 0.1
	done
	for i in 1 2 3 4 5; do
		echo >$debug/retired
		perf record -N -q -o /tmp/perf.data -e intel_pt//u -p $mixed -- sleep 0.1
	done
	kill $mixed || echo "it did not survive"
	wait $mixed
}
take attach attach

# What else stops a program at an instruction.
. /share/symbols
echo "p:rig/descend /rig/mixed:0x$descend_offset" >$tracing/uprobe_events
echo 1 >$tracing/events/rig/descend/enable
record uprobe -e intel_pt//u -- /rig/mixed
echo 0 >$tracing/events/rig/descend/enable
echo >$tracing/uprobe_events
echo 0 >/proc/sys/kernel/randomize_va_space
record breakpoint -e mem:0x$descend_fixed:x:u -e intel_pt//u -- /rig/mixed
echo 2 >/proc/sys/kernel/randomize_va_space

set_parameter overflow_every 20000
record overflow -e intel_pt//u -- /rig/mixed
set_parameter overflow_every 0

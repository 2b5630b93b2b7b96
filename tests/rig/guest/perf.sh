# SPDX-License-Identifier: Apache-2.0
# In the guest: what stock perf records on the software PMU, in every mode that a decoder sees a difference in. Each recording is
# /share/NAME/perf.data, with the log of the instructions that retired in it beside it.
debug=/sys/kernel/debug/softpt
parameters=/sys/module/softpt/parameters
tracing=/sys/kernel/tracing

# take NAME COMMAND...: runs the command, which makes /tmp/perf.data, and keeps that and the log.
take() {
	name=$1
	shift
	mkdir -p /share/$name
	rm -f /tmp/perf.data
	echo >$debug/retired
	"$@" >/share/$name/output 2>&1 || echo "exit status $?" >>/share/$name/output
	cp /tmp/perf.data /share/$name/perf.data
	cat $debug/retired >/share/$name/retired
	cat $debug/counts >/share/$name/counts
	echo "rig: $name: $(($(stat -c %s /share/$name/retired) / 16)) instructions, at $(cut -d' ' -f1 /proc/uptime) s"
}
# record NAME EVENT ARGUMENT...: the event goes last of all options but the command's.
record() {
	name=$1
	shift
	take $name perf record -N -q -o /tmp/perf.data "$@"
}

# The first one with perf's cache of what it has seen: the vDSO is in there, too.
take default perf record -q -o /tmp/perf.data -e intel_pt//u -- /rig/mixed
cp "$(find /root/.debug/ -name vdso -type f)" /share/vdso.so

record noretcomp -e intel_pt/noretcomp=1/u -- /rig/mixed
record mtc -e intel_pt/mtc=1,mtc_period=3/u -- /rig/mixed
record cyc -e intel_pt/cyc=1,mtc=1/u -- /rig/mixed
record untimed -e intel_pt/tsc=0/u -- /rig/mixed
record often-psb -e intel_pt/psb_period=0/u -- /rig/mixed
echo 0 >$parameters/long_tnt
echo 0 >$parameters/deferred_tips
record short-tnt -e intel_pt//u -- /rig/mixed
echo 1 >$parameters/long_tnt
record no-deferral -e intel_pt//u -- /rig/mixed
echo 1 >$parameters/deferred_tips
record per-thread --per-thread -e intel_pt//u -- /rig/mixed
record cpu-wide -a -e intel_pt//u -- /rig/mixed
record small-ring -m,4 -e intel_pt//u -- /rig/mixed
record snapshot -Se0x10000 -e intel_pt/psb_period=0/u -- /rig/mixed 3
record filter -e intel_pt//u --filter 'filter descend @ /rig/mixed' -- /rig/mixed
record ptwrite -e intel_pt/ptw=1,fup_on_ptw=1/u -- /rig/ptwrites
echo 20000 >$parameters/overflow_every
record overflow -e intel_pt//u -- /rig/mixed
echo 0 >$parameters/overflow_every

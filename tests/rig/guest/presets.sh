# SPDX-License-Identifier: Apache-2.0
# In the guest: what tracerd asks of processors that lack something, for each preset of times, and what perf record asks of one
# that lacks nothing. In /share/presets, for each: NAME.asked has the attributes, NAME.said what arming said. At the end, an
# overflow in a snapshot.
. /share/guest/take.sh

out=/share/presets
mkdir -p $out

# processor PARAMETER...: the module anew, with these parameters.
processor() {
	rmmod softpt && insmod /softpt.ko log_entries=1000000 "$@"
}

# start TIMING: a daemon. $daemon
start() {
	rm -rf /run/tracerd /tmp/spool
	mkdir -p /tmp/spool
	printf '[daemon]\nstate_dir = /tmp/spool\n[capture]\npt_timing = %s\npt_ring_kib = 256\n' "$1" >/tmp/presets.conf
	tracerd --config /tmp/presets.conf >>$out/tracerd.log 2>&1 &
	daemon=$!
	for i in $(seq 600); do
		tracectl list >/dev/null 2>&1 && return
		sleep 0.1
	done
	echo "tracerd did not start" >>$out/tracerd.log
}

# preset NAME TIMING: arms a process with a daemon of its own.
preset() {
	start "$2"
	echo >$debug/asked
	tracectl --json arm --backend pt $mixed >"$out/$1.said" 2>&1
	cat $debug/asked >"$out/$1.asked"
	tracectl disarm $mixed >/dev/null
	kill $daemon
	wait $daemon
	echo "rig: preset $1, at $(cut -d' ' -f1 /proc/uptime) s"
}

# perf_asks NAME EVENT
perf_asks() {
	echo >$debug/asked
	perf record -N -q -S -o /tmp/perf.data -e "$2" -p $mixed -- true
	cat $debug/asked >"$out/$1.asked"
}

# One that does nothing until it is told to.
mkfifo /tmp/go
life exec /rig/mixed 3 </tmp/go >/dev/null &
mixed=$!
exec 7>/tmp/go

processor
for timing in low normal high; do
	preset $timing $timing
done
perf_asks perf-low intel_pt/mtc=0/u
perf_asks perf-normal intel_pt//u
perf_asks perf-high intel_pt/cyc=1,mtc_period=0/u
processor mtc=0 mtc_periods=0
preset no-mtc high
processor psb_cyc=0 cycle_thresholds=0 psb_periods=0
preset no-cyc high
processor mtc=0 mtc_periods=0 psb_cyc=0 cycle_thresholds=0 psb_periods=0 ptwrite=0 ip_filtering=0 num_address_ranges=0
preset nothing high
processor mtc_periods=0x240 psb_periods=0x1 cycle_thresholds=0x10
preset other-periods high
processor topa_multiple_entries=0
preset one-region normal

# Overflows of the processor in what a snapshot has, by its last bytes: the ring has not come around.
processor overflow_every=20000
start normal
tracectl arm --backend pt --no-waits $mixed >/dev/null
echo >$debug/retired
echo >&7
wait $mixed
tracectl snapshot $mixed >$out/snapshot 2>&1
cp -r /tmp/spool/spool/* /share/overflow-bundle
cat $debug/retired >/share/overflow-bundle/retired
cat $debug/counts >/share/overflow-bundle/counts
kill $daemon
wait $daemon
processor

# SPDX-License-Identifier: Apache-2.0
# In the guest: address filters of tracerd's back end pt, and PTWRITE. Each bundle is /share/filter-NAME with the log of the
# instructions that retired; what was said is in /share/filters, a line each: NAME STATUS TEXT.
. /share/guest/daemon.sh

: >/share/filters
begin_daemon /share/filter-tracerd.log

# said NAME COMMAND...
said() {
	name=$1
	shift
	"$@" >/tmp/said 2>&1
	echo "$name $? $(tr '\n' ' ' </tmp/said)" >>/share/filters
	echo "rig: $name: $(cat /tmp/said)"
}

# keep NAME PID
keep() {
	said "$1" tracectl snapshot "$2"
	keep_as "/share/filter-$1"
}

mixed 100000 >/dev/null &
pid=$!
said unknown tracectl arm --backend pt --filter descent $pid
said elsewhere tracectl arm --backend pt --filter /bin/busybox $pid
said many tracectl arm --backend pt --filter descend,descend,descend,descend,descend $pid
said unit tracectl arm --unit / --filter descend
for code in descend mixed; do
	kill -STOP $pid
	echo >$debug/retired
	said "arm-$code" tracectl arm --backend pt --no-waits --filter $code $pid
	kill -CONT $pid
	for i in $(seq 120); do [ $(cat $debug/retired | wc -c) -gt 100000 ] && break; sleep 0.5; done
	kill -STOP $pid
	sleep 0.5
	keep $code $pid
	tracectl disarm $pid
done
# What the PMU is asked for, by us and by perf in the mode that is the same.
echo >$debug/asked
tracectl arm --backend pt --no-waits $pid
cat $debug/asked >/share/filter-asked-tracerd
tracectl disarm $pid
echo >$debug/asked
perf record -N -q -S -o /tmp/p.data -e intel_pt//u -p $pid -- sleep 0.2 >/dev/null 2>&1
cat $debug/asked >/share/filter-asked-perf
kill -9 $pid

echo >$debug/retired
said run tracectl run --backend pt --no-waits -- ptwrites
keep ptwrites $(sed -n 's/^armed \(t[0-9]*\).*/\1/p' /tmp/said)
end_daemon
rm -f /run/tracerd/control.sock

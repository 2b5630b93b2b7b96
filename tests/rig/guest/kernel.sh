# SPDX-License-Identifier: Apache-2.0
# In the guest: what a trace of the kernel takes. The PMU follows user code only; that the kernel's was asked for, and its code, are here. The
# bundle is /share/kernel; what is said is in /share/kernel-said, a line each: NAME VALUE.
. /share/guest/daemon.sh

lines=/share/kernel-said
: >$lines
# As the service, which has no right to read kcore.
tracerd() {
	exec hostile without-rawio tracerd "$@"
}
begin_daemon /share/kernel.log

# told NAME COMMAND...
told() {
	name=$1
	shift
	"$@" >/tmp/told 2>&1
	say "$name $? $(tr '\n' ' ' </tmp/told)"
}

mixed 100000 >/dev/null &
pid=$!
told refused hostile without-rawio tracectl arm --backend pt --kernel $pid
told filter tracectl arm --backend pt --kernel --filter descend $pid
told host tracectl arm --backend pt --kernel --host
told automatic hostile without-rawio tracectl arm --kernel $pid
tracectl --json show $pid >/share/kernel-automatic
tracectl disarm $pid >/dev/null
tracectl --json arm --backend pt $pid >/dev/null
told without tracectl arm --backend pt --kernel --tid $pid
tracectl disarm $pid >/dev/null

kill -STOP $pid
echo >$debug/asked
echo >$debug/retired
told arm tracectl arm --backend pt --no-waits --kernel $pid
cat $debug/asked >/share/kernel-asked-tracerd
told with tracectl arm --backend pt --tid $pid
told other-arm hostile as 65534 tracectl arm --backend pt --kernel $pid
kill -CONT $pid
for i in $(seq 120); do [ $(cat $debug/retired | wc -c) -gt 100000 ] && break; sleep 0.5; done
kill -STOP $pid
sleep 0.5
tracectl snapshot $pid >/tmp/said 2>&1
say "snapshot $?"
keep_as /share/kernel
id=$(taken)
told other-fetch hostile as 65534 tracectl show $id
kcore /share/kernel/kcore >/share/kernel-compared
say "compared $?"
tracectl disarm $pid >/dev/null
echo >$debug/asked
perf record -N -q -S -o /tmp/p.data -e intel_pt// -p $pid -- sleep 0.2 >/dev/null 2>&1
cat $debug/asked >/share/kernel-asked-perf
kill -9 $pid
end_daemon
rm -f /run/tracerd/control.sock
say end 0

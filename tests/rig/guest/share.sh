# SPDX-License-Identifier: Apache-2.0
# In the guest: targets that have threads in common, a target's own settings, and the host. What is said is in /share/shared, a
# line each: NAME VALUE; each bundle is /share/shared-NAME.
. /share/guest/daemon.sh

lines=/share/shared
: >$lines

last_target() {
	tracectl --json list | grep -o '"id": *"t[0-9]*"' | tail -1 | grep -o 't[0-9]*"' | tr -d '"'
}

keep() {
	tracectl snapshot $2 >/tmp/said 2>&1
	say "$1-snapshot $?"
	keep_as "/share/shared-$1"
}

begin_daemon /share/tracerd-share.log

# ---- a unit of two processes on one CPU, so in one ring, and one of them
mkdir -p /sys/fs/cgroup/shared
sh -c 'echo $$ >/sys/fs/cgroup/shared/cgroup.procs; exec taskset 1 life spin' >/dev/null &
one=$!
sh -c 'echo $$ >/sys/fs/cgroup/shared/cgroup.procs; exec taskset 1 life spin' >/dev/null &
two=$!
sleep 1
say "one $one"
say "two $two"
echo >$debug/retired
tracectl arm --backend pt --no-waits --unit /shared
unit=$(last_target)
say "unit-events $(events)"
tracectl arm --backend pt --no-waits $one >/share/shared-part.said 2>&1
say "part-armed $?"
part=$(last_target)
say "both-events $(events)"
tracectl arm --backend pt --no-waits --pt-timing high --tid $one >/share/shared-other.said 2>&1
say "other-settings $?"
sleep 1
kill -STOP $one $two
sleep 0.5
keep part $part
tracectl --json show $part >/share/shared-part.json
# Its recording stays as long as somebody has it.
tracectl disarm $unit
say "alone-events $(events)"
kill -CONT $one $two
sleep 1
kill -STOP $one $two
sleep 0.5
keep alone $part
tracectl disarm $part
say "share-events-left $(events_left)"

# ---- settings of its own
tracectl arm --backend pt --no-waits --pt-ring 64 --pt-timing high $one
part=$(last_target)
tracectl --json show $part >/share/shared-settings.json
tracectl disarm $part
say "settings-events-left $(events_left)"

# ---- the host. The guest is stepped, all of it: with what is frozen taken, it is disarmed, before it is copied and decoded.
kill -CONT $one $two
tracectl arm --host --no-waits || say "host answered late"
host=t4
say "host-target $(tracectl --json list | grep -c '"scope": *"host"')"
tracectl snapshot --no-wait $host >/tmp/said
say "host-snapshot $?"
tracectl disarm $host
kill -9 $one $two
id=$(grep -o '20[0-9]*-[0-9]*-[0-9a-f]*' /tmp/said | head -1)
until_so [ -e "/tmp/spool/spool/$id/meta.json" ]
cp -r "/tmp/spool/spool/$id" /share/shared-host
say "host-events-left $(events_left)"
kill -9 $daemon
say end 0

# SPDX-License-Identifier: Apache-2.0
# In the guest: a CPU that comes online after a program was armed, and goes and comes again. Bundles are /share/hotplug-*, with the log of the
# instructions that retired beside each; what is said is in /share/hotplug, a line each: NAME VALUE.
. /share/guest/daemon.sh

one=/sys/devices/system/cpu/cpu1/online
lines=/share/hotplug
: >$lines

# start LINE...: a daemon with these lines of the section capture. $daemon
start() {
	printf '%s\n' '[daemon]' 'state_dir = /tmp/spool' '[snapshot]' 'decoder_timeout_s = 600' '[capture]' "$@" >/tmp/hotplug.conf
	begin_daemon /share/hotplug.log /tmp/hotplug.conf
}

# begin ARGUMENT...: life with these arguments, at the read that it waits in. $pid
begin() {
	rm -f /tmp/hotplug.in /tmp/hotplug.out
	mkfifo /tmp/hotplug.in
	life "$@" </tmp/hotplug.in >/tmp/hotplug.out &
	pid=$!
	exec 7>/tmp/hotplug.in
	until_so grep -q begun /tmp/hotplug.out
}

end() {
	tracectl disarm "$1" >/dev/null
	kill -9 $pid
	exec 7>&-
}

# move MASK: all its threads to these CPUs.
move() {
	for task in /proc/$pid/task/*; do taskset -p $1 ${task##*/} >/dev/null; done
}

steps() {
	sed -n 's/^steps //p' $debug/counts
}

# So many instructions more are traced, or that takes two minutes.
run_on() {
	to=$(($(steps) + $1))
	until_so sh -c "[ \$(sed -n 's/^steps //p' $debug/counts) -gt $to ]"
}

# keep NAME TARGET: a snapshot of what stands still.
keep() {
	kill -STOP $pid
	sleep 0.5
	tracectl snapshot $2 >/tmp/said 2>&1
	say "$1-snapshot $?"
	keep_as "/share/hotplug-$1"
	kill -CONT $pid
}

missed() {
	tracectl --json list | sed -n 's/.*"cpus_not_traced": *\([0-9]*\).*/\1/p' | head -1
}

echo 0 >$one
say "offline $(cat /sys/devices/system/cpu/online)"

# ---- a CPU that comes when it is armed: threads from before that, and later ones
start 'pt_ring_kib = 4096'
begin crew 3
echo >$debug/retired
tracectl arm --backend pt --no-waits $pid || say "not armed"
echo >&7
until_so grep -q made /tmp/hotplug.out
run_on 2000
echo 1 >$one
move 2
run_on 4000
keep came $pid
# Its log of what processes map goes on there, too.
echo 0 >$one
run_on 2000
echo 1 >$one
move 2
run_on 4000
keep again $pid
say "missed $(missed)"
end $pid
say "events-left $(events_left)"

# ---- the place of a trigger, on the CPU that came
echo 0 >$one
rm -f /tmp/hit.in /tmp/hit.out
mkfifo /tmp/hit.in
hit anywhere </tmp/hit.in >/tmp/hit.out &
pid=$!
exec 7>/tmp/hit.in
until_so grep -q begun /tmp/hit.out
tracectl arm --backend pt --no-waits $pid
tracectl --json trigger add $pid --hit the_place --cooldown 1h >/dev/null
before=$(ls /tmp/spool/spool)
echo 1 >$one
move 2
echo w >&7
until_so sh -c "[ \$(ls /tmp/spool/spool | wc -l) -gt $(echo "$before" | wc -l) ]"
until_so sh -c '! tracectl --json snapshots | grep -qE "\"state\": \"(queued|freezing|copying|decoding|publishing)\""'
for id in $(ls /tmp/spool/spool); do
	echo "$before" | grep -q "$id" || cp -r /tmp/spool/spool/$id /share/hotplug-hit
done
end $pid
end_daemon

# ---- one that there was no memory for when it was armed
echo 0 >$one
start 'pt_ring_kib = 1024' 'pt_total_mib = 1'
begin crew 1
echo >$debug/retired
tracectl arm --backend pt --no-waits $pid >/share/hotplug-poor.said 2>&1 || say "not armed, poor"
echo >&7
until_so grep -q made /tmp/hotplug.out
run_on 2000
say "poor-before $(missed)"
echo 1 >$one
move 2
until_so sh -c 'tracectl --json list | grep -q "\"cpus_not_traced\": *1"'
# It runs there, and nobody sees it, and comes back.
sleep 1
move 1
run_on 2000
keep poor $pid
tracectl --json list >/share/hotplug-poor.list
tracectl show $pid >/share/hotplug-poor.show
tracectl --json status >/share/hotplug-poor.status
end $pid

# ---- the host: events of whole CPUs. Little runs, since all of it is stepped.
echo 0 >$one
echo trace >/sys/module/softpt/parameters/spare
begin crew 1
echo >&7
until_so grep -q made /tmp/hotplug.out
tracectl arm --host --no-waits || say "host answered late"
until_so sh -c "tracectl --json list | grep -q '\"scope\": *\"host\"'"
host=t$(tracectl --json list | grep -o '"id": *"t[0-9]*"' | tail -1 | tr -dc 0-9)
echo 1 >$one
move 2
until_so sh -c 'tracectl --json list | grep -q "\"cpus_not_traced\": *1"'
tracectl snapshot --no-wait $host >/tmp/said
tracectl disarm $host
id=$(grep -o '20[0-9]*-[0-9]*-[0-9a-f]*' /tmp/said | head -1)
until_so [ -e "/tmp/spool/spool/$id/meta.json" ]
cp -r "/tmp/spool/spool/$id" /share/hotplug-host
kill -9 $pid
exec 7>&-
echo >/sys/module/softpt/parameters/spare
say "host-events-left $(events_left)"
end_daemon
say end 0

# SPDX-License-Identifier: Apache-2.0
# In the guest: a trigger on a place in the code of a program that Intel PT records. The snapshot that it takes is /share/hit.
. /share/guest/daemon.sh

begin_daemon /share/hit.log
mkfifo /tmp/hit.in
hit </tmp/hit.in >/tmp/hit.out &
pid=$!
exec 7>/tmp/hit.in
until_so grep -q begun /tmp/hit.out
tracectl arm --backend pt --no-waits $pid
tracectl --json trigger add $pid --hit the_place --cooldown 1h >/share/hit.trigger
tracectl trigger list >/share/hit.words
echo w >&7
until_so sh -c 'tracectl --json snapshots | grep -q "\"state\": \"done\""'
tracectl --json trigger list >/share/hit.list
first=$(ls /tmp/spool/spool)
cp -r /tmp/spool/spool/$first /share/hit
tracectl show $first >/share/hit.shown
# If its trace was paused it goes on when the thread has run for a moment.
sleep 1
for i in 1 2 3; do
	echo s >&7
	until_so sh -c "[ \$(grep -c 'did s' /tmp/hit.out) = $i ]"
done
echo l >&7
until_so grep -q 'did l' /tmp/hit.out
tracectl --json snapshot $pid >/share/hit.later.json 2>&1
cp -r /tmp/spool/spool/$(ls /tmp/spool/spool | grep -v $first) /share/hit-later
tracectl disarm $pid >/dev/null
# Threads: one that has inherited the trace before the trigger was there, and one after it.
mkfifo /tmp/threads.in
hit </tmp/threads.in >/tmp/threads.out &
threads=$!
exec 8>/tmp/threads.in
until_so grep -q begun /tmp/threads.out
tracectl arm --backend pt --no-waits $threads
did() { [ $(grep -c "did $1" /tmp/threads.out) = $2 ]; }
echo t >&8
until_so did t 1
for who in 1 0; do
	before=$(ls /tmp/spool/spool | wc -l)
	tracectl --json trigger add $threads --hit the_place --cooldown 1h >/share/threads-$who.trigger
	if [ $who = 1 ]; then
		echo t >&8
		until_so did t 2
	fi
	tracectl --json trigger list >/share/threads-$who.list
	echo $who >&8
	until_so sh -c "[ \$(ls /tmp/spool/spool | wc -l) -gt $before ]"
	until_so sh -c '! tracectl --json snapshots | grep -qE "\"state\": \"(queued|freezing|copying|decoding|publishing)\""'
	cp -r /tmp/spool/spool/$(ls -t /tmp/spool/spool | head -1) /share/threads-$who
	tracectl trigger remove $(sed -n 's/.*"id": "\(g[0-9]*\)".*/\1/p' /share/threads-$who.trigger | head -1) >/dev/null
done
tracectl disarm $threads >/dev/null
kill -9 $threads
events >/share/hit.events
kill -9 $pid $daemon
exit 0

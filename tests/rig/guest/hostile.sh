# SPDX-License-Identifier: Apache-2.0
# In the guest: programs and moments that make it hard to say who executed what. Each bundle is /share/hostile-NAME, with the log of the
# instructions that retired beside it; what is said is in /share/hostile, a line each: NAME VALUE. Nothing is decoded here.
. /share/guest/daemon.sh

lines=/share/hostile
: >$lines
printf '%s\n' '[daemon]' 'state_dir = /tmp/spool' 'decoder = /bin/false' '[capture]' 'pt_ring_kib = 1024' >/tmp/hostile.conf
begin_daemon /share/hostile.log /tmp/hostile.conf

# begin ARGUMENT...: hostile with these, armed with $options, at the read that it waits in. $pid
begin() {
	rm -f /tmp/in /tmp/out
	mkfifo /tmp/in
	hostile "$@" </tmp/in >/tmp/out 2>&1 &
	pid=$!
	exec 7>/tmp/in
	until_so grep -q begun /tmp/out
	echo >$debug/retired
	tracectl arm --backend pt --no-waits $options $pid >/dev/null || say "not-armed $*"
	echo >&7
}

end() {
	tracectl disarm $pid >/dev/null 2>&1
	kill -9 $(pidof hostile) 2>/dev/null
	exec 7>&-
	say "$1-events-left $(events_left)"
}

# take NAME: a snapshot that is not waited for. left NAME: it is here.
take() {
	tracectl snapshot --no-wait $pid >/tmp/said-$1 2>&1
	say "$1-snapshot $?"
}

left() {
	until_so sh -c '! tracectl --json snapshots | grep -qE "\"state\": \"(queued|freezing|copying|decoding|publishing)\""'
	cp -r "/tmp/spool/spool/$(grep -o '20[0-9]*-[0-9]*-[0-9a-f]*' /tmp/said-$1 | head -1)" "/share/hostile-$1"
	cat $debug/retired >"/share/hostile-$1/retired"
}

# whole NAME ARGUMENT...: what it did until it was made.
whole() {
	name=$1
	shift
	begin "$@"
	until_so grep -q made /tmp/out
	sleep 0.3
	take $name
	left $name
	end $name
}

options=
whole migrate migrate 100
whole libs libs /rig/plugin.so /rig/other-plugin.so
whole coroutines coroutines
whole jit jit
whole thread-exec thread-exec
options=--children
whole spawn spawn
options=

# While it executes itself again and again, twice in a row.
begin execs
take execs-1
take execs-2
kill -STOP $pid
left execs-1
left execs-2
end execs

# Threads come and end while all is stopped; it is disarmed in the middle.
begin churn 4
sleep 0.3
take churn
tracectl disarm $pid >/dev/null
say "churn-disarm $?"
kill -9 $pid
left churn
end churn

# The same, but it is killed in the middle.
begin churn 4
sleep 0.3
take killed
kill -9 $pid
left killed
end killed

# One ring comes around, the other one does not; twice, so that both have the same bytes.
options='--pt-ring 64'
begin pair
until_so sh -c "[ \$(cat $debug/retired | wc -c) -gt 1600000 ]"
take pair-1
take pair-2
kill -STOP $pid
left pair-1
left pair-2
end pair

# Processes begin while all are being stopped, which takes long.
options=--children
rm -f /tmp/in /tmp/out
mkfifo /tmp/in
hostile builds 4 </tmp/in >/tmp/out 2>&1 &
pid=$!
exec 7>/tmp/in
until_so grep -q begun /tmp/out
echo >&7
until_so grep -q made /tmp/out
echo >$debug/retired
tracectl arm --backend pt --no-waits --children $pid >/dev/null || say "not-armed builds"
echo >&7
sleep 1
take builds-1
sleep 1
take builds-2
kill -STOP $(pidof hostile)
left builds-1
left builds-2
end builds

# Who armed less has it.
options=--tid
begin churn 1
tracectl arm --backend pt --no-waits $pid >/share/hostile-larger 2>&1
say "larger $?"
hostile as 65534 tracectl snapshot $pid >/share/hostile-others 2>&1
say "others-snapshot $?"
hostile as 65534 tracectl arm --backend pt --no-waits $pid >>/share/hostile-others 2>&1
say "others-arm $?"
end larger
end_daemon
say end 0

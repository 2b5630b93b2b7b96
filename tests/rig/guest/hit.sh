# SPDX-License-Identifier: Apache-2.0
# In the guest: a trigger on a place in the code of a program that Intel PT records. The snapshot that it takes is /share/hit.
for pid in $(pidof tracerd); do kill -9 $pid; done
rm -rf /run/tracerd/control.sock /tmp/spool
mkdir -p /tmp/spool
tracerd --config /share/guest/tracerd.conf >/share/hit.log 2>&1 &
daemon=$!

until_so() {
	for i in $(seq 240); do "$@" && return; sleep 0.5; done
	echo "rig: timeout: $*"
}

until_so [ -S /run/tracerd/control.sock ]
mkfifo /tmp/hit.in
hit </tmp/hit.in >/tmp/hit.out &
pid=$!
exec 7>/tmp/hit.in
until_so grep -q begun /tmp/hit.out
tracectl arm --backend pt --no-waits $pid
tracectl --json trigger add $pid --hit the_place --cooldown 1h >/share/hit.trigger
echo >&7
until_so sh -c 'tracectl --json snapshots | grep -q "\"state\": \"done\""'
tracectl --json trigger list >/share/hit.list
cp -r /tmp/spool/spool/2* /share/hit
tracectl show "$(ls /tmp/spool/spool)" >/share/hit.shown
tracectl disarm $pid >/dev/null
ls -l /proc/$daemon/fd | grep -c perf_event >/share/hit.events
kill -9 $pid $daemon
exit 0

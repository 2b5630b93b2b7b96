# SPDX-License-Identifier: Apache-2.0
# In the guest: a program that was deep in calls before it was armed, and that runs when it is frozen. Its bundle is /share/callers.
mkdir -p /tmp/spool
rm -f /run/tracerd/control.sock
tracerd --config /share/guest/tracerd.conf >/share/callers.log 2>&1 &
daemon=$!
for i in $(seq 240); do [ -S /run/tracerd/control.sock ] && break; sleep 0.5; done
deep &
pid=$!
sleep 1
tracectl arm --backend pt $pid
sleep 4
id=$(tracectl snapshot $pid 2>&1 | sed -n 's/^snapshot \([^ ]*\) of .*/\1/p')
cp -r "/tmp/spool/spool/$id" /share/callers
echo $pid >/share/callers/pid
tracectl disarm $pid
kill -9 $pid
kill $daemon
wait $daemon
true

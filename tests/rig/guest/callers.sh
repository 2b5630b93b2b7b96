# SPDX-License-Identifier: Apache-2.0
# In the guest: a program that was deep in calls before it was armed, and that runs when it is frozen. Its bundle is /share/callers.
. /share/guest/daemon.sh

begin_daemon /share/callers.log
deep &
pid=$!
sleep 1
tracectl arm --backend pt $pid
sleep 4
tracectl snapshot $pid >/tmp/said 2>&1
cp -r "/tmp/spool/spool/$(taken)" /share/callers
echo $pid >/share/callers/pid
tracectl disarm $pid
kill -9 $pid
end_daemon
true

# SPDX-License-Identifier: Apache-2.0
# In the guest: a program without frame pointers whose threads exit all the time, by samples. Its bundles are /share/samples-*.
. /share/guest/daemon.sh

begin_daemon /share/samples.log
exits &
pid=$!
for how in dwarf bpf; do
	tracectl arm --backend sample --stacks $how $pid
	sleep 6
	tracectl show $pid >/share/samples-$how.show
	tracectl snapshot $pid >/tmp/said 2>&1
	cp -r "/tmp/spool/spool/$(taken)" /share/samples-$how
	tracectl disarm $pid
done
kill -9 $pid
end_daemon
true

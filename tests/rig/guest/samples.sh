# SPDX-License-Identifier: Apache-2.0
# In the guest: a program without frame pointers whose threads exit all the time, by samples. Its bundles are /share/samples-*.
mkdir -p /tmp/spool
rm -f /run/tracerd/control.sock
tracerd --config /share/guest/tracerd.conf >/share/samples.log 2>&1 &
daemon=$!
for i in $(seq 240); do [ -S /run/tracerd/control.sock ] && break; sleep 0.5; done
exits &
pid=$!
for how in dwarf bpf; do
	tracectl arm --backend sample --stacks $how $pid
	sleep 6
	tracectl show $pid >/share/samples-$how.show
	id=$(tracectl snapshot $pid 2>&1 | sed -n 's/^snapshot \([^ ]*\) of .*/\1/p')
	cp -r "/tmp/spool/spool/$id" /share/samples-$how
	tracectl disarm $pid
done
kill -9 $pid
kill $daemon
wait $daemon
true

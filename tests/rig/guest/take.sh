# SPDX-License-Identifier: Apache-2.0
# For scripts in the guest: a recording, and the log of the instructions that retired in it.
debug=/sys/kernel/debug/softpt
tracing=/sys/kernel/tracing

set_parameter() {
	echo "$2" >/sys/module/softpt/parameters/"$1"
}

# count NAME: of the module, since it was loaded.
count() {
	sed -n "s/^$1 //p" $debug/counts
}

# until_counted NAME MORE: waits until the module has counted more than so many since take() began, at most a minute.
until_counted() {
	for i in $(seq 600); do
		[ $(($(count "$1") - $(sed -n "s/^$1 //p" /tmp/counts))) -gt "$2" ] && return
		sleep 0.1
	done
	echo "no more than $2 $1 after a minute"
}

# take NAME COMMAND...: runs the command, which makes /tmp/perf.data, and keeps that, the log and what was counted meanwhile.
take() {
	name=$1
	shift
	mkdir -p "/share/$name"
	rm -f /tmp/perf.data
	cp $debug/counts /tmp/counts
	echo >$debug/retired
	"$@" >"/share/$name/output" 2>&1
	echo $? >"/share/$name/status"
	cat $debug/retired >"/share/$name/retired"
	while read -r what before; do
		echo "$what $(($(count "$what") - before))"
	done </tmp/counts >"/share/$name/counts"
	cp /tmp/perf.data "/share/$name/perf.data"
	echo "rig: $name: $(($(stat -c %s "/share/$name/retired") / 16)) instructions, at $(cut -d' ' -f1 /proc/uptime) s"
}

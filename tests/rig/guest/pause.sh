# SPDX-License-Identifier: Apache-2.0
# In the guest, on a kernel that can pause Intel PT: what a breakpoint in the trace's group does, in /share/pause. At the end the
# module is one that cannot be paused, and then the first one again.
out=/share/pause
mkdir -p $out
pause probe >$out/can 2>$out/output || exit 1
echo >/sys/kernel/debug/softpt/retired
pause $out >$out/said 2>>$out/output || { cat $out/output; exit 1; }
rmmod softpt && insmod /softpt.ko aux_pause=0 || exit 1
pause probe >$out/cannot 2>>$out/output || exit 1
rmmod softpt && insmod /softpt.ko $(cat /share/parameters)

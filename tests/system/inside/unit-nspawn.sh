#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs as root inside of the container that tests/system/unit-nspawn.sh boots; says its results in
# /results/tap and leaves /results/passed.
exec >/results/log 2>&1
set -u
touch /results/began
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ok() { echo "ok - $*" >>/results/tap; }
die() {
	echo "not ok - $*" >>/results/tap
	journalctl --sync
	journalctl --no-pager -o short-precise -u tracerd.service -u tracerd.socket >/results/journal
	systemctl --no-pager status tracerd.service tracerd.socket >>/results/journal
	exit 1
}
field() { python3 -c 'import json, sys
j = json.load(sys.stdin)
print(eval(sys.argv[1]))' "$1"; }

ldconfig
systemd-sysusers || die "systemd-sysusers"
systemd-tmpfiles --create || true
getent passwd tracerd && getent group tracerd || die "no user tracerd"
[ "$(stat -c %U:%G:%a /run/tracerd)" = tracerd:tracerd:755 ] || die "/run/tracerd: $(stat -c %U:%G:%a /run/tracerd)"
ok "systemd-sysusers and systemd-tmpfiles made the user and the folders"

systemctl start tracerd.socket tracerd-status.socket || die "sockets"
systemctl start tracerd.service || die "systemctl start tracerd"
pid=$(systemctl show -P MainPID tracerd)
[ "$(stat -c %U "/proc/$pid")" = tracerd ] || [ "$(awk '/^Uid:/{print $2}' "/proc/$pid/status")" = "$(id -u tracerd)" ] || die "does not run as tracerd"
ok "the unit runs as user tracerd"
# CHECKPOINT_RESTORE 40, BPF 39, PERFMON 38, SYS_PTRACE 19, IPC_LOCK 14; those of the opener are given up, but for one
# (DAC_READ_SEARCH 2) that is put aside
[ "$(awk '/^CapPrm:/{print $2}' "/proc/$pid/status")" = 000001c000084004 ] || die "$(grep CapPrm "/proc/$pid/status")"
for set in CapEff CapAmb; do
	[ "$(awk "/^$set:/{print \$2}" "/proc/$pid/status")" = 000001c000084000 ] || die "$set $(grep $set "/proc/$pid/status")"
done
ok "it has the five capabilities and no other"
tracectl status --json >/results/status.json || die "tracectl status"
ok "root asks for its status"

useradd --no-create-home --shell /bin/bash alice || die "useradd"
useradd --no-create-home bob || die "useradd"
install -d -o alice -g alice /tmp/alice
# Standard input stays open as long as the target is to run.
mkfifo /tmp/hold
sleep 1000 >/tmp/hold &
setpriv --reuid alice --regid alice --init-groups /opt/test/target busy 2 </tmp/hold >/tmp/alice/ready &
target=$!
until [ -s /tmp/alice/ready ]; do sleep 0.1; done
alice() { (cd /tmp/alice && setpriv --reuid alice --regid alice --init-groups --inh-caps=-all "$@"); }
bob() { setpriv --reuid bob --regid bob --clear-groups --inh-caps=-all "$@"; }

alice tracectl arm "$target" --json >/results/arm.json || die "alice arms her process"
ok "an ordinary user arms a process of their own: $(field '" ".join((j["targets"][0]["method"], j["targets"][0]["stacks"]))' </results/arm.json)"
alice tracectl arm 1 && die "alice arms pid 1"
bob tracectl arm "$target" && die "bob arms alice's process"
ok "not another's"
sleep 2
alice tracectl snapshot "$target" -o /tmp/alice/trace.pftrace || die "alice takes a snapshot"
[ "$(stat -c %s /tmp/alice/trace.pftrace)" -gt 1000 ] || die "the trace is empty"
ok "takes a snapshot: $(stat -c %s /tmp/alice/trace.pftrace) bytes of trace"

alice tracectl snapshots --json >/results/snapshots.json || die "alice lists snapshots"
id=$(field '(j["snapshots"] if isinstance(j, dict) else j)[0]["id"]' </results/snapshots.json) || die "no snapshot in the list"
[ "$(field '(j["snapshots"] if isinstance(j, dict) else j)[0]["state"]' </results/snapshots.json)" = done ] || die "the snapshot is not done"
alice tracectl fetch "$id" -o /tmp/alice/bundle/ || die "alice fetches"
for f in meta.json perf.data trace.pftrace; do
	[ -s "/tmp/alice/bundle/$f" ] || die "no $f in what was fetched: $(ls -l /tmp/alice/bundle)"
done
[ "$(stat -c %U /tmp/alice/bundle/meta.json)" = alice ] || die "the fetched files are not alice's"
ok "and fetches it"
for layer in no_new_privs seccomp; do
	[ "$(field "j['decoder']['stats']['sandbox']['$layer']" </tmp/alice/bundle/meta.json)" = True ] ||
		die "the decoder ran without $layer: $(field "j['decoder']" </tmp/alice/bundle/meta.json)"
done
ok "the decoder was confined: $(field "', '.join(k for k, v in j['decoder']['stats']['sandbox'].items() if v is True)" </tmp/alice/bundle/meta.json)"
# Stepped: by tracerd-step as alice, whoever asks; the service neither traces nor starts anything.
setpriv --reuid alice --regid alice --init-groups /opt/test/target busy 1 </tmp/hold >/tmp/alice/ready2 &
stepped=$!
until [ -s /tmp/alice/ready2 ]; do sleep 0.1; done
tracer() { awk '/^TracerPid:/{print $2}' "/proc/$stepped/status"; }
stepped_as() {
	[ "$(tracer)" != 0 ] || die "$1: nobody steps the process"
	[ "$(awk '/^Uid:/{print $2, $3, $4, $5}' "/proc/$(tracer)/status")" = "$(id -u alice) $(id -u alice) $(id -u alice) $(id -u alice)" ] ||
		die "$1: the stepper is not alice's: $(grep Uid "/proc/$(tracer)/status")"
	[ "$(awk '/^CapEff:/{print $2}' "/proc/$(tracer)/status")" = 0000000000000000 ] || die "$1: the stepper has capabilities"
}
free_again() {
	for _ in $(seq 100); do [ "$(tracer)" = 0 ] && return; sleep 0.1; done
	die "$1: it is traced for good"
}
alice tracectl arm --backend step "$stepped" || die "alice has her process stepped"
stepped_as alice
alice tracectl snapshot "$stepped" --json >/results/stepped.json || die "alice takes a snapshot of what is stepped"
alice tracectl fetch "$(field 'j["snapshot"]["id"]' </results/stepped.json)" -o /tmp/alice/stepped/ || die "alice fetches it"
[ "$(field 'j["events"]["step"]["recorded"] and j["decoder"]["stats"]["instructions"] > 0' </tmp/alice/stepped/meta.json)" = True ] ||
	die "there is no instruction in it: $(cat /tmp/alice/stepped/meta.json)"
ok "a user has a process stepped: $(field 'j["decoder"]["stats"]["instructions"]' </tmp/alice/stepped/meta.json) instructions"
alice tracectl disarm "$stepped" || die "alice disarms it"
free_again alice
tracectl arm --backend step "$stepped" || die "root has alice's process stepped"
stepped_as root
tracectl snapshot "$stepped" || die "root takes a snapshot of what is stepped"
bob tracectl arm --backend step "$stepped" && die "bob has alice's process stepped"
tracectl disarm "$stepped" || die "root disarms it"
free_again root
ok "so has root, as that user; nobody else"
alice tracectl arm --backend step "$stepped" || die "alice has her process stepped again"
bob tracectl fetch "$id" -o /tmp/bob.pftrace && die "bob fetches alice's snapshot"
[ "$(stat -c %U:%a /var/lib/tracerd)" = tracerd:700 ] || die "the spool is open: $(stat -c %U:%a /var/lib/tracerd)"
ok "nobody else does"

systemctl kill -s KILL tracerd.service
for _ in $(seq 100); do
	now=$(systemctl show -P MainPID tracerd)
	[ "$now" != 0 ] && [ "$now" != "$pid" ] && [ "$(systemctl is-active tracerd)" = active ] && break
	sleep 0.1
done
[ "$now" != 0 ] && [ "$now" != "$pid" ] || die "not restarted after SIGKILL"
kill -0 "$target" || die "the target died with it"
kill -0 "$stepped" || die "the stepped target died with it"
free_again "tracerd was killed"
alice tracectl snapshots --json | grep -q "$id" || die "the snapshot is gone after the restart"
ok "killed, it is restarted; target and snapshot are unharmed"

systemctl stop tracerd.service || die "systemctl stop"
[ "$(systemctl show -P Result tracerd)" = success ] || die "stopped with $(systemctl show -P Result tracerd)"
alice tracectl status --json >/dev/null || die "a connection does not start the service"
[ "$(systemctl is-active tracerd)" = active ] || die "socket activation"
ok "stopped, a client's connection starts it again"
alice tracectl delete "$id" || die "alice deletes her snapshot"
journalctl --no-pager -o cat -u tracerd >/results/journal
grep -iE 'seccomp|denied|not permitted' /results/journal && die "something was refused"
touch /results/passed

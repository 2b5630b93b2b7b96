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

# The uid of the user in lib/deputy.py. The service sees no home; this one is closed to all others as well.
useradd --no-create-home --uid 12345 --shell /bin/bash alice || die "useradd"
install -d -o alice -g alice -m 0700 /home/alice || die "/home/alice"
install -o alice -g alice -m 0700 /opt/test/target /home/alice/target || die "/home/alice/target"
useradd --no-create-home bob || die "useradd"
install -d -o alice -g alice /tmp/alice
# Standard input stays open as long as the target is to run.
mkfifo /tmp/hold
sleep 1000 >/tmp/hold &
setpriv --reuid alice --regid alice --init-groups /home/alice/target busy 2 </tmp/hold >/tmp/alice/ready &
target=$!
until [ -s /tmp/alice/ready ]; do sleep 0.1; done
alice() { (cd /tmp/alice && setpriv --reuid alice --regid alice --init-groups --inh-caps=-all "$@"); }
bob() { setpriv --reuid bob --regid bob --clear-groups --inh-caps=-all "$@"; }

[ "$(nsenter -t "$pid" -m stat -c %d /proc)" = "$(stat -c %d /proc)" ] ||
	die "the unit has a /proc of its own: BindPaths=/proc does not hold, and no user can arm"
alice tracectl arm "$target" --json >/results/arm.json || die "alice arms her process"
ok "an ordinary user arms a process of their own: $(field '" ".join((j["targets"][0]["method"], j["targets"][0]["stacks"]))' </results/arm.json)"
alice tracectl arm 1 && die "alice arms pid 1"
bob tracectl arm "$target" && die "bob arms alice's process"
ok "not another's"
sleep 2
alice tracectl snapshot "$target" -o /tmp/alice/trace.pftrace || die "alice takes a snapshot"
[ "$(stat -c %s /tmp/alice/trace.pftrace)" -gt 1000 ] || die "the trace is empty"
ok "takes a snapshot: $(stat -c %s /tmp/alice/trace.pftrace) bytes of trace"
# SETUID 7, SETGID 6, DAC_READ_SEARCH 2
front=$(pgrep -P "$pid" -x tracerd-open) || die "no tracerd-open"
caps() { awk '/^Cap(Inh|Prm|Eff|Amb):/{printf "%s%s", sep, $2; sep = " "}' "/proc/$1/status"; }
none=0000000000000000 three=00000000000000c4
[ "$(caps "$front")" = "$none $three $three $none" ] || die "capabilities of tracerd-open: $(caps "$front")"
worker=$(pgrep -P "$front" -x tracerd-open | head -n 1)
[ -n "$worker" ] || die "no worker of tracerd-open"
[ "$(caps "$worker")" = "$none $none $none $none" ] || die "capabilities of alice's worker: $(caps "$worker")"
[ "$(awk '/^Uid:/{print $5}' "/proc/$worker/status")" = "$(id -u alice)" ] || die "$(grep Uid "/proc/$worker/status"): not alice"
ok "who opens files for alice is alice and has no capability; who made him has three"

alice tracectl snapshots --json >/results/snapshots.json || die "alice lists snapshots"
id=$(field '(j["snapshots"] if isinstance(j, dict) else j)[0]["id"]' </results/snapshots.json) || die "no snapshot in the list"
[ "$(field '(j["snapshots"] if isinstance(j, dict) else j)[0]["state"]' </results/snapshots.json)" = done ] || die "the snapshot is not done"
alice tracectl fetch "$id" -o /tmp/alice/bundle/ || die "alice fetches"
for f in meta.json perf.data trace.pftrace; do
	[ -s "/tmp/alice/bundle/$f" ] || die "no $f in what was fetched: $(ls -l /tmp/alice/bundle)"
done
[ "$(stat -c %U /tmp/alice/bundle/meta.json)" = alice ] || die "the fetched files are not alice's"
ok "and fetches it"
PYTHONPATH=/opt/test python3 -c 'import lib.deputy as deputylib, sys
sys.exit(b"work_leaf" not in deputylib.unpacked(open(sys.argv[1], "rb").read()))' /tmp/alice/bundle/trace.pftrace ||
	die "alice's program of mode 0700 in her closed home has no symbols"
ok "her program in her closed home has its symbols"
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
# ProtectKernelTunables= hides it from the unit: root's tracectl hands it over.
tracectl arm --kernel --backend sample "$stepped" || die "root has the kernel's stacks recorded"
tracectl disarm "$stepped" || die "root disarms it"
ok "the unit takes /proc/kallsyms from root, and records the kernel's stacks"
alice tracectl arm --backend step "$stepped" || die "alice has her process stepped again"
bob tracectl fetch "$id" -o /tmp/bob.pftrace && die "bob fetches alice's snapshot"
[ "$(stat -c %U:%a /var/lib/tracerd)" = tracerd:700 ] || die "the spool is open: $(stat -c %U:%a /var/lib/tracerd)"
ok "nobody else does"

# A service that is restarted has another control group, which the unit's rights let it see at once.
cat >/etc/systemd/system/restarted.service <<'UNIT'
[Service]
ExecStart=/usr/bin/python3 -c "import time\nwhile True: sum(range(20000)); time.sleep(0.002)"
UNIT
systemctl daemon-reload
systemctl start restarted.service || die "systemctl start restarted"
tracectl arm --unit restarted.service --json >/results/unit.json || die "root arms a unit"
t=$(field 'j["targets"][0]["id"]' </results/unit.json)
sleep 2
old=$(systemctl show -P MainPID restarted)
for _ in 1 2; do
	systemctl restart restarted.service || die "systemctl restart"
	new=$(systemctl show -P MainPID restarted)
	for _ in $(seq 100); do
		tracectl show "$t" --json >/results/show.json || die "the restarted unit has no target: $t"
		[ "$(field 'j["target"]["pid"]' </results/show.json)" = "$new" ] && break
		sleep 0.1
	done
	[ "$(field 'j["target"]["state"], j["target"]["pid"], j["target"]["warnings"]' </results/show.json)" = "('armed', $new, [])" ] ||
		die "the unit is not followed to $new: $(cat /results/show.json)"
	sleep 2
done
tracectl snapshot "$t" --json >/results/restarted.json || die "a snapshot of the restarted unit"
tracectl fetch "$(field 'j["snapshot"]["id"]' </results/restarted.json)" -o /tmp/restarted/ || die "root fetches it"
PYTHONPATH=/opt/test python3 -c 'from lib.capture import *
n = collections.Counter(r.pid for r in records(open(sys.argv[1], "rb").read()) if is_clock(r))
sys.exit(not (n[int(sys.argv[2])] > 30 and n[int(sys.argv[3])] > 30 and print(dict(n)) is None))' /tmp/restarted/perf.data "$old" "$new" ||
	die "a restarted unit's processes are not in one snapshot"
tracectl disarm "$t" || die "root disarms the unit"
systemctl stop restarted.service
ok "a unit that is restarted goes on being recorded"

# What was a way in once, or a way to end the service, tried by alice.
tried() {
	local name=$1 begun=$SECONDS
	shift
	mkdir -p "/home/$name"
	TRACERD_BUILD=/opt/test/build TEST_TMP=/home/$name timeout --kill-after=5 900 python3 "/opt/test/$name.py" "$@" >"/results/$name" 2>&1
	case $? in
	0) ok "$name, by alice: $(grep -c '^ok' "/results/$name")" ;;
	77) echo "# $name: $(tail -n 1 "/results/$name")" >>/results/tap ;;
	*) cat "/results/$name"; die "$name, by alice" ;;
	esac
	echo "$name took $((SECONDS - begun)) s"
	sed -n '/^#/p' "/results/$name" >>/results/tap
}
tried unit-cancel
tried deputy-ways booted
[ "$(systemctl show -P MainPID tracerd)" = "$pid" ] || die "it was restarted"
ok "after all this it is the process that was started"

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
if [ "$(tracectl status --json | field '"unwinding" in j["capture"]')" = True ]; then
	cache() { tracectl status --json | field "j['capture']['unwinding']['cache']['$1']"; }
	more() {
		alice tracectl arm --stacks bpf "$target" || die "alice arms her process again"
		for _ in $(seq 300); do [ "$(cache "$1")" -gt 1 ] && return; sleep 0.1; done
		die "$1 of tables that are kept: $(tracectl status --json)"
	}
	more files
	[ "$(stat -c %U:%a /var/lib/tracerd/unwind)" = tracerd:700 ] || die "tables are not the unit's alone: $(stat -c %U:%a /var/lib/tracerd/unwind)"
	systemctl restart tracerd.service || die "systemctl restart"
	more hits
	[ "$(cache damaged)" = 0 ] || die "a table is damaged"
	ok "tables of unwind rules are there after a restart: $(cache hits) of $(cache files)"
fi
ok "killed, it is restarted; target and snapshot are unharmed"

systemctl stop tracerd.service || die "systemctl stop"
[ "$(systemctl show -P Result tracerd)" = success ] || die "stopped with $(systemctl show -P Result tracerd)"
alice tracectl status --json >/dev/null || die "a connection does not start the service"
[ "$(systemctl is-active tracerd)" = active ] || die "socket activation"
ok "stopped, a client's connection starts it again"
alice tracectl delete "$id" || die "alice deletes her snapshot"
journalctl --sync
journalctl --no-pager -o cat -u tracerd >/results/journal
grep -iE 'seccomp|denied|not permitted' /results/journal && die "something was refused"
# libevent's own say their level in words; the one that is asked for is unit-cancel's
{ journalctl --no-pager -q -o cat -p warning -u tracerd; grep -F -e '[warn]' -e '[err]' /results/journal; } |
	grep -v 'the target was disarmed before its turn came' && die "it warns of something"
ok "its journal has no warning"
touch /results/passed

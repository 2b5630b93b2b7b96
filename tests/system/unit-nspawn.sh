#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The whole thing as an operator gets it: systemd boots in a container over this machine's files,
# `make install` laid on top; sysusers and tmpfiles make the user and the folders, the unit runs
# as user tracerd under its hardening, and an ordinary user arms a process of theirs, takes a
# snapshot and fetches it, and tries what was a way to root's files once.
# timeout: 300
. "$(dirname "$0")/lib/lib.sh"
need_root "to boot a container"
need_command systemd-nspawn systemd-container
[ -x /lib/systemd/systemd ] || skip "systemd is not installed, so it cannot boot in a container"
[ -d /sys/fs/cgroup ] || skip "no cgroups here"

# The mounts are this process's own: however it ends, they go with it.
if [ -z "${TEST_MOUNTS_ARE_OWN:-}" ]; then
	unshare --mount --propagation private true 2>/dev/null || skip "may not make a mount namespace here"
	TEST_MOUNTS_ARE_OWN=1 TEST_TMP=$TMP unshare --mount --propagation private bash "$0"
	exit
fi

work=$TMP/machine
mkdir -p "$work"
inner_cgroups() { find /sys/fs/cgroup -maxdepth 6 -type d \( -name payload -o -name supervisor \) 2>/dev/null | sort; }
inner_cgroups >"$TMP/cgroups-before"
mount -t tmpfs -o size=1g,mode=0755 tracerd-test "$work" 2>/dev/null || skip "may not mount a tmpfs here"
machine=tracerd-test-$$
cleanup() {
	rc=$?
	umount "$work/merged" 2>/dev/null
	umount "$work" 2>/dev/null
	# nspawn leaves its inner cgroups behind.
	inner_cgroups | comm -13 "$TMP/cgroups-before" - | while read -r d; do
		find "$d" -depth -type d -exec rmdir {} + 2>/dev/null
	done
	(exit $rc)
	lib_cleanup
}
trap cleanup EXIT
mkdir "$work/upper" "$work/work" "$work/merged" "$work/results"
mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" tracerd-test "$work/merged" 2>/dev/null ||
	skip "may not mount an overlay of / here"
merged=$work/merged

make -s -C "$TRACERD_BUILD" install DESTDIR="$merged" >"$TMP/install.log" 2>&1 || { tail "$TMP/install.log"; fail "make install"; }
# The container is to start our units and nothing that this machine happens to have.
rm -f "$merged"/etc/systemd/system/*.wants/* "$merged/etc/machine-id"
: >"$merged/etc/machine-id"
mkdir -p "$merged/opt/test"
cp "$TRACERD_BUILD/bench/target" "$merged/opt/test/target" || fail "no bench/target in the build tree"
cp "$TRACERD_SRC/tests/system/inside/unit-nspawn.sh" "$merged/opt/test/inside.sh"
cp -r "$TRACERD_SRC"/tests/system/{lib,deputy-ways.py} "$TRACERD_SRC/tests/system/inside/unit-cancel.py" "$merged/opt/test"
mkdir -p "$merged/opt/test/build/tests/programs"
cp "$TRACERD_BUILD/tests/programs/deputy" "$merged/opt/test/build/tests/programs" || fail "no tests/programs/deputy in the build tree"
cat >"$merged/etc/systemd/system/tracerd-test.service" <<'UNIT'
[Unit]
Description=The test itself
After=basic.target
Requires=basic.target
[Service]
Type=oneshot
ExecStart=/bin/bash /opt/test/inside.sh
TimeoutStartSec=1200
TimeoutStopSec=5
ExecStopPost=+/bin/systemctl --no-block exit 0
UNIT

timeout --kill-after=10 1300 systemd-nspawn -q -D "$merged" -M "$machine" -b --register=no --keep-unit \
	--capability=all --system-call-filter="perf_event_open bpf" --console=pipe --bind="$work/results:/results" \
	systemd.unit=tracerd-test.service systemd.log_target=console >"$TMP/console" 2>&1 </dev/null
rc=$?
cp -r "$work/results" "$TMP/results"
if [ ! -e "$TMP/results/began" ]; then
	tail -n 20 "$TMP/console" | sed 's/^/# /'
	grep -qiE 'operation not permitted|permission denied|failed to (mount|create|allocate)' "$TMP/console" &&
		skip "a container does not boot here: $(grep -iE 'not permitted|denied|failed to' "$TMP/console" | head -n 1 | tr -cd '[:print:]')"
	fail "the container did not boot (status $rc)"
fi
cat "$TMP/results/tap"
if [ ! -e "$TMP/results/passed" ]; then
	sed 's/^/# inside: /' "$TMP/results/log" | tail -n 30
	[ -e "$TMP/results/journal" ] && tail -n 40 "$TMP/results/journal" | sed 's/^/# journal: /'
	fail "inside of the container"
fi
ok "the container's test passed"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The installed units say what systemd understands (it only warns about an unknown key, with exit
# status 0), keep their hardening, and are complete: service, sockets, user, directories.
. "$(dirname "$0")/lib/lib.sh"
need_command systemd-analyze systemd

root=$TMP/root
make -s -C "$TRACERD_BUILD" install DESTDIR="$root" >"$TMP/install.log" 2>&1 || { tail "$TMP/install.log"; fail "make install"; }
units=$(dirname "$(find "$root" -name tracerd.service)")
for f in tracerd.service tracerd.socket tracerd-status.socket; do
	[ -f "$units/$f" ] || fail "$f is not installed"
done
ok "service and sockets are installed"

program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$units/tracerd.service")
[ -x "$root$program" ] || fail "the unit starts $program, which make install did not bring"
ok "the unit starts what is installed"

# Verified under the path that exists here.
mkdir "$TMP/units"
cp "$units"/tracerd* "$TMP/units/"
sed -i "s,^ExecStart=,&$root," "$TMP/units/tracerd.service"
systemd-analyze verify --man=no "$TMP/units/tracerd.service" "$TMP/units/tracerd.socket" \
	"$TMP/units/tracerd-status.socket" >"$TMP/verify" 2>&1
rc=$?
# Other units of this machine are none of our business.
grep -E '(^|/)tracerd' "$TMP/verify" >"$TMP/ours"
if [ $rc != 0 ] || [ -s "$TMP/ours" ]; then
	cat "$TMP/verify"
	fail "systemd-analyze verify"
fi
ok "systemd-analyze verify says nothing"

# Each setting that the unit lacks has its reason there; a new one that it should have shows here.
if systemd-analyze security --help | grep -q -e --threshold; then # 250, with --offline
	systemd-analyze security --offline=true --threshold=20 --no-pager "$TMP/units/tracerd.service" >"$TMP/security" 2>&1
	rc=$?
	score=$(sed -n 's/.*Overall exposure level for .*: \([0-9.]*\) .*/\1/p' "$TMP/security")
	[ -n "$score" ] || fail "no score of systemd-analyze security"
	[ $rc = 0 ] || { grep '✗' "$TMP/security"; fail "exposure $score, more than 2.0"; }
	ok "exposure $score"
else
	note "systemd-analyze security has no --threshold here"
fi

conf=$(find "$root" -path '*/sysusers.d/tracerd.conf')
[ -n "$conf" ] && [ -n "$(find "$root" -path '*/tmpfiles.d/tracerd.conf')" ] || fail "no sysusers or tmpfiles file"
mkdir -p "$TMP/empty/etc"
SYSTEMD_LOG_LEVEL=warning systemd-sysusers --root="$TMP/empty" "$conf" >"$TMP/sysusers" 2>&1
grep -q '^tracerd:' "$TMP/empty/etc/passwd" "$TMP/empty/etc/group" || { cat "$TMP/sysusers"; fail "systemd-sysusers makes no user"; }
ok "systemd-sysusers makes user and group"

config=$(find "$root" -name tracerd.conf -path '*etc/*')
[ -f "$config" ] || fail "no configuration is installed"
echo "# mine" >>"$config"
make -s -C "$TRACERD_BUILD" install DESTDIR="$root" >/dev/null 2>&1 || fail "make install, again"
make -s -C "$TRACERD_BUILD" uninstall DESTDIR="$root" >/dev/null 2>&1 || fail "make uninstall"
tail -n 1 "$config" | grep -qx '# mine' || fail "a changed configuration was overwritten"
left=$(find "$root" ! -type d ! -path "$config")
[ -z "$left" ] || fail "make uninstall leaves: $left"
ok "make install and uninstall keep a changed configuration and leave nothing else"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The schema and the sample configuration in the tree are what the tables in the program say: a
# parameter that was added to one of them only would be a lie in the other.
. "$(dirname "$0")/lib/lib.sh"

"$TRACERD_BUILD/tracerd" --print-schema >"$TMP/schema" || fail "--print-schema"
cmp "$TMP/schema" "$TRACERD_SRC/common/control/protocol.schema.json" ||
	fail "common/control/protocol.schema.json is old: tracerd --print-schema >common/control/protocol.schema.json"
python3 -m json.tool "$TMP/schema" >/dev/null || fail "the schema is not JSON"
ok "common/control/protocol.schema.json is what the tables say"

"$TRACERD_BUILD/tracerd" --config /dev/null --print-config >"$TMP/config" || fail "--print-config"
cmp "$TMP/config" "$TRACERD_SRC/etc/tracerd.conf" ||
	fail "etc/tracerd.conf is old: tracerd --config /dev/null --print-config >etc/tracerd.conf"
"$TRACERD_BUILD/tracerd" --config "$TRACERD_SRC/etc/tracerd.conf" --print-config >"$TMP/again" || fail "it cannot be read"
cmp "$TMP/config" "$TMP/again" || fail "the file read and printed is another"
ok "etc/tracerd.conf is what the table says, and can be read"

# Every key of the file can be set to its default, and each is told apart from what is no key.
sed -n 's/^#\([a-z_]* =.*\)/\1/p; /^\[/p' "$TMP/config" >"$TMP/all"
"$TRACERD_BUILD/tracerd" --config "$TMP/all" --print-config >"$TMP/again" || fail "defaults are refused"
cmp "$TMP/config" "$TMP/again" || fail "defaults set are not the defaults"
printf '[capture]\nsample_hzz = 1\n' >"$TMP/bad"
"$TRACERD_BUILD/tracerd" --config "$TMP/bad" --print-config >/dev/null 2>"$TMP/err" && fail "an unknown key was taken"
grep -q 'bad: line 2: unknown key "sample_hzz"' "$TMP/err" || fail "said: $(cat "$TMP/err")"
"$TRACERD_BUILD/tracerd" --config "$TMP/nonexistent" --print-config >/dev/null 2>&1 && fail "a missing file was taken"
ok "keys and their errors"

"$TRACERD_BUILD/tracerd" --version | grep -q '^tracerd [0-9]' || fail "--version"
"$TRACERD_BUILD/tracerd" --help | grep -q -- --runtime-dir || fail "--help"
"$TRACERD_BUILD/tracerd" --nonsense >/dev/null 2>&1
[ $? = 2 ] || fail "an unknown option must end with 2"
"$TRACERD_BUILD/tracerd" extra >/dev/null 2>&1
[ $? = 2 ] || fail "an argument must end with 2"
ok "options"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Layers go down only: daemon/, decode/ and client/ include common/ and never each other, common/
# knows none of them. Every include in quotes is path-qualified from the root.
. "$(dirname "$0")/lib.sh"
cd "$TRACERD_SRC" || fail "no source tree"

# check FOLDER ALLOWED-PATTERN: prints each include of the folder that is not allowed.
check() {
	[ -d "$1" ] || return 0
	grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' --include='*.[ch]' --include='*.cc' --include='*.cpp' "$1" |
		grep -vE "\"($2)" >"$TMP/bad"
	if [ -s "$TMP/bad" ]; then
		sed 's/^/# /' "$TMP/bad"
		fail "$1/ includes what it must not"
	fi
	ok "$1/ includes only $2"
}
check common 'common/|config\.h"'
check daemon 'common/|daemon/|config\.h"'
check decode 'common/|decode/|config\.h"'
check open 'common/|open/|config\.h"'
check client 'common/|client/|tracerd\.h"|config\.h"'

# The same by what is linked: no program takes an object of another folder.
for pair in daemon:decode daemon:client daemon:open decode:daemon decode:client decode:open client:daemon client:decode \
	client:open open:daemon open:decode open:client; do
	if grep -nE "^[^#]*[ /=]${pair#*:}/[a-z0-9_-]+\.[ch]( |\$)" "${pair%:*}/Makefile.inc"; then
		fail "${pair%:*}/Makefile.inc builds from ${pair#*:}/"
	fi
done
ok "no folder builds another's sources"

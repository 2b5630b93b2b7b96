#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library as somebody else's build gets it: installed, found by pkg-config, linked from C and C++, and
# it exports nothing but its own names.
. "$(dirname "$0")/lib.sh"
need_command pkg-config pkg-config

root=$TMP/root
make -s -C "$TRACERD_BUILD" install DESTDIR="$root" >"$TMP/install.log" 2>&1 || { tail "$TMP/install.log"; fail "make install"; }
pc=$(find "$root" -name '*tracerd.pc')
[ -n "$pc" ] || fail "no pkg-config file"
module=$(basename "${pc%.pc}")
prefix=$(sed -n 's/^prefix=//p' "$pc")
export PKG_CONFIG_PATH=${pc%/*}
flags=$(pkg-config --define-variable=prefix="$root$prefix" --cflags --libs "$module") || fail "pkg-config"
case $flags in *"-I$root"*) ;; *) [ "$prefix" = /usr ] || fail "no include folder in: $flags" ;; esac

cat >"$TMP/user.c" <<'C'
#include <stdio.h>
#include <tracerd.h>

int main(void)
{
	tracerd_client *c = 0;
	int r = tracerd_connect("/nonexistent/control.sock", 100, &c);

	printf("%s %s\n", tracerd_version(), tracerd_error_name(r));
	return c ? 1 : 0;
}
C
cp "$TMP/user.c" "$TMP/user.cc"
libdir=$(dirname "$(find "$root" -name 'libtracerd.so')")
for build in "${CC:-gcc} -std=c99 -Wall -Wextra -Werror user.c" "${CXX:-g++} -std=c++11 -Wall -Wextra -Werror user.cc"; do
	# shellcheck disable=SC2086 # words
	(cd "$TMP" && $build -o user $flags) || fail "does not build: $build"
	# A sanitizer's runtime in the library wants to come first in the program, too.
	[ -n "${TRACERD_SANITIZED:-}" ] && continue
	said=$(LD_LIBRARY_PATH=$libdir "$TMP/user") || fail "the program ends with $?"
	[ "$said" = "$(pkg-config --modversion "$module") ENOENT" ] || fail "the program says: $said"
done
ok "a C and a C++ program build by pkg-config and run"

nm -D --defined-only "$libdir/libtracerd.so" | awk '{print $3}' | grep -vE '^(tracerd_|LIBTRACERD_[0-9.]+$|$)' >"$TMP/foreign"
[ -s "$TMP/foreign" ] && fail "exports $(head -n 3 "$TMP/foreign" | tr '\n' ' ')"
ok "it exports only tracerd_*"

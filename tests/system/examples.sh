#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# The pages and the examples as a package brings them: all of docs/ and examples/ is installed, each example builds by
# the line at its head against what is installed, and what the C++ one records is found in its snapshot.
. "$(dirname "$0")/lib/lib.sh"
need_command pkg-config pkg-config

root=$TMP/root
make -s -C "$TRACERD_BUILD" install DESTDIR="$root" >"$TMP/install.log" 2>&1 || { tail "$TMP/install.log"; fail "make install"; }
doc=$(find "$root" -path '*/doc/tracerd' -type d)
[ -n "$doc" ] || fail "no documentation is installed"
for f in $(cd "$TRACERD_SRC" && find README.md docs examples -type f ! -name Makefile.inc ! -name '*~'); do
	cmp -s "$TRACERD_SRC/$f" "$doc/$f" || fail "$f is not installed"
done
ok "pages and examples are installed"

# A sanitizer's runtime in the library wants to come first in the program, too.
[ -z "${TRACERD_SANITIZED:-}" ] || skip "programs of others are not built with this build's sanitizers"
pc=$(find "$root" -name tracerd.pc)
prefix=$(sed -n 's/^prefix=//p' "$pc")
libdir=$(dirname "$(find "$root" -name libtracerd.so)")
# As on a machine with nothing but what is installed; it is not installed at its place.
pkg-config() { PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=${pc%/*} command pkg-config --define-variable=prefix="$root$prefix" "$@"; }
cc() { ${CC:-gcc} -Wall -Wextra -Wno-unused-parameter -Werror "$@"; }
c++() { ${CXX:-g++} -Wall -Wextra -Werror "$@"; }
for source in "$doc"/examples/*.c* "$doc"/examples/shims/*.c; do
	line=$(sed -n 's/^ \*[[:space:]]*\(c[c+]* .* -o .*\)/\1/p' "$source")
	[ -n "$line" ] || fail "${source##*/} does not say how it is built"
	cd "${source%/*}" || fail "no folder"
	eval "$line" || fail "${source##*/} does not build by: $line"
	cd / || fail "no folder"
	ok "${source##*/} builds by its own line"
done

start_tracerd
LD_LIBRARY_PATH=$libdir "$doc/examples/slowqueue" 1 >"$TMP/said" &
pid=$!
wait "$pid" || fail "slowqueue ends with $?"
grep -qx 'did 100 jobs' "$TMP/said" || fail "slowqueue says: $(cat "$TMP/said")"
# Its rings outlive it.
tracectl snapshot "$pid" -o "$TMP/bundle/" >"$TMP/summary" || fail "no snapshot of slowqueue"
tracectl decode "$TMP/bundle" -f text -o "$TMP/trace.txt" || fail "its snapshot cannot be decoded"
for want in 'job' 'render' 'order' 'number' 'jobs that wait' 'job 97 cannot be rendered'; do
	grep -qF "$want" "$TMP/trace.txt" || fail "the trace of slowqueue has no '$want'"
done
ok "the regions, tasks, counters and logs of the C++ example are in its snapshot"

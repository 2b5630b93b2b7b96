#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library as somebody else's build gets it: installed, found by pkg-config, linked from C and C++, shared and
# static, and it exports nothing but its own names.
. "$(dirname "$0")/lib/lib.sh"
need_command pkg-config pkg-config

root=$TMP/root
make -s -C "$TRACERD_BUILD" install DESTDIR="$root" >"$TMP/install.log" 2>&1 || { tail "$TMP/install.log"; fail "make install"; }
pc=$(find "$root" -name '*tracerd.pc')
[ -n "$pc" ] || fail "no pkg-config file"
module=$(basename "${pc%.pc}")
prefix=$(sed -n 's/^prefix=//p' "$pc")
# Nothing but its own file: who links the shared library needs none of what the library is made of.
export PKG_CONFIG_LIBDIR=${pc%/*}
unset PKG_CONFIG_PATH
flags=$(pkg-config --define-variable=prefix="$root$prefix" --cflags --libs "$module") || fail "pkg-config"
case $flags in *"-I$root"*) ;; *) [ "$prefix" = /usr ] || fail "no include folder in: $flags" ;; esac

# Has functions of the same names as some inside the library.
cat >"$TMP/user.c" <<'C'
#include <stdio.h>
#include <tracerd.h>

int json_parse(void);
int json_parse(void) { return 1; }
int frame_send(void);
int frame_send(void) { return 2; }
int events_enable;

static int work(void)
{
	TRACERD_SCOPE("work"); TRACERD_SCOPE("within");
	tracerd_arg args[2];

	args[0] = tracerd_u64(TRACERD_NAME("n"), 1);
	args[1] = tracerd_text(TRACERD_NAME("t"), "x", 1);
	tracerd_instant_with(TRACERD_NAME("moment"), 0, args, 2);
	tracerd_log(TRACERD_INFO, "%s %d", "x", 1);
	return tracerd_enabled();
}

int main(void)
{
	tracerd_client *c = 0;
	tracerd_options o = {0};
	tracerd_event_stats s = {0};
	int r = tracerd_connect("/nonexistent/control.sock", 100, &c);

	o.size = sizeof(o);
	o.socket = "/nonexistent/control.sock";
	s.size = sizeof(s);
	if (tracerd_start(&o) || work() || tracerd_fd() >= 0)
		return 1;
	tracerd_get_event_stats(&s);
	tracerd_stop();
	printf("%s %s %u\n", tracerd_version(), tracerd_error_name(r), s.enabled);
	return c ? 1 : 0;
}
C
sed 's/= {0}/= {}/; s/^int json_parse.*//; s/^int frame_send.*//' "$TMP/user.c" >"$TMP/user.cc"
cat >>"$TMP/user.cc" <<'C'
struct More {
	tracerd::Task task;
	tracerd::Region region;
	More() : task(TRACERD_NAME("task")), region(TRACERD_NAME("part"), task.id(), nullptr, 0) {}
};
void more();
void more() { More m; }
static_assert(!std::is_copy_constructible<tracerd::Region>::value && !std::is_move_constructible<tracerd::Region>::value, "");
static_assert(!std::is_copy_constructible<tracerd::Task>::value && std::is_nothrow_move_constructible<tracerd::Task>::value, "");
static_assert(std::is_nothrow_constructible<tracerd::Region, const char *>::value, "");
C
echo '#include <tracerd.h>
void f(); void f() { tracerd::Region("x"); }' >"$TMP/unnamed.cc"
libdir=$(dirname "$(find "$root" -name 'libtracerd.so')")
for build in "${CC:-gcc} -std=c99 -Wall -Wextra -Werror user.c" "${CXX:-g++} -std=c++11 -Wall -Wextra -Werror user.cc"; do
	# shellcheck disable=SC2086 # words
	(cd "$TMP" && $build -o user $flags) || fail "does not build: $build"
	# A sanitizer's runtime in the library wants to come first in the program, too.
	[ -n "${TRACERD_SANITIZED:-}" ] && continue
	said=$(LD_LIBRARY_PATH=$libdir "$TMP/user") || fail "the program ends with $?"
	[ "$said" = "$(pkg-config --modversion "$module") ENOENT 0" ] || fail "the program says: $said"
done
ok "a C and a C++ program build by pkg-config and run"
# shellcheck disable=SC2086 # words
(cd "$TMP" && ${CXX:-g++} -std=c++17 -Wall -Werror -c unnamed.cc $flags) 2>"$TMP/err" && fail "a region without a name is not found"
grep -q 'tracerd::Region' "$TMP/err" || { cat "$TMP/err"; fail "a region without a name is not what the compiler complains of"; }
ok "the compiler finds a region that ends where it begins"

case $flags in *json-c* | *-pthread*) fail "the shared library asks for more than itself: $flags" ;; esac
ok "json-c's headers and pkg-config file are not needed"

# Linked in, by a program that is dynamic otherwise (and by one that has nothing dynamic, where the C library's
# and json-c's archives are installed).
static=$(pkg-config --define-variable=prefix="$root$prefix" --cflags --libs --static "$module") || fail "pkg-config --static"
rm -rf "$TMP/static" && mkdir "$TMP/static" && cp "$libdir/libtracerd.a" "$TMP/static"
one_file=$(echo "$static" | sed "s,-L[^ ]*,-L$TMP/static,")
if [ -z "${TRACERD_SANITIZED:-}" ]; then
	# shellcheck disable=SC2086 # words
	(cd "$TMP" && ${CC:-gcc} -std=c99 -Wall -Wextra -Werror user.c -o user-one $one_file) || fail "does not link with the archive"
	"$TMP/user-one" >"$TMP/out" || fail "the program with the archive ends with $?"
	ldd "$TMP/user-one" | grep -q libtracerd && fail "the archive was not used"
	ok "a program links with the archive alone"
	echo 'int main(void) { return 0; }' >"$TMP/empty.c"
	if (cd "$TMP" && ${CC:-gcc} -static empty.c -o empty -ljson-c) 2>/dev/null; then
		# shellcheck disable=SC2086 # words
		(cd "$TMP" && ${CC:-gcc} -static -std=c99 -Wall -Wextra -Werror user.c -o user-static $one_file) 2>"$TMP/err" ||
			{ cat "$TMP/err"; fail "does not link statically"; }
		[ -s "$TMP/err" ] && { cat "$TMP/err"; fail "the static link warns"; }
		"$TMP/user-static" >"$TMP/out" || fail "the static program ends with $?"
		ok "and with nothing dynamic at all"
	else
		note "no static C library or json-c here: -static was not tried"
	fi
fi

nm -D --defined-only "$libdir/libtracerd.so" | awk '{print $3}' | grep -vE '^(tracerd_|LIBTRACERD_[0-9.]+$|$)' >"$TMP/foreign"
[ -s "$TMP/foreign" ] && fail "exports $(head -n 3 "$TMP/foreign" | tr '\n' ' ')"
ok "it exports only tracerd_*"

nm -g --defined-only "$libdir/libtracerd.a" | awk 'NF == 3 {print $3}' | grep -v '^tracerd_' >"$TMP/foreign"
[ -s "$TMP/foreign" ] && fail "the archive has $(head -n 3 "$TMP/foreign" | tr '\n' ' ')"
nm -D --defined-only "$libdir/libtracerd.so" | awk '{sub(/@.*/, "", $3); print $3}' | grep '^tracerd_' | sort -u >"$TMP/shared"
nm -g --defined-only "$libdir/libtracerd.a" | awk 'NF == 3 {print $3}' | sort -u >"$TMP/archived"
cmp -s "$TMP/shared" "$TMP/archived" || { diff "$TMP/shared" "$TMP/archived"; fail "the two have different names"; }
ok "both have the same names, and only those"

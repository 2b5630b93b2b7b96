#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone, and says its licence and what it is in its first lines; the public
# header is C99 and C++, too.
. "$(dirname "$0")/lib/lib.sh"
cd "$TRACERD_SRC" || fail "no source tree"

modules=
for m in libevent_core json-c libsystemd inih libdw libelf libdeflate libseccomp libcap libzstd libbpf; do
	pkg-config --exists $m 2>/dev/null && modules="$modules $m"
done
# shellcheck disable=SC2086
cflags=$(pkg-config --cflags $modules 2>/dev/null)
bad=0
while read -r h; do
	# A main file that includes it and uses nothing; unused static functions are fine in a header.
	# shellcheck disable=SC2086
	if ! echo "#include \"$h\"" | ${CC:-gcc} -std=gnu11 -Wall -Wextra -Werror -Wno-unused-function -Wno-unused-parameter \
		-fsyntax-only -include "$TRACERD_BUILD/config.h" -I. -I"$TRACERD_BUILD" -Iclient/include $cflags -x c - 2>"$TMP/err"; then
		echo "# $h:"
		head -n 5 "$TMP/err" | sed 's/^/#   /'
		bad=1
	fi
	head -n 3 "$h" | grep -q 'SPDX-License-Identifier: ' || { echo "# $h: no SPDX line"; bad=1; }
done < <(find common daemon step open decode client -name '*.h' ! -path '*/bpf/*' | sort)
[ $bad = 0 ] || fail "a header does not stand alone"
ok "every header compiles alone"

for h in client/include/*.h client/include/tracerd/*.h; do
	[ -e "$h" ] || continue
	echo "#include \"$h\"" | ${CC:-gcc} -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iclient/include -x c - || fail "$h is not C99"
	if command -v "${CXX:-g++}" >/dev/null; then
		echo "#include \"$h\"" | ${CXX:-g++} -std=c++11 -Wall -Wextra -Werror -fsyntax-only -Iclient/include -x c++ - || fail "$h is not C++"
	fi
	ok "$h is C99 and C++"
done
for h in client/include/tracerd/*.hpp; do
	command -v "${CXX:-g++}" >/dev/null || break
	for std in c++11 c++20; do
		echo "#include \"$h\"" | ${CXX:-g++} -std=$std -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only \
			-Iclient/include -x c++ - || fail "$h is not $std"
	done
	ok "$h is C++11 and C++20"
done

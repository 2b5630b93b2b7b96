# SPDX-License-Identifier: Apache-2.0
# What must be installed to build and to test, and how to get it. Sourced by scripts/demo and
# scripts/test:
#
#	deps_install build		what configure and make need
#	deps_install build test		and what the tests use besides
#	deps_install bench		the peer of make bench-rings
#	deps_install distros		what makes the roots of scripts/test distros
#	deps_install rig		what the guest of scripts/test rig is made of
#
# On Debian and Ubuntu it installs what is missing (as root, or by sudo where that asks nothing);
# elsewhere, or without the right, it names what is missing. Returns 1 if something that the build
# needs is still absent; a tool that only a test uses makes that test skip instead.

# need, how to see that it is there (a command, a pkg-config module, a header or a pattern of paths), Debian package
deps_table() {
	cat <<'TABLE'
build cmd gcc gcc
build cmd g++ g++
build cmd make make
build cmd autoreconf autoconf
build cmd automake automake
build cmd libtoolize libtool
build cmd pkg-config pkg-config
build pkg libevent_core libevent-dev
build pkg json-c libjson-c-dev
build pkg libsystemd libsystemd-dev
build pkg inih libinih-dev
build pkg libdw libdw-dev
build pkg libelf libelf-dev
build pkg libdeflate libdeflate-dev
build pkg libseccomp libseccomp-dev
build pkg libcap libcap-dev
build pkg libzstd libzstd-dev
build pkg liblzma liblzma-dev
build inc libiberty/demangle.h libiberty-dev
build inc intel-pt.h libipt-dev
bpf cmd clang clang
bpf pkg libbpf libbpf-dev
test pkg cmocka libcmocka-dev
test cmd python3 python3
test cmd perf linux-perf
test cmd gdb gdb
test cmd curl curl
test cmd llvm-symbolizer llvm
test cmd dwz dwz
test cmd go golang-go
test cmd systemd-nspawn systemd-container
test cmd sqlite3 sqlite3
test cmd redis-server redis-server
test cmd nginx nginx-light
test pkg libpcre2-8 libpcre2-dev
test pkg luajit libluajit-5.1-dev
test cmd node nodejs
test cmd npm npm
test cmd memcached memcached
distros cmd mmdebstrap mmdebstrap
rig cmd qemu-system-x86_64 qemu-system-x86
rig cmd busybox busybox-static
rig cmd cpio cpio
rig cmd xz xz-utils
rig cmd perf linux-perf
rig path /usr/src/linux-headers-*-amd64 linux-headers-amd64
bench cmd lttng-sessiond lttng-tools
bench inc lttng/tracepoint.h liblttng-ust-dev
TABLE
}

deps_have() {
	case $1 in
	cmd) command -v "$2" >/dev/null 2>&1 || [ -x "/usr/sbin/$2" ] ;;
	pkg) command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "$2" ;;
	path) compgen -G "$2" >/dev/null ;;
	inc) printf '#include <%s>\n' "$2" | ${CC:-cc} -E -x c - >/dev/null 2>&1 ;;
	esac
}

# Debian packages of the given groups that are not there, one a line.
deps_missing() {
	deps_table | while read -r group kind name package; do
		case " $* " in *" $group "*) ;; *) continue ;; esac
		deps_have "$kind" "$name" || echo "$package"
	done | sort -u
}

deps_apt() {
	deps_as=
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null || return 1
		deps_as="sudo -n"
	fi
	command -v apt-get >/dev/null 2>&1 || return 1
	deps_log=$(mktemp)
	# The package lists of a fresh image may be empty or old.
	for deps_try in 1 2; do
		if DEBIAN_FRONTEND=noninteractive $deps_as apt-get install -y --no-install-recommends \
			"$@" >"$deps_log" 2>&1 </dev/null; then
			rm -f "$deps_log"
			return 0
		fi
		[ "$deps_try" = 1 ] && $deps_as apt-get update >/dev/null 2>&1 </dev/null
	done
	tail -n 5 "$deps_log" >&2
	rm -f "$deps_log"
	return 1
}

# One package that a distribution does not have must not keep the others from being installed.
deps_apt_each() {
	deps_apt "$@" && return
	for deps_one; do
		deps_apt "$deps_one" 2>/dev/null || echo "cannot install $deps_one" >&2
	done
}

deps_install() {
	deps_groups=$*
	case " $deps_groups " in *" build "*) deps_groups="$deps_groups bpf" ;; esac
	# shellcheck disable=SC2086 # words
	deps_list=$(deps_missing $deps_groups)
	[ -n "$deps_list" ] || return 0
	if [ -r /etc/os-release ] && grep -qE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release; then
		echo "installing:" $deps_list >&2
		# shellcheck disable=SC2086
		deps_apt_each $deps_list || true
		# shellcheck disable=SC2086
		deps_list=$(deps_missing $deps_groups)
		# Ubuntu had perf under this name up to 25.04.
		case $deps_list in *linux-perf*) deps_apt_each linux-tools-generic && deps_list=$(deps_missing $deps_groups) ;; esac
	fi
	[ -z "$deps_list" ] || echo "not installed (Debian/Ubuntu package names):" $deps_list >&2
	[ -z "$(deps_missing build)" ]
}

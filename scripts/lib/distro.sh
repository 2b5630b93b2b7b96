#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# distro.sh SUITE SOURCE-TREE FOLDER: builds a copy of the tree in a minimal root of another release of Debian or Ubuntu and runs
# `scripts/test --fast` in it. The root is made once, by mmdebstrap from its own default mirror, and kept in FOLDER/SUITE; it
# shares this machine's kernel, /proc, /sys and /dev. Where no root can be had: SKIP and why, exit status 77.
set -u -o pipefail
suite=${1:?a suite} src=${2:?the source tree} folder=${3:?a folder}
root=$folder/$suite

skip() {
	echo "SKIP: no root of $suite: $*"
	exit 77
}

# In the mount namespace of main(): what is mounted goes with its last process. Tests have process groups of their own, so
# what they left is found by its root.
inside() {
	local p dir
	stop_all() {
		for p in /proc/[0-9]*; do
			[ "$(readlink "$p/root")" = "$root" ] && kill -KILL "${p##*/}" 2>/dev/null
		done
	}
	trap stop_all EXIT
	trap 'exit 143' TERM
	for dir in proc sys dev; do
		mount --rbind "/$dir" "$root/$dir" || exit 1
	done
	chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TERM=dumb \
		/tree/scripts/test --fast --build-dir /build &
	wait $!
	exit $?
}

# make_root SUITE [OPTION...]: a root is there whole or not at all.
make_root() {
	local name=$1 components=main
	shift
	[ -d "$folder/$name" ] && return
	case $name in bookworm | trixie) ;; *) components=main,universe ;; esac
	rm -rf --one-file-system "$folder/$name.new"
	timeout 900 mmdebstrap --variant=minbase --include=apt,ca-certificates --components=$components \
		--aptopt='Acquire::http::Timeout "10"' --aptopt='Acquire::Retries "1"' "$@" "$name" "$folder/$name.new" \
		>"$folder/$name.log" 2>&1 || {
		rm -rf --one-file-system "$folder/$name.new"
		skip "mmdebstrap says: $(sed -n 's/^E: //p' "$folder/$name.log" | head -n 1)"
	}
	mv "$folder/$name.new" "$folder/$name"
}

# Where Ubuntu's keys are not here, Debian has them in a package.
make_ubuntu_root() {
	local keys=/usr/share/keyrings
	if [ ! -e $keys/ubuntu-archive-keyring.gpg ]; then
		make_root trixie --include=ubuntu-keyring
		keys=$folder/trixie$keys
	fi
	make_root "$suite" --keyring="$keys"
}

tree_files() {
	if [ -e "$src/.git" ]; then
		git -C "$src" ls-files -z --cached --others --exclude-standard
	else
		(cd "$src" && find . \( -path ./build -o -path ./build-test \) -prune -o -type f -print0)
	fi
}

main() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	command -v mmdebstrap >/dev/null || skip "needs mmdebstrap"
	unshare --mount true 2>/dev/null || skip "may not make a mount namespace"
	mkdir -p "$folder" || exit 1
	case $suite in
	trixie) make_root trixie --include=ubuntu-keyring ;;
	bookworm) make_root bookworm ;;
	*) make_ubuntu_root ;;
	esac
	cp --remove-destination -L /etc/resolv.conf "$root/etc/resolv.conf"
	rm -rf --one-file-system "$root/tree"
	mkdir "$root/tree"
	tree_files | (cd "$src" && tar -c --null --ignore-failed-read -T - 2>/dev/null) | tar -x -C "$root/tree" || exit 1
	exec unshare --mount --propagation private bash "$0" "$suite" "$src" "$folder" inside
}

[ "${4:-}" = inside ] && inside
main

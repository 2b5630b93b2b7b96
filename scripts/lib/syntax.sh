# SPDX-License-Identifier: Apache-2.0
# Every script of the tree parses: syntax.sh SOURCE-TREE. Uses shellcheck too where it is installed.
cd "${1:?source tree}" || exit 1
bad=0
while read -r f; do
	case $(head -n 1 "$f") in
	'#!/bin/sh'*) sh -n "$f" || bad=1 ;;
	'#!'*python*) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$f" || bad=1 ;;
	*)
		case $f in
		*.py) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$f" || bad=1 ;;
		*) bash -n "$f" || bad=1 ;;
		esac
		;;
	esac
done < <(find scripts .ci bench tests/system tests/rig -type f \( -name '*.sh' -o -name '*.py' -o -perm -100 \) ! -name '*.c' ! -path '*/__pycache__/*')
if command -v shellcheck >/dev/null 2>&1; then
	find scripts .ci tests/system -type f \( -name '*.sh' -o -path 'scripts/*' -perm -100 \) -print0 |
		xargs -0 shellcheck -S error || bad=1
fi
exit $bad

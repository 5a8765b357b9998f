#!/bin/sh
# version.sh: print the version of this tree: VERSION, what git makes of its tags, or, where there are none (an archive, a copy without
# tags), the one that comes after the newest in the CHANGELOG.
set -eu
cd "$(dirname "$0")/.."
if [ -n "${VERSION:-}" ]; then
	echo "$VERSION"
elif ! git describe --tags --match 'v*' --dirty 2>/dev/null; then
	sed -nE 's/^## ([0-9]+)\.([0-9]+)\.[0-9]+ .*/\1 \2/p' CHANGELOG.md | head -n 1 | while read -r major minor; do
		echo "v$major.$((minor + 1)).0-dev"
	done
fi

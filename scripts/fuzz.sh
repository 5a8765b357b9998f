#!/bin/sh
# fuzz.sh TIME             every fuzz target for that long, two side by side: much of a short run is building and starting
# fuzz.sh TIME DIR TARGET  one of them
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/go/bin
export PATH

time=$1
if [ $# = 1 ]; then
	# Found in the sources: listing them by the go command would build every test once more.
	grep -rE '^func Fuzz' --include='*_test.go' . | sed -nE 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]*)\(.*|\1 \2|p' | sort |
		xargs -P 2 -L 1 scripts/fuzz.sh "$time"
	exit
fi

out=$(mktemp)
trap 'rm -f "$out"' EXIT
go test -tags "netgo osusergo seccomp runc_nocriu" -run '^$' -fuzz "^$3\$" -fuzztime "$time" -parallel $((($(nproc) + 1) / 2)) "$2" \
	>"$out" 2>&1 && result=0 || result=1
echo "$2 $3"
cat "$out"
[ $result = 0 ] && exit
# Before Go 1.27 a target can fail with nothing but "context deadline exceeded" when its time is up (go.dev/issue/75804). It
# has run its time by then, and a finding always names the input file it wrote.
grep -q 'Failing input written' "$out" && exit 1
grep -qx '    context deadline exceeded' "$out" && ! grep -q panic "$out"

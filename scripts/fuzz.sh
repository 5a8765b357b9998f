#!/bin/sh
# fuzz.sh TIME                every fuzz target for that long, two side by side; below a minute they are not guided by coverage
# fuzz.sh TIME DIR TARGET...  some of one package: it is built once for all of them, since that takes as long as a short run
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/go/bin
export PATH

time=$1
if [ $# = 1 ]; then
	# Found in the sources: listing them by the go command would build every test once more. Those with the most targets go first, so that
	# none of them goes on alone.
	grep -rE '^func Fuzz' --include='*_test.go' . | sed -nE 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]*)\(.*|\1 \2|p' | sort |
		awk '{ all[$1] = all[$1] " " $2; n[$1]++ } END { for (dir in all) print n[dir], dir all[dir] }' | sort -rn | cut -d ' ' -f 2- |
		xargs -P 2 -L 1 scripts/fuzz.sh "$time"
	exit
fi

dir=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# To be guided by what the code does it must be compiled once more, with all that it imports: minutes, which seconds of a target do not earn.
guided=
case $time in
*m | *h) guided="-fuzz Fuzz" ;;
esac
# shellcheck disable=SC2086 # two words or none
go test -c -vet=off -tags "netgo osusergo seccomp runc_nocriu" $guided -o "$work/fuzz.test" "$dir"
cache=$(go env GOCACHE)/fuzz/$(go list "$dir")
failed=0
cd "$dir"
for target; do
	"$work/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.fuzzcachedir "$cache" \
		-test.parallel $((($(nproc) + 1) / 2)) >"$work/out" 2>&1 && result=0 || result=1
	echo "$dir $target"
	cat "$work/out"
	[ $result = 0 ] && ! grep -q 'no fuzz tests to fuzz' "$work/out" && continue
	# Before Go 1.27 a target can fail with nothing but "context deadline exceeded" when its time is up (go.dev/issue/75804). It
	# has run its time by then, and a finding always names the input file it wrote.
	if grep -q -e "Failing input written" -e "no fuzz tests to fuzz" -e panic "$work/out" || ! grep -qx '    context deadline exceeded' "$work/out"; then
		failed=1
	fi
done
exit $failed

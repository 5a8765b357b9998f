#!/bin/sh
# lint.sh: everything is checked, then all that was found decides.
set -u
cd "$(dirname "$0")/.."
tags="netgo osusergo seccomp runc_nocriu"
bad=0
unformatted=$(find . -name '*.go' -not -path './.*' -exec gofmt -l {} +)
if [ -n "$unformatted" ]; then
	echo "gofmt: $unformatted"
	bad=1
fi
go run ./scripts/lint || bad=1
go vet -tags "$tags" ./... || bad=1
go test -count=1 -vet=off -tags "$tags" ./internal/deps || bad=1 # what the rooms are: imports, sizes, words, pages
go tool staticcheck -tags "$(echo $tags | tr ' ' ',')" ./... || bad=1
for f in lab/*/*.sh packaging/*.sh packaging/*/*.sh scripts/*.sh .ci/run; do
	sh -n "$f" || bad=1
done
[ $bad = 0 ] && echo "ok  	lint"
exit $bad

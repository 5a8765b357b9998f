#!/bin/sh
# quick.sh: format, house rules, vet, and the tests that need neither root nor network, without the long ones (-short). It is
# for the minute between two edits; make test is what counts.
set -u
cd "$(dirname "$0")/.."
tags="netgo osusergo seccomp runc_nocriu"
began=$(date +%s)
bad=0
unformatted=$(find . -name '*.go' -not -path './.*' -exec gofmt -l {} +)
if [ -n "$unformatted" ]; then
	echo "gofmt: $unformatted"
	bad=1
fi
go run ./scripts/lint || bad=1
go vet -tags "$tags" ./... || bad=1
# shellcheck disable=SC2046 # packages
go test -short -vet=off -tags "$tags" $(scripts/packages.sh quick) || bad=1
echo "make quick: $(($(date +%s) - began)) s"
exit $bad

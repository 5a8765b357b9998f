#!/bin/sh
# sign.sh KEY [FILE...]: sign binaries for `ledge upgrade` with minisign's secret key KEY (minisign -G makes one); a FILE.minisig
# beside each. FILE defaults to what `make cross` has built. The signed comment names file and version.
set -eu
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
key=$1
shift
[ $# -gt 0 ] || set -- bin/ledge-linux-amd64 bin/ledge-linux-arm64 bin/ledge-linux-armv7
command -v minisign >/dev/null || { echo "sign.sh: minisign is not installed (apt install minisign)" >&2; exit 1; }
# What this machine can run says its version itself; the rest was built from the same commit.
for f; do
	version=$(LEDGE_LAUNCH=no "$f" version 2>/dev/null | sed -n 's/^ledge \([^ ]*\) .*/\1/p') || true
	[ -z "$version" ] || break
done
for f; do
	minisign -S -s "$key" -m "$f" -t "file:$(basename "$f")${version:+ version:$version}" >/dev/null
	echo "$f.minisig${version:+ ($version)}"
done

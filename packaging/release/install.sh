#!/bin/sh
# install.sh: install ledge @VERSION@ on this machine: the Debian package where there is dpkg, else the binary alone.
#   LEDGE_FROM  where the release lies: a folder, or an address of http(s) (default: the folder of this file)
#   LEDGE_TO    put the binary there, whatever the machine is (default /usr/local/bin where there is no dpkg)
# Whatever is installed was signed with the key below: minisign checks that, or openssl 3.
set -eu
version=@VERSION@ key=@KEY@
from=${LEDGE_FROM:-$(dirname "$0")} to=${LEDGE_TO:-}
fail() { echo "install.sh: $*" >&2; exit 1; }
case $(uname -m) in
x86_64) arch=amd64 deb=amd64 ;;
aarch64 | arm64) arch=arm64 deb=arm64 ;;
armv7* | armv8l) arch=armv7 deb=armhf ;;
*) fail "there is no ledge for $(uname -m): x86-64, ARMv8 and ARMv7 there are" ;;
esac
# A kernel of 64 bits may carry a Debian of 32.
if command -v dpkg >/dev/null; then deb=$(dpkg --print-architecture); fi
case $deb in amd64) arch=amd64 ;; arm64) arch=arm64 ;; armhf) arch=armv7 ;; esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
get() {
	case $from in
	http://* | https://*)
		if command -v curl >/dev/null; then curl -fsSL -o "$work/$1" "$from/$1"
		elif command -v wget >/dev/null; then wget -qO "$work/$1" "$from/$1"
		else fail "neither curl nor wget is installed"; fi ;;
	*) cp "$from/$1" "$work/$1" ;;
	esac || fail "cannot get $from/$1"
}

# signed FILE: FILE.minisig is of that key. A signature of minisign is ED, the key's number and an Ed25519 signature of BLAKE2b-512;
# the last line signs that signature with the comment, which names file and version.
signed() {
	sed -n 3p "$work/$1.minisig" | grep -qx "trusted comment: file:$1 version:$version" || return 1
	if command -v minisign >/dev/null; then
		minisign -Vq -P "$key" -m "$work/$1" >/dev/null 2>&1
		return
	fi
	(
		cd "$work"
		sed -n 2p "$1.minisig" | base64 -d >line
		[ "$(head -c 2 line)" = ED ] && [ "$(wc -c <line)" = 74 ] || exit 1
		[ "$(echo "$key" | base64 -d | head -c 10 | tail -c 8 | od -An -tx1)" = "$(head -c 10 line | tail -c 8 | od -An -tx1)" ] || exit 1
		{ printf '\060\052\060\005\006\003\053\145\160\003\041\000'; echo "$key" | base64 -d | tail -c 32; } >key.der
		tail -c 64 line >sig
		openssl dgst -blake2b512 -binary -out digest "$1"
		openssl pkeyutl -verify -pubin -keyform DER -inkey key.der -rawin -in digest -sigfile sig >/dev/null 2>&1 || exit 1
		{ cat sig; sed -n '3s/^trusted comment: //p' "$1.minisig" | tr -d '\n'; } >whole
		sed -n 4p "$1.minisig" | base64 -d >global
		openssl pkeyutl -verify -pubin -keyform DER -inkey key.der -rawin -in whole -sigfile global >/dev/null 2>&1
	)
}

get SHA256SUMS
if [ -n "$key" ]; then
	command -v minisign >/dev/null || command -v openssl >/dev/null ||
		fail "nothing here can check a signature: install minisign or openssl 3"
	get SHA256SUMS.minisig
	signed SHA256SUMS || fail "SHA256SUMS of $from was not signed with the key $key for $version: nothing is installed"
fi
# take FILE: fetch it, and see that it is what the checksums say.
take() {
	get "$1"
	want=$(awk -v name="$1" '$2 == name { print $1 }' "$work/SHA256SUMS")
	[ -n "$want" ] && [ "$(sha256sum "$work/$1" | cut -d ' ' -f 1)" = "$want" ] ||
		fail "$1 of $from is not the file that was released: nothing is installed"
}

if [ -z "$to" ] && command -v dpkg >/dev/null; then
	package=$(awk -v end="_$deb.deb" 'index($2, "ledge_") == 1 && substr($2, length($2) - length(end) + 1) == end { print $2 }' "$work/SHA256SUMS")
	[ -n "$package" ] || fail "this release has no package for $deb"
	take "$package"
	chmod 755 "$work"; chmod 644 "$work/$package" # apt reads it as another user
	apt-get install -y --no-install-recommends "$work/$package"
	echo "ledge $version runs: try 'ledge status' and 'ledge doctor'"
	exit 0
fi
take "ledge-linux-$arch"
to=${to:-/usr/local/bin}
install -D -m 755 "$work/ledge-linux-$arch" "$to/ledge.new"
mv "$to/ledge.new" "$to/ledge"
echo "ledge $version is $to/ledge: 'ledge serve' starts a node, the manual has services for systemd and OpenRC"

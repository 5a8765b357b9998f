#!/bin/sh
# build.sh VERSION [KEY]: make all that people download of VERSION (v1.2.3 or v1.2.3-rc1) into bin/release/VERSION: binaries, Debian packages,
# images, what is in each (SPDX), notes, installer, checksums; with minisign's secret key KEY also signatures. The same commit and the same
# Debian packages give the same bytes.
#   TO      another folder; it must not be there yet
#   ARCHS   of binaries and packages (default: amd64 arm64 armv7)
#   IMAGES  BOARD:FLAVOUR ... (default: all)
#   CHANGES the changelog, which must have a heading of VERSION (default CHANGELOG.md)
#   DIRTY   ok: also with uncommitted changes, for tests
set -eu
umask 022
start=$PWD
cd "$(dirname "$0")/../.."
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# = 1 ] || [ $# = 2 ] || usage
VERSION=$1 key=${2:-}
fail() { echo "release: $*" >&2; exit 1; }
echo "$VERSION" | grep -Eq '^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$' || fail "$VERSION is no version: write v1.2.3, or v1.2.3-rc1"
[ -z "$(git status --porcelain)" ] || [ "${DIRTY:-}" = ok ] || fail "there are uncommitted changes: what is released must be a commit"
tagged=$(git rev-parse --verify --quiet "refs/tags/$VERSION^{commit}" || true)
[ -z "$tagged" ] || [ "$tagged" = "$(git rev-parse HEAD)" ] || fail "the tag $VERSION is another commit, $tagged"
changes=${CHANGES:-CHANGELOG.md} plain=${VERSION#v}
notes=$(awk -v want="## $plain" '$0 == want || index($0, want " ") == 1 { on = 1; next } /^## / { on = 0 } on' "$changes" | sed '1{/^$/d}')
[ -n "$notes" ] || fail "$changes has no heading '## $plain': what is new in it?"
[ -z "$key" ] || command -v minisign >/dev/null || fail "minisign is not installed (apt install minisign)"
case $key in "" | /*) ;; *) key=$start/$key ;; esac

to=${TO:-bin/release/$VERSION}
case $to in /*) ;; *) to=$start/$to ;; esac
[ ! -e "$to" ] || fail "$to is there already"
work=$to.tmp$$
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export VERSION SOURCE_DATE_EPOCH

# Packages are written with the help of a binary that this machine can run.
LEDGE_BIN=$work/.own
export LEDGE_BIN
scripts/build.sh "$LEDGE_BIN" >/dev/null
for arch in ${ARCHS:-amd64 arm64 armv7}; do
	case $arch in amd64) go=amd64 deb=amd64 ;; arm64) go=arm64 deb=arm64 ;; armv7) go=arm deb=armhf ;; *) fail "no architecture $arch" ;; esac
	if [ $go = "$(go env GOHOSTARCH)" ]; then
		cp "$LEDGE_BIN" "$work/ledge-linux-$arch"
	else
		GOARCH=$go GOARM=$([ $go != arm ] || echo 7) scripts/build.sh "$work/ledge-linux-$arch" >/dev/null
	fi
	GOARCH='' go run ./packaging/release/sbom "$VERSION" "$SOURCE_DATE_EPOCH" $deb "$work/ledge-linux-$arch" >"$work/ledge-linux-$arch.spdx.json"
	packaging/deb/build.sh $deb "$work/ledge-linux-$arch" "$work" >/dev/null
done
for pair in ${IMAGES-generic-amd64:debian generic-amd64:appliance generic-arm64:debian generic-arm64:appliance rpi:debian rpi:appliance}; do
	arch=$([ "${pair%:*}" = generic-amd64 ] && echo amd64 || echo arm64)
	LEDGE_BIN=$LEDGE_BIN go run ./packaging/image -board "${pair%:*}" -flavour "${pair#*:}" -binary "$work/ledge-linux-$arch" -o "$work" >/dev/null
done
rm "$LEDGE_BIN"
printf '# ledge %s\n\n%s\n' "$plain" "$notes" >"$work/NOTES.md"

public=
if [ -n "$key" ]; then
	public=$(minisign -R -s "$key" -p "$work/release.pub" >/dev/null && sed -n 2p "$work/release.pub")
fi
sed "s|@VERSION@|$VERSION|; s|@KEY@|$public|" packaging/release/install.sh >"$work/install.sh"
chmod 755 "$work/install.sh"
(cd "$work" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' | sed 's|^\./||' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS.tmp && mv SHA256SUMS.tmp SHA256SUMS)
if [ -n "$key" ]; then
	for f in "$work"/SHA256SUMS "$work"/ledge-linux-amd64 "$work"/ledge-linux-arm64 "$work"/ledge-linux-armv7; do
		[ -e "$f" ] || continue
		minisign -S -s "$key" -m "$f" -t "file:$(basename "$f") version:$VERSION" >/dev/null
	done
fi
mkdir -p "$(dirname "$to")"
mv "$work" "$to"
ls "$to" | sed "s|^|$to/|"
[ -n "$key" ] || echo "release: without a KEY nothing is signed, and the installer compares checksums only" >&2

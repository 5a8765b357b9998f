#!/bin/sh
# build.sh [OUT]: build ledge, fully static, for this machine or for GOARCH (amd64, arm64, arm) [GOARM].
# OUT defaults to bin/ledge; STRIP= (empty) leaves the symbols in. PKG (default ./cmd/ledge) is the main package. For another architecture CC and
# LEDGE_SYSROOT (with usr/include and usr/lib/TRIPLE of libseccomp) may name a compiler and a library of your own.
set -eu
cd "$(dirname "$0")/.."

out=${1:-bin/ledge}
pkg=${PKG:-./cmd/ledge}
here=$(GOARCH='' go env GOHOSTARCH)
GOARCH=${GOARCH:-$here}
cache=${LEDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ledge}
export GOARCH GOOS=linux CGO_ENABLED=1

linker=
case $GOARCH in
amd64) deb=amd64 triple=x86_64-linux-gnu ;;
arm64) deb=arm64 triple=aarch64-linux-gnu ;;
# On arm GNU ld forgets to move the addresses of libc's choices of memcpy (IRELATIVE) when it adds stubs for calls across more than
# 16 MB: the binary ended before main with an illegal instruction. gold does not.
arm) deb=armhf triple=arm-linux-gnueabihf linker=-fuse-ld=gold; export GOARM="${GOARM:-7}" ;;
*) echo "build.sh: GOARCH $GOARCH is not one of amd64, arm64, arm" >&2; exit 2 ;;
esac

if [ "$GOARCH" != "$here" ]; then
	scripts/setup.sh cross >&2
	# The name carries the script's checksum: a changed debs.sh gets a fresh tree.
	sysroot=${LEDGE_SYSROOT:-$cache/sysroot/$deb-$(cksum <packaging/debs.sh | cut -d ' ' -f 1)}
	if [ -z "${LEDGE_SYSROOT:-}" ] && [ ! -e "$sysroot/.done" ]; then
		rm -rf "$sysroot.tmp$$"
		packaging/debs.sh "$deb" "$sysroot.tmp$$" libseccomp-dev >&2
		touch "$sysroot.tmp$$/.done"
		# Another build may have won the race; its tree is as good as ours.
		mv -T "$sysroot.tmp$$" "$sysroot" 2>/dev/null || rm -rf "$sysroot.tmp$$"
	fi
	export CC="${CC:-$triple-gcc}" PKG_CONFIG_SYSROOT_DIR="$sysroot" \
		PKG_CONFIG_LIBDIR="$sysroot/usr/lib/$triple/pkgconfig" PKG_CONFIG_PATH=
fi

# The build time is the commit's, so that the same commit gives the same bytes on every machine.
version=$(scripts/version.sh)
commit=${COMMIT:-$(git rev-parse --verify --quiet HEAD || echo unknown)}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
built=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)

# seccomp links libseccomp in; runc_nocriu leaves CRIU's protobuf out; netgo and osusergo keep glibc's NSS, which
# cannot be linked statically, away. -static comes through gcc, hence the external linker. -funcalign: 16 bytes, as on arm64; Go takes 32 on amd64,
# of which half a function's worth is padding.
export GOFLAGS="${GOFLAGS:-}$(scripts/lean.sh)"
# disablethp: where the kernel gives huge pages to everybody (Debian's does), the Go runtime would hold 2 MB for a few live
# objects, twice what ledge needs in all. It is a setting of the runtime's own (package runtime, GODEBUG) that a source
# file cannot give.
go build -trimpath -buildvcs=false -tags "netgo osusergo seccomp runc_nocriu" \
	-ldflags "${STRIP--s -w} -funcalign 16 -linkmode external -extldflags '-static $linker' -X runtime.godebugDefault=disablethp=1 -X main.version=$version -X main.commit=$commit -X main.buildTime=$built" \
	-o "$out" "$pkg"

# -extldflags can be lost (a wrapper for CC, another linker): a binary that wants a loader does not start on a board.
if readelf -lW "$out" | grep -q INTERP || readelf -dW "$out" 2>/dev/null | grep -q NEEDED; then
	echo "build.sh: $out is not static" >&2
	exit 1
fi
echo "built $out: linux/$GOARCH${GOARM:+ v$GOARM}, $(stat -c %s "$out") bytes, static, $version"

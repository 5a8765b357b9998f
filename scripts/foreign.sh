#!/bin/sh
# foreign.sh arm64|arm PACKAGE... : run these packages' tests as that architecture under qemu-user, without cgo.
#
# Tests that start their own binary again need the kernel to know the interpreter (binfmt_misc). That registration is
# for the whole machine, except in a user namespace of its own on Linux 6.7 and later; so that is tried before.
set -eu
cd "$(dirname "$0")/.."
arch=$1
shift
gotest=${GOTEST:-go test} # scripts/again in whole runs
tags="netgo osusergo seccomp runc_nocriu"
case $arch in
arm64)
	qemu=qemu-aarch64-static cpu=cortex-a72
	magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
	;;
arm)
	qemu=qemu-arm-static cpu=cortex-a15
	magic='\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x28\x00'
	;;
*) echo "foreign.sh: $arch is not one of arm64, arm" >&2; exit 2 ;;
esac
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
rule=":ledge-$arch:M::$magic:$mask:$(command -v $qemu):F"
misc=/proc/sys/fs/binfmt_misc
# -cpu max (the default) emulates pointer authentication in software.
export QEMU_CPU=$cpu GOARCH=$arch GOARM=7 CGO_ENABLED=0 LEDGE_EMULATED=1

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
printf 'package main\nfunc main() {}\n' >"$probe/main.go"
go build -o "$probe/main" "$probe/main.go"

# shellcheck disable=SC2086 # two words
test_all() { $gotest -tags "$tags" -timeout 15m "$@"; }

if "$probe/main" 2>/dev/null; then
	test_all "$@"
elif unshare -U -m --map-users=0,0,65536 --map-groups=0,0,65536 \
	sh -c "mount -t binfmt_misc ledge $misc && printf '%s' '$rule' >$misc/register && $probe/main" 2>/dev/null; then
	unshare -U -m --map-users=0,0,65536 --map-groups=0,0,65536 \
		sh -c "mount -t binfmt_misc ledge $misc && printf '%s' '$rule' >$misc/register && exec \"\$@\"" \
		foreign $gotest -tags "$tags" -timeout 15m "$@"
else
	[ -e $misc/register ] || mount -t binfmt_misc binfmt_misc $misc
	printf '%s' "$rule" >$misc/register
	trap 'rm -rf "$probe"; echo -1 >'"$misc/ledge-$arch" EXIT
	trap 'exit 1' INT TERM HUP
	"$probe/main"
	test_all "$@"
fi

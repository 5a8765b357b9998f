#!/bin/sh
# rootfs.sh DIR: the two file systems that the suite's images stand on, from Debian packages: DIR/minbase.tar (agnhost's
# tools) and DIR/busybox (one static program and its names).
set -eu
dir=$1
key=$(sha256sum <"$0")
[ "$(cat "$dir/rootfs-done" 2>/dev/null)" != "$key" ] || exit 0

mirror=$(apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' 2>/dev/null |
	awk '$1 == "bookworm" { print $2; exit }')
# The user and group are what the tests of supplementary groups look for in the image.
mmdebstrap --quiet --mode=root --variant=minbase --skip=check/empty \
	--aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' --aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--include=curl,netcat-openbsd,iproute2,bind9-dnsutils \
	--customize-hook='chroot "$1" useradd -u 1000 -m user-defined-in-image' \
	--customize-hook='chroot "$1" groupadd -g 50000 group-defined-in-image' \
	--customize-hook='chroot "$1" usermod -aG group-defined-in-image user-defined-in-image' \
	--customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*' \
	bookworm "$dir/minbase.tar" "${mirror:-http://deb.debian.org/debian}" >&2

rm -rf "$dir/busybox" "$dir/debs"
"$(dirname "$0")/../../packaging/debs.sh" "$(dpkg --print-architecture)" "$dir/debs" busybox-static bash-static >&2
mkdir -p "$dir/busybox/bin" "$dir/busybox/tmp" "$dir/busybox/etc" "$dir/busybox/root" "$dir/busybox/usr/bin" "$dir/busybox/home"
chmod 1777 "$dir/busybox/tmp"
install -m 755 "$dir"/debs/bin/busybox "$dir/busybox/bin/busybox"
# sh is busybox's, whose messages the tests know. As Debian builds it, it drops variables whose names have dots or
# dashes in them: where there are any, bash stands in.
install -m 755 "$dir"/debs/bin/bash-static "$dir/busybox/bin/bash"
cat >"$dir/sh.c" <<'C'
#include <ctype.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
	const char *shell = "/bin/busybox";
	for (char **e = environ; *e; e++)
		for (char *c = *e; *c && *c != '='; c++)
			if (!isalnum((unsigned char)*c) && *c != '_')
				shell = "/bin/bash";
	execv(shell, argv);
	return 127;
}
C
names=$("$dir/busybox/bin/busybox" --list)
for name in $names; do
	[ "$name" = busybox ] || [ "$name" = bash ] || ln -sf busybox "$dir/busybox/bin/$name"
done
rm -f "$dir/busybox/bin/sh"
gcc -Os -static -s -o "$dir/busybox/bin/sh" "$dir/sh.c"
echo 'root:x:0:0:root:/root:/bin/sh' >"$dir/busybox/etc/passwd"
printf 'root:x:0:\nnobody:x:65534:\n' >"$dir/busybox/etc/group"
rm -rf "$dir/debs" "$dir/sh.c"
echo "$key" >"$dir/rootfs-done"

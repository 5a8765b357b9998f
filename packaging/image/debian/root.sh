#!/bin/sh
# root.sh ARCH DEST PACKAGE,...: a Debian 12 with these packages, as they are today, in the new directory DEST. Needs root. What
# distinguishes one machine or one day from another is not in it.
set -eu
arch=$1 dest=$2 packages=$3
mirror=$(apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' 2>/dev/null |
	awk '$1 == "bookworm" { print $2; exit }')
mirror=${mirror:-http://deb.debian.org/debian}
signed="deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
# The day on which passwords were set stands in a file; it is the release's.
export SOURCE_DATE_EPOCH=1686355200
mmdebstrap --quiet --mode=root --variant=apt --skip=check/empty,check/qemu --architectures="$arch" \
	--aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' --aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' --include="$packages" '' "$dest" - <<SOURCES
$signed $mirror bookworm main non-free-firmware
$signed ${mirror%/debian*}/debian-security bookworm-security main non-free-firmware
SOURCES
dpkg-query --admindir="$dest/var/lib/dpkg" -W -f '${Package} ${Version}\n' >"$dest/.debs"
cat >"$dest/etc/apt/sources.list" <<SOURCES
deb http://deb.debian.org/debian bookworm main non-free-firmware
deb http://deb.debian.org/debian bookworm-updates main non-free-firmware
deb http://deb.debian.org/debian-security bookworm-security main non-free-firmware
SOURCES
cd "$dest"
rm -rf run/* tmp/* dev/* var/tmp/* var/log/* var/lib/apt/lists/* var/cache/apt/* var/cache/debconf/*-old var/cache/ldconfig \
	var/lib/dpkg/*-old var/lib/systemd/random-seed etc/ssh/ssh_host_* etc/.pwd.lock etc/*-
: >etc/machine-id
ln -sf ../run/systemd/resolve/stub-resolv.conf etc/resolv.conf

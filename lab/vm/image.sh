#!/bin/sh
# image.sh DEST ARCH: make what a guest of ARCH (Debian's name) needs in the new directory DEST.
#   all    vmlinuz, lib/modules (for an initramfs: the appliance boots without Debian)
#   amd64  root.img (Debian 12, systemd, all modules of the cloud kernel)
# Run through `go run ./lab/vm`, which caches the result by month and by this file's checksum.
set -eu
dest=$1 arch=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$dest/work
mkdir -p "$work/kern"

case $arch in
amd64) kernel=linux-image-cloud-amd64+ ;; # ext4 and nvme built in: boots from a disk without an initrd
arm64) kernel=linux-image-cloud-arm64+ ;;
armhf) kernel=linux-image-armmp-lpae+ ;;
*) echo "image.sh: no guest for $arch" >&2; exit 2 ;;
esac
"$here/../../packaging/debs.sh" "$arch" "$work/kern" "$kernel"
mv "$work"/kern/boot/vmlinuz-* "$dest/vmlinuz"
version=$(ls "$work/kern/lib/modules")
depmod -b "$work/kern" "$version"
cp "$work/kern/.debs" "$dest/packages"
mkdir "$dest/lib"
mv "$work/kern/lib/modules" "$dest/lib/modules"
if [ "$arch" != amd64 ]; then
	rm -rf "$work"
	exit 0
fi

root=$work/root
mirror=$(apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' 2>/dev/null |
	awk '$1 == "bookworm" { print $2; exit }')
mmdebstrap --quiet --mode=root --variant=essential --skip=check/empty --architectures=amd64 \
	--aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' --aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--include=apparmor,systemd,systemd-sysv,dbus,udev,kmod,libpam-systemd,iproute2,nftables,e2fsprogs,xfsprogs,nfs-kernel-server,procps \
	bookworm "$root" "${mirror:-http://deb.debian.org/debian}"

rm -rf "$root/lib/modules"
cp -a "$dest/lib/modules" "$root/usr/lib/modules"
# br_netfilter and overlay are not always asked for by name; evdev and button are what logind needs for a power key.
printf '%s\n' overlay br_netfilter nf_conntrack_netlink loop evdev button >"$root/etc/modules-load.d/ledge.conf"
echo ledge-guest >"$root/etc/hostname"
printf '127.0.0.1 localhost ledge-guest\n::1 localhost\n' >"$root/etc/hosts"
# A busy machine may take minutes to find the disk. Without these systemd gives up on it and stands still in emergency mode,
# where it waits for a key; the harness waits for the mount anyway.
echo 'LABEL=payload /payload ext4 nofail,x-systemd.device-timeout=0 0 0' >"$root/etc/fstab"
mkdir "$root/payload"
# What the guest does is in the payload; the image only knows where to find it. An OOM kill or a fork bomb inside a
# test's cgroup must not stop the harness: OOMPolicy, TasksMax. No input: the port must not become a controlling
# terminal, whose signals stop processes in the background.
cat >"$root/etc/systemd/system/harness.service" <<'UNIT'
[Unit]
Description=Run the payload disk
After=basic.target dbus.service systemd-logind.service
Wants=systemd-logind.service
RequiresMountsFor=/payload

[Service]
Type=exec
ExecStart=/payload/run
ExecStopPost=/bin/echo @@stopped
StandardInput=null
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS1
Delegate=yes
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=524288

[Install]
WantedBy=multi-user.target
UNIT
sys=$root/etc/systemd/system
mkdir -p "$sys/multi-user.target.wants"
ln -s ../harness.service "$sys/multi-user.target.wants/"
for unit in getty.target serial-getty@ttyS0.service serial-getty@ttyS1.service systemd-timesyncd.service \
	rpcbind.service rpcbind.socket nfs-server.service nfs-client.target rpc-statd-notify.service nfs-blkmap.service \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer e2scrub_reap.service \
	systemd-networkd-wait-online.service systemd-firstboot.service; do
	ln -sf /dev/null "$sys/$unit"
done
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*

truncate -s 2G "$dest/root.img"
# metadata checksums cost emulated CPU and protect nothing here: every boot starts from a throw-away overlay.
mke2fs -q -t ext4 -O ^metadata_csum -E lazy_itable_init=1,root_owner=0:0 -m 0 -L root -d "$root" "$dest/root.img"
rm -rf "$work"

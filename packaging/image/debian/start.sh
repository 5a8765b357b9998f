#!/bin/sh
# The first process of a card with Debian: it finds the card, puts memory over its root, which is never written to, and gives way to
# systemd. ledge.disk= names the card by the number in its first sector: partition 1 is the firmware's, 2 the root, 3 the data's.
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for word in $(cat /proc/cmdline); do
	case $word in ledge.disk=*) want=${word#*=} ;; esac
done
say() { echo "ledge: $*"; }

# drivers loads what the devices that there are ask for.
drivers() { find /sys/devices -name modalias -exec cat {} + 2>/dev/null | sort -u | xargs modprobe -a -q 2>/dev/null; }

# find_card sets card, if there is one and not two: pods must not come up on another board's.
find_card() {
	card=
	for at in /sys/class/block/*; do
		name=${at##*/}
		case $name in loop* | ram* | zram* | sr*) continue ;; esac
		[ ! -e "$at/partition" ] || continue
		[ "$(dd if="/dev/$name" bs=4 skip=110 count=1 2>/dev/null | od -An -tx4 | tr -d ' ')" = "$want" ] || continue
		[ -z "$card" ] || { problem="two disks have this image on them, $card and $name: take one out" card=; return 1; }
		card=$name
	done
	case $card in *[0-9]) part=/dev/${card}p ;; *) part=/dev/$card ;; esac
	problem="waiting for the card $want"
	[ -n "$card" ] && [ -b "${part}3" ]
}

xargs modprobe -a -q 2>/dev/null </etc/modules
tries=0
drivers
until find_card; do
	tries=$((tries + 1))
	[ $((tries % 40)) != 20 ] || say "$problem"
	sleep 0.5
	drivers
done

until mount -t squashfs -o ro "${part}2" /card; do
	say "the root on ${part}2 cannot be read"
	sleep 10
done
mount -t tmpfs -o mode=755,size=50% memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/card,upperdir=/memory/upper,workdir=/memory/work root /root || say "there is no overlay"
# What cannot be mounted is told, and the board comes up without: somebody may look at it then. The node does not begin anew.
mount -t vfat -o ro,nosuid,nodev,noexec,noatime,umask=0077 "${part}1" /root/boot/firmware || say "${part}1 cannot be mounted"
data=/root/var/lib/ledge
# prjquota holds claims to their sizes; a card made by an earlier version has no quotas, and is not mounted with the word.
mount_data() { mount -t ext4 -o noatime,commit=60,prjquota "${part}3" $data || mount -t ext4 -o noatime,commit=60 "${part}3" $data; }
# A power cut may have torn the superblock or the journal, which the node's own program can make whole.
if mount_data || { /card/usr/bin/ledge firstboot --mend "${part}3" && mount_data; }; then
	id=$data/machine-id
	if ! grep -qE '^[0-9a-f]{32}$' $id; then
		tr -d - </proc/sys/kernel/random/uuid >$id.new
		sync
		mv $id.new $id
		sync
	fi
	cat $id >/root/etc/machine-id
	# So that a board without a clock believes at least the time that it has seen last.
	mkdir -p $data/system/timesync
	mount -o bind $data/system/timesync /root/var/lib/systemd/timesync
else
	say "the data on ${part}3 cannot be mounted: the node does not start"
fi
for dir in dev proc sys; do
	mount -o move /$dir /root/$dir
done
exec switch_root /root /sbin/init

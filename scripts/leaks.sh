#!/bin/sh
# leaks.sh save FILE | check FILE: what of ledge's is on this machine now; check fails when there is more than before.
# Tests check their own things; this finds what none of them thought of.
set -u

seen() {
	awk '{ print "mount " $5 }' /proc/self/mountinfo
	find /sys/fs/cgroup -type d -printf 'cgroup %p\n' 2>/dev/null
	for f in /sys/class/net/*; do echo "interface ${f##*/}"; done
	nft list tables 2>/dev/null | sed 's/^/nftables /'
	ls -d /run/netns/* /run/ledge* /tmp/ledge-* /tmp/Test* /var/lib/ledge 2>/dev/null | sed 's/^/file /'
	for d in /proc/[0-9]*; do
		case $(readlink "$d/exe" 2>/dev/null) in
		*/ledge* | *.test | *.test\ * | memfd:* | /payload/*) echo "process ${d#/proc/} $(tr '\0' ' ' <"$d/cmdline" 2>/dev/null)" ;;
		esac
	done
}

case ${1:-} in
save) seen | sort -u >"$2" ;;
check)
	# The kernel drops namespaces and what is in them a moment after the last process.
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		more=$(seen | sort -u | comm -13 "$2" -)
		[ -z "$more" ] && exit 0
		sleep 1
	done
	echo "leaks: left behind:" >&2
	echo "$more" | head -n 40 >&2
	exit 1
	;;
*) echo "usage: leaks.sh save|check FILE" >&2; exit 2 ;;
esac

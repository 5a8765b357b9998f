#!/bin/sh
# leaks.sh show|save|check RUN DIR [FILE]: what the tests of a run have left on this machine. Tests check their own things;
# this finds what none of them thought of. Other work may go on beside it, so it looks at two kinds of things only:
#
#   what carries RUN, a word that stands in LEDGE_RUN, in the name of DIR, which is the run's TMPDIR, and therefore in the
#   paths of test binaries, in mounts, and in the names of whatever else tests make (package internal/testrun);
#   what an installed ledge would make, which no test may do on the machine itself.
#
# show prints it, save writes it to FILE, check fails when there is more than in FILE.
set -u
[ -z "${LEDGE_RUN:-}" ] || exec env -u LEDGE_RUN "$0" "$@" # this script is no leftover

verb=${1:-} run=${2:-} dir=${3:-} file=${4:-}
usage() {
	echo "usage: leaks.sh show RUN DIR | save RUN DIR FILE | check RUN DIR FILE" >&2
	exit 2
}
[ -n "$run" ] && [ -d "$dir" ] || usage

things() {
	awk -v run="$run" 'index($0, run) { print "mount " $5 }' /proc/self/mountinfo
	find /sys/fs/cgroup -type d -name "*$run*" -prune -printf 'cgroup %p\n' 2>/dev/null
	{
		ls -d /sys/class/net/*"$run"* /sys/class/net/ledge0 2>/dev/null
		grep -lsF "$run" /sys/class/net/*/ifalias # of a pod's interface: it names the bridge
	} | awk -F / '{ print "interface " $5 }'
	nft list tables 2>/dev/null | awk -v run="$run" 'index($0, run) || $NF == "ledge_ledge0" { print "nftables " $0 }'
	ls -d /sys/fs/cgroup/kubepods /sys/fs/cgroup/memory/kubepods /sys/fs/cgroup/unified/kubepods 2>/dev/null | sed 's/^/cgroup /'
	ls -d /run/*"$run"* /run/netns/*"$run"* /var/tmp/*"$run"* /dev/shm/*"$run"* /run/ledge /var/lib/ledge /etc/ledge \
		/run/systemd/logind.conf.d/99-ledge.conf 2>/dev/null | sed 's/^/file /'
	find "$dir" -mindepth 1 -maxdepth 1 -printf 'file %p\n'
}

# A container's process has an environment and paths of its own; its cgroup tells.
processes() {
	{
		grep -lsF "$run" /proc/[0-9]*/cgroup
		grep -lszxF "LEDGE_RUN=$run" /proc/[0-9]*/environ
		find /proc/[0-9]*/exe /proc/[0-9]*/cwd -maxdepth 0 -lname "*$run*" 2>/dev/null
	} | cut -d / -f 3 | sort -u | while read -r pid; do
		echo "process $pid $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")"
	done
}

seen() { { things; processes; } | sort -u; }

case $verb in
show) seen ;;
save) [ -n "$file" ] && seen >"$file" || usage ;;
check)
	[ -r "$file" ] || usage
	# The kernel drops namespaces and what is in them a moment after the last process.
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		more=$(seen | comm -13 "$file" -)
		[ -z "$more" ] && exit 0
		sleep 1
	done
	echo "leaks: left behind:" >&2
	echo "$more" | head -n 40 >&2
	exit 1
	;;
*) usage ;;
esac

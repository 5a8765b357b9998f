#!/bin/sh
# run.sh: build ledge and start a node of its own in the foreground: throw-away directories, a free port, its own bridge
# and cgroup. It applies scripts/sample.yaml, prints what to paste, and on Ctrl-C stops the pods and removes it all.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/go/bin
export PATH

[ "$(id -u)" = 0 ] || { echo "run: containers need root: sudo make run" >&2; exit 1; }
scripts/setup.sh build run
scripts/build.sh bin/ledge

id=$$
name=ledge$id # interface (15 letters at most), cgroup and directories: all named alike, so that leftovers are found
dir=$(mktemp -d "/tmp/$name.XXXXXX")
rundir=/run/$name
node=

port() { # a random port that nobody listens on
	while :; do
		p=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 12000))
		hex=$(printf ':%04X ' "$p")
		grep -q "$hex" /proc/net/tcp /proc/net/tcp6 2>/dev/null || { echo "$p"; return; }
	done
}
port=$(port)

ledge() { bin/ledge "$@"; }

left() { # what carries our name and is still there
	awk -v n="$name" 'index($5, n) { print "mount " $5 }' /proc/self/mountinfo
	find /sys/fs/cgroup -type d -name "*$name*" 2>/dev/null | sed 's/^/cgroup /'
	for f in /sys/class/net/*; do # pods' interfaces have the bridge's name in their aliases only
		case "${f##*/} $(cat "$f/ifalias" 2>/dev/null)" in *"$name"*) echo "interface ${f##*/}" ;; esac
	done
	nft list tables | awk -v n="$name" 'index($0, n) { print "nftables " $0 }'
	for f in /run/netns/*"$name"*; do [ ! -e "$f" ] || echo "namespace $f"; done
	for d in /proc/[0-9]*; do
		if tr '\0' ' ' 2>/dev/null <"$d/cmdline" | grep -q -e "$rundir" -e "$dir"; then echo "process ${d#/proc/}"; fi
	done
}

finish() {
	code=$?
	trap '' INT TERM HUP
	trap - EXIT
	if [ -n "$node" ] && kill -0 "$node" 2>/dev/null; then
		echo
		echo "run: stopping the pods and the node"
		kill -TERM "$node"
	fi
	[ -z "$node" ] || wait "$node" || [ $code != 0 ] || code=1
	ledge --run-dir "$rundir" reset --data --data-dir "$dir/data" >"$dir/reset.log" 2>&1 || { cat "$dir/reset.log"; code=1; }
	for _ in 1 2 3 4 5 6 7 8 9 10; do # the kernel takes a moment to drop namespaces
		rest=$(left)
		[ -n "$rest" ] || break
		sleep 0.5
	done
	if [ -n "$rest" ]; then
		echo "run: LEFT BEHIND:"
		echo "$rest"
		code=1
	else
		rm -rf "$dir" "$rundir"
		echo "run: nothing is left behind"
	fi
	exit $code
}
trap finish EXIT
# A terminal's Ctrl-C ends this script on purpose: that is the normal end.
trap 'exit 0' INT TERM HUP

mkdir -p "$dir/data" "$rundir"
# A developer's disk may be fuller than a board's should be.
cat >"$dir/config.yaml" <<END
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
failSwapOn: false
evictionHard: {nodefs.available: 100Mi, imagefs.available: 100Mi}
END

# A session of its own: Ctrl-C reaches only this script, which then stops the node in order.
setsid bin/ledge serve --run-dir "$rundir" --data-dir "$dir/data" --config "$dir/config.yaml" \
	--listen "127.0.0.1:$port" --bridge "$name" --cgroup-root "/$name" --on-term=drain --power-backend=none &
node=$!

until_true() { # SECONDS WHAT COMMAND...: wait until the command succeeds or the node has ended
	end=$(($(date +%s) + $1))
	what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		kill -0 "$node" 2>/dev/null || { echo "run: the node has ended" >&2; exit 1; }
		[ "$(date +%s)" -lt $end ] || { echo "run: $what: not in time" >&2; exit 1; }
		sleep 0.2
	done
}
ready() { ledge --run-dir "$rundir" get nodes | grep -q ' Ready'; }
running() { ledge --run-dir "$rundir" get pod hello | grep -q ' Running'; }

until_true 60 "the node is Ready" ready
ledge --run-dir "$rundir" apply -f scripts/sample.yaml
until_true 60 "the sample pod is Running" running
(umask 077 && ledge --run-dir "$rundir" kubeconfig >"$dir/kubeconfig")

cat <<TEXT

The node is up and runs one pod. In another terminal, paste:

  $PWD/bin/ledge --run-dir $rundir get pods
  $PWD/bin/ledge --run-dir $rundir logs hello
  kubectl --kubeconfig $dir/kubeconfig get pods -o wide      # the API: https://127.0.0.1:$port

Ctrl-C stops the pod and the node and removes everything.
TEXT
wait "$node"

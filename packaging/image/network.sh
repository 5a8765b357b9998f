#!/bin/sh
# Asks for an address on every wired interface, by DHCP. Process 1 starts it unless the board was given an address, and again when
# it ends. A USB adapter may come at any time, and a client may end: hence the rounds.
mkdir -p /run/network
while :; do
	for at in /sys/class/net/*; do
		if=${at##*/} pid=/run/network/${at##*/}.pid
		[ -e "$at/device" ] || continue # a bridge or an end of a pod's: not ours
		[ ! -e "$at/phy80211" ] || continue
		[ ! -e "$pid" ] || ! kill -0 "$(cat "$pid")" 2>/dev/null || continue
		ip link set "$if" up || continue
		# Three questions every 20 seconds, for as long as it takes; with the name, so that the router knows it.
		udhcpc -f -i "$if" -s /sbin/lease -t 3 -A 20 -x "hostname:$(hostname)" -O search -O ntpsrv >/dev/null 2>&1 &
		echo $! >"$pid"
	done
	sleep 2
done

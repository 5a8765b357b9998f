#!/bin/sh
# What udhcpc has been given becomes the interface's: $interface, $ip, $mask, $router, $dns, $search, $ntpsrv.
[ -n "$interface" ] || exit 1
case $1 in
deconfig)
	ip link set "$interface" up
	ip -4 addr flush dev "$interface"
	rm -f "/run/network/$interface.dns" "/run/network/$interface.ntp"
	;;
bound | renew)
	if ! ip -4 addr show dev "$interface" | grep -q " $ip/$mask "; then # the same one stays: connections live on it
		ip -4 addr flush dev "$interface"
		ip -4 addr add "$ip/$mask" brd + dev "$interface"
		echo "network: $interface has $ip/$mask${router:+, router $router}" >/dev/console
	fi
	metric=$((100 + $(cat "/sys/class/net/$interface/ifindex"))) # of two ways out the first interface's
	for r in $router; do
		ip route replace default via "$r" dev "$interface" metric "$metric"
		break
	done
	{
		for s in $dns; do echo "nameserver $s"; done
		[ -z "$search$domain" ] || echo "search ${search:-$domain}"
	} >"/run/network/$interface.dns"
	for s in $ntpsrv; do echo "$s"; done >"/run/network/$interface.ntp"
	;;
*) exit 0 ;;
esac
cat /run/network/*.dns >/etc/resolv.conf.new 2>/dev/null
mv /etc/resolv.conf.new /etc/resolv.conf

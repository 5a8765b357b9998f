#!/bin/sh
# setup.sh [build] [run] [cross] [vm] [images] [board] [browser]: install the Debian packages that are missing, and nothing else.
# Without an argument: build. When everything is there it only says so.
set -eu

build="gcc libc6-dev pkg-config libseccomp-dev make binutils git ca-certificates"
run="nftables" # to see that no table is left
# armhf has its own compiler; the libseccomp of other architectures comes by debs.sh, never by dpkg --add-architecture.
cross="gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-arm-linux-gnueabihf libc6-dev-armhf-cross \
	gcc-x86-64-linux-gnu libc6-dev-amd64-cross debian-archive-keyring qemu-user-static"
vm="qemu-system-x86 qemu-system-arm qemu-utils mmdebstrap e2fsprogs kmod lz4 xz-utils debian-archive-keyring \
	systemd-container dbus nftables iproute2 nut-server"
# A real registry, programs that make and send images, what stands in an image that has a shell, what sees system calls, and
# what signs versions; what asks a Service as people do, and for names as pods do (Alpine's with musl), what looks for boards on a network, plugins
# of CNI, and a database.
images="docker-registry skopeo umoci buildah busybox-static sqlite3 strace minisign curl bind9-dnsutils musl-tools dbus avahi-daemon avahi-utils \
	containernetworking-plugins iptables"
# Images of boards, and what boots them as boards do. The boot loaders themselves come by debs.sh.
board="mtools dosfstools e2fsprogs grub-common xz-utils zstd kmod mmdebstrap squashfs-tools openssh-client debian-archive-keyring ovmf qemu-efi-aarch64"
# What looks at the board's page as people do.
browser="chromium fonts-dejavu-core curl ca-certificates"

self=$(dpkg --print-architecture 2>/dev/null || true)
[ -n "$self" ] || { echo "setup.sh: no dpkg here: install by hand what the lists in this file name" >&2; exit 1; }

want=
for group in "${@:-build}"; do
	case $group in
	build) want="$want $build" ;;
	run) want="$want $run" ;;
	cross) want="$want $cross" ;;
	vm) want="$want $vm" ;;
	images) want="$want $images" ;;
	board) want="$want $board" ;;
	browser) want="$want $browser" ;;
	*) echo "setup.sh: unknown group $group (build, run, cross, vm, images, board, browser)" >&2; exit 2 ;;
	esac
done

missing=
for p in $want; do
	case $self:$p in # the native compiler is not packaged as a cross compiler
	amd64:gcc-x86-64-linux-gnu | amd64:libc6-dev-amd64-cross | arm64:gcc-aarch64-linux-gnu | \
	arm64:libc6-dev-arm64-cross | armhf:gcc-arm-linux-gnueabihf | armhf:libc6-dev-armhf-cross) continue ;;
	esac
	dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed && continue
	case " $missing " in *" $p "*) ;; *) missing="$missing $p" ;; esac
done

if [ -n "$missing" ]; then
	if [ "$(id -u)" != 0 ]; then
		echo "setup.sh: missing packages, run as root: apt-get install --no-install-recommends$missing" >&2
		exit 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	# One index of a foreign source may be broken: what matters is whether the install works.
	apt-get -qq update >&2 || echo "setup.sh: apt-get update failed, trying with the old lists" >&2
	# shellcheck disable=SC2086 # a list of names
	apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends $missing >&2
	# The tests start registries of their own; the packaged service would only listen for strangers.
	case " $missing " in *" docker-registry "*)
		[ -d /run/systemd/system ] && systemctl disable --now docker-registry >&2 || true ;;
	esac
	case " $missing " in *" avahi-daemon "*)
		[ -d /run/systemd/system ] && systemctl disable --now avahi-daemon.socket avahi-daemon >&2 || true ;;
	esac
fi

# OpenRC is unpacked and not installed: it would take the place of the init scripts of this machine.
case " $* " in *" vm "*)
	openrc=${LEDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ledge}/openrc
	if [ ! -e "$openrc/.done" ]; then
		"$(dirname "$0")/../packaging/debs.sh" "$self" "$openrc.tmp$$" openrc librc1 libeinfo1 >&2
		touch "$openrc.tmp$$/.done"
		mv -T "$openrc.tmp$$" "$openrc" 2>/dev/null || rm -rf "$openrc.tmp$$"
	fi ;;
esac

# axe tells what keeps people from using a page who do not see or point. It is a script that tests run in the browser.
case " $* " in *" browser "*)
	axe=4.14.1 sum=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
	dir=${LEDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ledge}/axe
	if [ ! -e "$dir/axe-$axe.js" ]; then
		mkdir -p "$dir"
		curl -sSfL --retry 5 "https://registry.npmjs.org/axe-core/-/axe-core-$axe.tgz" -o "$dir/$axe.tgz.$$"
		echo "$sum  $dir/$axe.tgz.$$" | sha256sum -c --quiet >&2
		tar -xzOf "$dir/$axe.tgz.$$" package/axe.min.js >"$dir/.$axe.$$"
		mv "$dir/.$axe.$$" "$dir/axe-$axe.js"
		rm -f "$dir/$axe.tgz.$$"
	fi ;;
esac

command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
command -v go >/dev/null || { echo "setup.sh: Go is not installed (see https://go.dev/dl; go.mod names the version)" >&2; exit 1; }
echo "setup: ${*:-build} ready (installed:${missing:- nothing, all present})"

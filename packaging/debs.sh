#!/bin/sh
# debs.sh ARCH DEST PACKAGE... : download Debian packages of another (or this) architecture and unpack them under DEST.
#
# It uses an apt root of its own below the cache directory. The host is never told about a foreign architecture: that
# is global, and one stale index of one architecture makes every later apt-get update on the machine fail.
# Nothing is installed and no maintainer script runs. A package name ending in '+' stands for the one concrete package
# it depends on (linux-image-cloud-amd64+ -> linux-image-6.1.0-NN-cloud-amd64: the ABI number changes with each update).
#
#   DEBS_RELEASE=1  what goes into something that is handed out: with Debian's security updates, and with firmware that is
#                   not free; tests take what is the same for a month
set -eu

arch=$1 dest=$2
shift 2
cache=${LEDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ledge}
suite=bookworm
root=$cache/apt/$suite-$arch${DEBS_RELEASE:+-release}
components=main${DEBS_RELEASE:+ non-free-firmware}

mkdir -p "$root/etc/apt/apt.conf.d" "$root/etc/apt/preferences.d" "$root/var/lib/apt/lists/partial" \
	"$root/var/cache/apt/archives/partial" "$root/var/lib/dpkg"
exec 9>"$root/lock"
flock 9

# The mirror this machine already uses, whatever the format of its source lists.
mirror=$(apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' 2>/dev/null |
	awk -v s=$suite '$1 == s { print $2; exit }')
mirror=${mirror:-http://deb.debian.org/debian}

: >>"$root/var/lib/dpkg/status"
cat >"$root/apt.conf" <<CONF
Dir "$root";
Dir::State "$root/var/lib/apt";
Dir::State::status "$root/var/lib/dpkg/status";
Dir::Cache "$root/var/cache/apt";
Dir::Etc "$root/etc/apt";
Dir::Etc::trustedparts "/etc/apt/trusted.gpg.d";
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
CONF
# Proxies and certificates of the host apply here too.
cp -f /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
signed="deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
echo "$signed $mirror $suite $components" >"$root/etc/apt/sources.list"
if [ -n "${DEBS_RELEASE:-}" ]; then
	echo "$signed ${mirror%/debian*}/debian-security $suite-security $components" >>"$root/etc/apt/sources.list"
fi

APT_CONFIG=$root/apt.conf
export APT_CONFIG
apt-get -qq update

names=
for p in "$@"; do
	case $p in
	*+) p=$(apt-cache depends "${p%+}" | sed -n 's/^ *Depends: //p' | head -n 1) ;;
	esac
	[ -n "$p" ] || { echo "debs.sh: cannot resolve a package for $arch" >&2; exit 1; }
	names="$names $p"
done
work=$(mktemp -d "$root/get.XXXXXX")
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2086 # a list of names
(cd "$work" && apt-get -qq download $names)
mkdir -p "$dest"
for f in "$work"/*.deb; do
	dpkg-deb -x "$f" "$dest"
	dpkg-deb -f "$f" Package Version | sed 's/^[A-Za-z]*: //' | paste -s -d ' ' >>"$dest/.debs"
done

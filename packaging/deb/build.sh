#!/bin/sh
# build.sh ARCH BINARY DEST: write DEST/ledge_VERSION_ARCH.deb (ARCH: Debian's name) around a built ledge, and print its path.
# The same commit gives the same bytes (SOURCE_DATE_EPOCH). No debhelper: what it would add stands here.
#   LEDGE_BIN  a ledge that this machine can run, which tells its own help (default bin/ledge)
#   VERSION    as in scripts/build.sh
#   COMPRESS   xz, or gzip for packages that only a test installs
set -eu
arch=$1 binary=$(realpath "$2") dest=$(realpath "$3")
cd "$(dirname "$0")/../.."
umask 022
here=$PWD/packaging/deb
teller=${LEDGE_BIN:-bin/ledge}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
SOURCE_DATE_EPOCH=$epoch
export SOURCE_DATE_EPOCH

# v1.2.3 is 1.2.3, v1.2.3-rc1 comes before it, 4 commits later after it. Without a tag the commit's time orders packages.
dev="-dev.$(date -u -d "@$epoch" +%Y%m%d%H%M%S).$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
version=$(scripts/version.sh | sed -E "s/^v//; s/-dev\$/$dev/; s/-dirty\$/+dirty/; s/-([0-9]+)-g([0-9a-f]+)/+\\1.g\\2/; s/-/~/g")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root doc=$work/root/usr/share/doc/ledge
mkdir -p "$root/DEBIAN" "$root/etc/ledge/config.d" "$root/usr/lib/systemd/system" "$doc" "$root/usr/share/man/man5" \
	"$root/usr/share/man/man8" "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
	"$root/usr/share/fish/vendor_completions.d" "$root/usr/share/lintian/overrides"

install -D -m 755 "$binary" "$root/usr/bin/ledge"
install -m 644 "$here/config.yaml" "$root/etc/ledge/config.yaml"
for unit in ledge.service ledge-keeper.service ledge-firstboot.service; do
	sed 's|/usr/local/bin/|/usr/bin/|; s|^Documentation=|&man:ledge(8) |' "packaging/systemd/$unit" >"$root/usr/lib/systemd/system/$unit"
done
"$teller" completion bash >"$root/usr/share/bash-completion/completions/ledge"
"$teller" completion zsh >"$root/usr/share/zsh/vendor-completions/_ledge"
"$teller" completion fish >"$root/usr/share/fish/vendor_completions.d/ledge.fish"

mkdir "$work/man"
go run ./packaging/man -binary "$teller" -config "$here/config.yaml" -to "$work/man"
for page in "$work"/man/*; do
	gzip -9nc "$page" >"$root/usr/share/man/man${page##*.}/${page##*/}.gz"
done

maintainer='ledge maintainers <maintainers@ledge.invalid>'
cp README.md docs/relink.md "$doc"
cp -r docs/manual docs/boards "$doc"
# For a Debian without systemd; where they go is said at their heads.
mkdir -p "$doc/openrc/conf.d"
for service in ledge ledge-keeper ledge-stop busybox-inittab conf.d/ledge conf.d/ledge-keeper; do
	sed 's|/usr/local/bin/|/usr/bin/|g' "packaging/openrc/$service" >"$doc/openrc/$service"
done
gzip -9nc CHANGELOG.md >"$doc/CHANGELOG.md.gz"
gzip -9nc NOTICE >"$doc/NOTICE.gz"
cat >"$doc/copyright" <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ledge

Files: *
Copyright: $(date -u -d "@$epoch" +%Y) the ledge authors
License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.
 .
 What is linked into the binary, with its licences, is in NOTICE.gz beside this file. Of that, glibc and libseccomp are under
 the LGPL (/usr/share/common-licenses/LGPL-2.1): relink.md tells where their source is and how to link with another version.
TEXT
printf 'ledge (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- %s  %s\n' "$version" "$maintainer" \
	"$(LC_ALL=C date -u -R -d "@$epoch")" | gzip -9n >"$doc/changelog.gz"
install -m 644 "$here/lintian-overrides" "$root/usr/share/lintian/overrides/ledge"

for script in postinst prerm postrm; do
	install -m 755 "$here/$script" "$root/DEBIAN/$script"
done
echo /etc/ledge/config.yaml >"$root/DEBIAN/conffiles"
size=$(find "$root" -path "$root/DEBIAN" -prune -o -type f -printf '%s\n' | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
cat >"$root/DEBIAN/control" <<TEXT
Package: ledge
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $size
Depends: init-system-helpers (>= 1.54~)
Recommends: ca-certificates
Section: admin
Priority: optional
Description: Kubernetes-shaped node with its own control plane
 ledge turns a board into a node that carries its own control plane. It is one
 static binary: it runs pods, keeps its objects in one small file that survives
 the plug being pulled, and is managed by an unmodified kubectl.
 .
 The pods go on while the package is upgraded.
TEXT
(cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
find "$root" -exec touch -h -d "@$epoch" {} +

out=$dest/ledge_${version}_$arch.deb
# One thread: with more, xz cuts the file into blocks, whose number would depend on the machine.
case ${COMPRESS:-xz} in
gzip) set -- -Zgzip -z1 ;;
*) set -- -Zxz --threads-max=1 ;;
esac
dpkg-deb --root-owner-group "$@" --build "$root" "$out" >/dev/null
echo "$out"

#!/bin/sh
# build.sh [old|1.32]: builds the real kubectl of this directory's go.mod, or that of a directory below, and prints where it is.
# The binary is kept outside the work tree and built again only when go.mod or main.go changed.
set -eu
cd "$(dirname "$0")/${1:-.}"

key=$(cat go.mod go.sum main.go | sha256sum | cut -c1-16)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/ledge/kubectl
bin=$dir/kubectl-$key

if [ ! -x "$bin" ]; then
	mkdir -p "$dir"
	version=$(sed -n 's|^[[:space:]]*k8s.io/kubectl \(v[0-9][^ ]*\).*|\1|p' go.mod)
	# kubectl calls itself after its module, with the leading 0 read as a 1, as the releases are named.
	ldflags="-s -w -X k8s.io/component-base/version.gitVersion=v1.${version#v0.}"
	tmp=$bin.$$
	trap 'rm -f "$tmp"' EXIT
	# A toolchain or build flags meant for ledge itself (cross builds, tags) must not reach this build.
	env -u GOOS -u GOARCH -u GOARM GOFLAGS= CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "$ldflags" -o "$tmp" . >&2
	mv "$tmp" "$bin"
	find "$dir" -name 'kubectl-*' -mtime +30 -delete
fi
echo "$bin"

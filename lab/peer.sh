#!/bin/sh
# peer.sh DIRECTORY: builds the program of a directory here that is a module of its own (kubeproxy, coredns) and prints where it is. It
# takes minutes, once: the binary is kept outside the work tree and built again only when the module or its main.go changed.
set -eu
cd "$(dirname "$0")/$1"

key=$(cat go.mod go.sum main.go | sha256sum | cut -c1-16)
dir=${LEDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ledge}/$1
bin=$dir/$1-$key

if [ ! -x "$bin" ]; then
	mkdir -p "$dir"
	tmp=$bin.$$
	trap 'rm -f "$tmp"' EXIT
	# A toolchain or build flags meant for ledge itself (cross builds, tags) must not reach this build.
	env -u GOOS -u GOARCH -u GOARM GOFLAGS= CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "-s -w" -o "$tmp" . >&2
	mv "$tmp" "$bin"
	find "$dir" -name "$1-*" -mtime +30 -delete
fi
echo "$bin"

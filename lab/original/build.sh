#!/bin/sh
# build.sh: builds Kubernetes' own control plane of this directory's go.mod and prints where it is. It takes minutes, once:
# the binary is kept outside the work tree and built again only when go.mod or main.go changed. With "path" it only says where it
# is, or would be.
set -eu
cd "$(dirname "$0")"

key=$(cat go.mod go.sum main.go | sha256sum | cut -c1-16)
dir=${LEDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ledge}/original
bin=$dir/original-$key

if [ "${1:-}" != path ] && [ ! -x "$bin" ]; then
	mkdir -p "$dir"
	version=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9][^ ]*\).*|\1|p' go.mod)
	tmp=$bin.$$
	trap 'rm -f "$tmp"' EXIT
	# A toolchain or build flags meant for ledge itself (cross builds, tags) must not reach this build.
	env -u GOOS -u GOARCH -u GOARM GOFLAGS= CGO_ENABLED=0 go build -buildvcs=false -trimpath \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$tmp" . >&2
	mv "$tmp" "$bin"
	find "$dir" -name 'original-*' -mtime +30 -delete # one just made may be somebody's who builds it at the same time
fi
echo "$bin"

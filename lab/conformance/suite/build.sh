#!/bin/sh
# Builds Kubernetes' end-to-end suite, its runner and its test programs from this directory's go.mod, and prints the
# directory they are in. It is outside the work tree and made again only when something here changed: minutes cold.
set -eu
cd "$(dirname "$0")"

key=$(cat go.mod go.sum build.sh | sha256sum | cut -c1-16)
cache=${LEDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ledge}/conformance
dir=$cache/suite-$key
[ ! -e "$dir/done" ] || { echo "$dir"; exit 0; }

mkdir -p "$cache"
exec 9>"$cache/lock" # two builds at once would only be slower
flock 9
[ ! -e "$dir/done" ] || { echo "$dir"; exit 0; }
mkdir -p "$dir"

# A toolchain or build flags meant for ledge itself (cross builds, tags) must not reach this build.
unset GOOS GOARCH GOARM
export GOFLAGS= CGO_ENABLED=0
# Nobody waits for these programs, but a new machine waits for their compiler: it need not make them fast. What kubectl is made of too
# stays as it is there, so that it is compiled once.
plain="-gcflags=k8s.io/kubernetes/...=-N -l"
build() { go build "$plain" -trimpath -buildvcs=false -ldflags "-s -w" -o "$dir/$1" "$2" >&2; }

version=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9][^ ]*\).*|\1|p' go.mod)
build ginkgo github.com/onsi/ginkgo/v2/ginkgo
build agnhost k8s.io/kubernetes/test/images/agnhost
build nnp k8s.io/kubernetes/test/images/nonewprivs
source=$(go list -m -f '{{.Dir}}' k8s.io/kubernetes) # has no directory before something of it was built
gcc -Os -static -s -o "$dir/pause" "$source/build/pause/linux/pause.c" >&2
rm -rf "$dir/source"
mkdir "$dir/source"
cp -r "$source/test/images/agnhost/porter" "$source/test/images/kitten" "$source/test/images/nautilus" "$dir/source/"
chmod -R u+w "$dir/source"
# Clients complain of a version that is not the server's, hence the stamp.
go test -c "$plain" -vet=off -trimpath -buildvcs=false \
	-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$dir/e2e.test" k8s.io/kubernetes/test/e2e >&2
echo "$version" >"$dir/version"
touch "$dir/done"
find "$cache" -maxdepth 1 -name 'suite-*' ! -path "$dir" -mtime +30 -exec rm -rf {} +
echo "$dir"

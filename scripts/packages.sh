#!/bin/sh
# packages.sh quick|root|guest|foreign32|foreign64|race|norace : print which packages a kind of test run takes, one a line.
# The lists stand here only; test.sh, the Makefile and the guest read them.
set -eu
cd "$(dirname "$0")/.."

tags="netgo osusergo seccomp runc_nocriu"
# With tests that need root, a kernel feature, or systemd: they run on the host and once more in the guest.
root="./runtime/... ./network/... ./images/... ./storage/... ./host/... ./node/... ./boot/... ./brain/... ./cli ./e2e ./packaging/systemd/..."
# What another kernel with cgroup v2 may do differently; the rest of root says the same there, six times slower.
# Two run at a time: the longest come first.
guest="./runtime/runtimetest ./e2e ./boot/... ./brain/... ./cli ./network/bridge/... ./images/layers/... ./node/volume ./node/stats ./host ./host/quota ./runtime/... ./packaging/systemd/..."
# Pure code and the store: they run as arm64 and armv7 under qemu-user, without cgo. Nothing that makes namespaces or
# speaks netlink: qemu-user does not carry that.
foreign32="./api ./api/local/... ./storage/... ./scheduler/... ./lease/... ./controller/... ./node/podspec ./node/podstate/... \
	./node/pressure/... ./shutdown/... ./images ./pki/... ./upgrade/..."
# Of those the ones for which arm64 is another machine than amd64: what lies on the disk, and what divides (a product and a sum are
# rounded once there). The rest says the same, ten times slower.
foreign64="./storage/... ./scheduler/... ./controller/autoscale ./node/pressure/... ./images ./upgrade/..."
# What runs without root and without a network, in a few seconds each (make quick).
quick="./api/... ./boot/... ./brain/... ./cli/... ./config/... ./controller/... ./firstboot/... ./host/disk ./host/ntp \
	./images/applet ./images/fake \
	./internal/deps ./internal/testrun ./lease/... ./network/fake ./network/hostnet ./network/plan ./node ./node/downward ./node/evict \
	./node/machine ./node/podlog ./node/podspec ./node/podstate ./node/poster ./node/pressure ./node/probe ./node/static ./pki ./runtime ./runtime/fake ./scheduler/... ./scripts/again ./packaging/image \
	./scripts/lint ./packaging/man ./lab/vm ./shutdown ./storage ./upgrade/..."
# Not under the race detector: they start containers or whole processes, where it costs most and sees least, or they
# look at sources only; and all packages that are sequential.
norace="./runtime/libct/... ./network/bridge/... ./boot/... ./cli ./e2e ./internal/deps/... ./lab/... ./packaging/... ./scripts/..."

# list PATTERNS: those that exist and have tests (go list warns about patterns that match nothing).
list() {
	# shellcheck disable=SC2086 # patterns
	go list -e -tags "$tags" -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $1 2>/dev/null
}

# sequential: those of which neither the code nor a test has a second goroutine. The race detector has nothing to see there, and takes
# eight times as long: they decide, and their tests do it ten thousand times.
sequential() {
	list ./... | while read -r p; do
		grep -qE '^\s+go [a-zA-Z(]|"sync"|"sync/atomic"|"testing/synctest"|"net/http|AfterFunc|\.(Parallel|RunParallel)\(' "${p#ledge/}"/*.go || echo "$p"
	done
}

case ${1:-} in
quick) list "$quick" ;;
root) list "$root" ;;
guest) list "$guest" ;;
foreign32) list "$foreign32" ;;
foreign64) list "$foreign64" ;;
norace) { list "$norace"; sequential; } | sort -u ;;
race)
	skip=$(list "$norace"; sequential)
	list ./... | while read -r p; do
		case "
$skip
" in *"
$p
"*) ;; *) echo "$p" ;; esac
	done
	;;
*) echo "usage: packages.sh quick|root|guest|foreign32|foreign64|race|norace" >&2; exit 2 ;;
esac

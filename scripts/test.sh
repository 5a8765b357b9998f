#!/bin/sh
# test.sh [all]: set up, build for every board, and run every test; go on after a failure, fail at the end. scripts/steps lists the
# steps; this file says how they run.
# "all" adds the long runs and writes docs/measured/test-all.txt, where each step keeps when, at which commit and with which seed
# it ran last.
#
#   ONLY=regexp  only the steps whose names match, and what they need: a long run need not be one sitting
#   SEED=n       seed of the simulations and fault scripts (tests read LEDGE_SEED); printed, so that a run can be repeated
#   LEDGE_HOURS=n  how long the simulated fleets live (a day; all: also a week)
#   FUZZTIME=3s  time for each fuzz target (all: 1m)
set -u
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/go/bin
export PATH

mode=${1:-short}
tags="netgo osusergo seccomp runc_nocriu"
started=$(date +%s)
LEDGE_SEED=${SEED:-$started}
LEDGE_LONG=
fuzztime=${FUZZTIME:-3s}
guestlimit=60m # twice what it takes beside everything else
whole= # the guest leaves out what the host has seen
racelimit=15m # of a package
if [ "$mode" = all ]; then
	LEDGE_LONG=1
	racelimit=3h
	guestlimit=4h
	whole=-whole
	fuzztime=${FUZZTIME:-1m}
fi
# What tells this run's leftovers from other runs' (scripts/leaks.sh). Short and in small letters: interfaces and nodes
# are named so.
LEDGE_RUN=lt$(tr -dc a-z0-9 </dev/urandom | head -c 4)
work=/tmp/$LEDGE_RUN
mkdir "$work" || exit 1
mkdir "$work/bin" "$work/t"
LEDGE_BIN=$work/bin/ledge
TMPDIR=$work/t
# What failed once and passed alone: a busy machine, or a test that is not worth its name. The report quotes it.
LEDGE_AGAIN=$work/again
GOTEST=$work/bin/again
# Tests are compiled as the binary is: on a fresh machine each other way costs two minutes of a processor. Lint vets them.
GOFLAGS="-trimpath -vet=off$(scripts/lean.sh)"
export GOFLAGS GOTEST LEDGE_SEED LEDGE_BIN LEDGE_LONG LEDGE_RUN LEDGE_AGAIN TMPDIR
aside_pid=
trap '[ -z "$aside_pid" ] || { kill "$aside_pid"; wait "$aside_pid"; }; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
: >"$work/summary"
: >"$work/names"
: >"$work/ran"
stamp="$(date -u +%Y-%m-%d)  $(git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)  seed $LEDGE_SEED"
: >"$LEDGE_AGAIN"
failed=0

# wanted: whether ONLY lets the step NAME run.
wanted() {
	printf '%s\n' "$name" >>"$work/names"
	printf '%s\n' "$name" | grep -Eq -e "${ONLY:-}"
}

# run: do COMMAND as the step NAME, say how long it took, remember whether it failed.
run() {
	echo "==> $name"
	begin=$(date +%s)
	notes=$(wc -l <"$LEDGE_AGAIN")
	if eval "$command" </dev/null 3<&-; then result=ok; else result=FAIL; fi
	ended
}

# ended: note the result of the step NAME, which began at BEGIN, when there were NOTES lines about second tries.
ended() {
	[ "$result" = ok ] || failed=1
	printf '%-5s %4d s  %s\n' "$result" $(($(date +%s) - begin)) "$name" | tee -a "$work/summary"
	{
		printf '%s\t%-5s %5d s  %s  %s\n' "$name" "$result" $(($(date +%s) - begin)) "$stamp" "$name"
		tail -n "+$((notes + 1))" "$LEDGE_AGAIN" | awk -v name="$name" '{ print name "\t        " $0 }'
	} >>"$work/ran"
	[ "$result" = ok ]
}

# beside: a step that leaves a core free; others run meanwhile, until `together` waits for it.
beside() {
	aside=$name
	echo "==> $aside (others go on)"
	aside_began=$(date +%s)
	(LEDGE_AGAIN=$work/again.aside && eval "exec $command") >"$work/aside.log" 2>&1 </dev/null 3<&- &
	aside_pid=$!
}

together() {
	[ -n "$aside_pid" ] || return 0
	if wait "$aside_pid"; then result=ok; else result=FAIL; fi
	aside_pid=
	echo "==> $aside"
	cat "$work/aside.log"
	notes=$(wc -l <"$LEDGE_AGAIN")
	[ ! -e "$work/again.aside" ] || cat "$work/again.aside" >>"$LEDGE_AGAIN"
	rm -f "$work/again.aside"
	name=$aside begin=$aside_began
	ended
}

# steps: those of this mode, in order, as RUN|HOW|NAME|COMMAND without the spaces around the bars.
steps() {
	sed -E -e '/^(#|$)/d' -e 's/ *\| */|/; s/ *\| */|/2; s/ *\| */|/3' scripts/steps | grep -E "^(both|$mode)\|"
}

# page FILE: docs/measured/test-all.txt as it is to be: the steps in their order, each as it ran now or, if ONLY left it out, as FILE
# has it. A step's notes stand below it.
page() {
	echo "make test-all, step by step: result, duration, day, commit, seed; $(nproc) cores."
	echo
	awk -F '\t' -v page="$1" '
		FILENAME == ARGV[1] { now[$1] = now[$1] $2 "\n"; next }
		FILENAME == page {
			if (match($0, /^(ok|FAIL) .*  seed [0-9]+  /)) { name = substr($0, RLENGTH + 1); old[name] = $0 "\n" }
			else if (/^        / && name != "") old[name] = old[name] $0 "\n"
			next
		}
		{ printf "%s", $0 in now ? now[$0] : $0 in old ? old[$0] : "not run yet: " $0 "\n" }
	' "$work/ran" "$1" "$work/names"
}

# slow SECONDS SUMMARY: a run that took longer than it may on two cores says so, and what took most of it. It is no failure: what else
# the machine does is not known.
slow() {
	[ "$1" -gt 2400 ] || return 0
	echo "slow: $(($1 / 60)) minutes, 40 are meant to do; the longest: $(sort -k 2,2nr "$2" | head -n 3 | awk '{ s = $2; sub(/^[^ ]+ +[0-9]+ s +/, ""); printf "%s%s (%d s)", sep, $0, s; sep = ", " }')"
}

# tests FLAG... PACKAGE...: go test, what fails once more.
tests() { "$GOTEST" -tags "$tags" "$@"; }

original() { LEDGE_ORIGINAL=1 tests -count=1 -timeout 60m -run 'OfTheOriginal$' ledge/api/rest ledge/e2e; }

# The suite does not clear up all that it makes in TMPDIR.
conformance() { mkdir "$work/conformance" && TMPDIR="$work/conformance" go run ./lab/conformance "$@" -logs "$work/conformance"; }

# power FLAG...
power() { go run ./lab/vm power -seed "$LEDGE_SEED" -binary "$LEDGE_BIN" "$@"; }

# firstboot FLAG...
firstboot() { emulated "first boot" firstboot "$@" -memory 320 -timeout 5m -seed "$LEDGE_SEED" -binary "$LEDGE_BIN"; }

# A package of each architecture holds the binary of that one.
debs() {
	for pair in amd64:amd64 arm64:arm64 armhf:armv7; do
		deb=$(COMPRESS=gzip packaging/deb/build.sh "${pair%:*}" "bin/ledge-linux-${pair#*:}" "$work") || return 1
		[ "$(dpkg-deb -f "$deb" Architecture)" = "${pair%:*}" ] || return 1
		dpkg-deb --fsys-tarfile "$deb" | tar -xO ./usr/bin/ledge | cmp - "bin/ledge-linux-${pair#*:}" || return 1
	done
}

# emulated NAME ARGUMENT...: an emulated boot gets a second try too, and is named for it.
emulated() {
	what=$1
	shift
	for try in 1 2; do
		if go run ./lab/vm "$@"; then
			[ $try = 1 ] || echo "failed once, passed again: $what" | tee -a "$LEDGE_AGAIN"
			return 0
		fi
	done
	return 1
}

# appliance ARCHITECTURE BINARY
appliance() { emulated "appliance $1" appliance -arch "$1" -memory 256 -timeout 3m -binary "bin/ledge-linux-$2" -- doctor; }

# board ARCHITECTURE [FLAG]
board() { emulated "board $*" board -arch "$1" ${2:-} -memory 320 -timeout 5m -binary "bin/ledge-linux-$1"; }

# An image as it is made, booted by its own boot loader, and left alone for ten minutes. Emulated, a minute of a core for each boot and
# for the image. The same commit gives the same bytes, wherever and as whomever somebody makes it. On the machine that boots
# fastest, with a BIOS, the plug is pulled while cards boot for the first time.
# flashed BOARD FIRMWARES MEMORY [FLAVOUR]
flashed() {
	flavour=${4:-appliance} image=ledge-$1-${4:-appliance}
	go run ./packaging/image -board "$1" -flavour "$flavour" -o "$work" || return 1
	mkdir -p "$work/twice/tmp" || return 1
	(umask 077 && TZ=Asia/Tokyo TMPDIR=$work/twice/tmp go run ./packaging/image -board "$1" -flavour "$flavour" -o "$work/twice") || return 1
	for made in .img.xz .bmap .spdx.json; do
		cmp "$work/$image"-*"$made" "$work/twice/$image"-*"$made" || return 1
	done
	rm -rf "$work/twice"
	idle=10m # of the first
	for firmware in $2; do
		case "$firmware $flavour" in
		"bios appliance") cuts=100 ;;
		"bios debian") cuts=10 ;; # with the boots after them two minutes each
		*) cuts=0 ;;
		esac
		emulated "image $1 $flavour by $firmware" flashed -board "$1" -firmware "$firmware" -memory "$3" -timeout 10m -idle $idle -first-cuts $cuts \
			-seed "$LEDGE_SEED" -o docs/measured/images.json "$work/$image"-*.img.xz || return 1
		idle=0
	done
	rm -f "$work/$image"-*
}

# card: an image boots, once. The long runs do much more with each (flashed).
card() {
	go run ./packaging/image -board generic-amd64 -flavour appliance -fast -o "$work" || return 1
	emulated "a card with generic-amd64" flashed -board generic-amd64 -firmware bios -memory 512 -timeout 5m -boots 1 \
		"$work"/ledge-generic-amd64-appliance-*.img.xz || return 1
	rm -f "$work"/ledge-generic-amd64-appliance-*
}

# squeezed: one pod after the other that takes all there is of something, on boards with little memory; a quarter of an hour each.
squeezed() {
	for memory in 256 512; do
		go run ./lab/vm pressure -memory $memory -timeout 45m -binary "$LEDGE_BIN" -o docs/measured/pressure.json || return 1
	done
}

steps >"$work/steps"
while IFS='|' read -r _ how name command <&3; do
	case $how in
	need) run || exit 1 ;;
	step) wanted && run ;;
	beside) wanted && beside ;;
	together) together ;;
	*)
		echo "scripts/steps: $name: what is $how?"
		exit 1
		;;
	esac
done 3<"$work/steps"

{
	echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
		"seed $LEDGE_SEED, $(nproc) cores, $(($(date +%s) - started)) s"
	cat "$work/summary" "$LEDGE_AGAIN"
	[ "$mode" = all ] || slow $(($(date +%s) - started)) "$work/summary"
} >"$work/report"
echo
cat "$work/report"
if [ "$mode" = all ]; then
	touch docs/measured/test-all.txt
	page docs/measured/test-all.txt >"$work/page" && cp "$work/page" docs/measured/test-all.txt
fi
[ $failed = 0 ] || { echo FAIL; exit 1; }
echo PASS

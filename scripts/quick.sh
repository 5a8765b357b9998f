#!/bin/sh
# quick.sh: format, house rules, vet of what changed, and the tests that need neither root nor network, without the long ones. It is for
# the minute between two edits; make test is what counts.
set -u
cd "$(dirname "$0")/.."
tags="netgo osusergo seccomp runc_nocriu"
# Tests of a second and more that an edit seldom breaks alone: the same suite over another connection, all identities before all requests,
# random lives, cuts of the power, crowds of callers and floods. internal/deps looks whether they are there.
skip="TestConformanceInBubble|TestConformanceOverPipe|TestConformanceOverTLS|TestConformanceOverServers|TestConformanceOverSocket|TestNamespaceOfHeavyPods"
skip="$skip|TestCollectAnything|TestPools|TestForwardByChannels|TestPeersOfABoard|TestRoomForAThousandBoards"
skip="$skip|TestBadBoards|TestBadBoardsWriteWidely|TestBadBoardsCostLittleMemory|TestCrowdOfLargeAnswers"
skip="$skip|TestCronJobsAtRandom|TestReplicasAtRandom|TestJobsAtRandom|TestEndpointsAtRandom|TestPlacedAtRandom|TestKilledBetweenWrites"
skip="$skip|TestNodeCIDRProperties|TestAggregatedFindsNoRoom|TestIdle"
skip="$skip|TestRandomLivesOfEverything|TestPullOfflineLoop|TestServersInTurn"
skip="$skip|TestOddInodes|TestEmptiesWhenFull|TestPowerCut|TestPowerCutWhileCreating|TestLostAndForgottenWrites|TestLogIsDamagedToo"
skip="$skip|TestConformanceOfTheMirror|TestStrategicLikeUpstream|TestEvictedWhateverItDiesOf|TestNamespaceOfMany|TestHundredDeploymentsAtRest"
skip="$skip|TestNoneTwice|TestPagesProperty|TestWatchProperty|TestUnpackZone|TestCoverAtRandom|TestOrderAtRandom|TestAtRandom"
skip="$skip|TestBallast|TestNothingIsLost|TestJoinsPieces|TestKillWhileWriting"
skip="$skip|TestBadBoardsInTheTunnelCostLittleMemory|TestMatrix|TestFollowFlood|TestRandomLives|TestRollAtRandom|TestDeploymentsAtRandom"
skip="$skip|TestReplicasThatFail|TestCronJobAgain|TestCutsOfRestore|TestMendJournal|TestRandom|TestMonitorProperties"
# Most of what these tests take is memory that lives for a moment. Collected a quarter as often it costs a tenth less time.
export GOGC="${GOGC:-400}"
began=$(date +%s)
bad=0
took() { # LAST STEP
	echo "  $(($(date +%s) - $1)) s  $2"
}
unformatted=$(find . -name '*.go' -not -path './.*' -exec gofmt -l {} +)
if [ -n "$unformatted" ]; then
	echo "gofmt: $unformatted"
	bad=1
fi
go run ./scripts/lint || bad=1
took "$began" "format, house rules"
step=$(date +%s)
# make lint vets everything; here only the packages that differ from the branch that was cloned, or else from the last commit.
base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || echo HEAD)
changed=$({ git diff --name-only --diff-filter=d "$base" -- '*.go'; git ls-files --others --exclude-standard -- '*.go'; } |
	sed 's|^|./|; s|/[^/]*$||' | grep -v '/testdata' | sort -u)
if [ -n "$changed" ]; then
	# shellcheck disable=SC2086 # packages
	go vet -tags "$tags" $changed || bad=1
fi
took "$step" "vet of $(echo "$changed" | grep -c .) changed packages"
step=$(date +%s)
# Some 70 programs are linked, 2 GB that nobody needs a minute later: in memory, where there is plenty of it.
if [ -z "${GOTMPDIR:-}" ] && [ "$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 8 ] &&
	[ "$(df -Pk /dev/shm | awk 'END { print int($4 / 1048576) }')" -ge 4 ] && ! grep -q '^[^ ]* /dev/shm [^ ]* [^ ]*noexec' /proc/mounts; then
	export GOTMPDIR=/dev/shm
fi
# Twice as many packages at a time as there are cores: some only wait.
# shellcheck disable=SC2046 # packages
go test -p $((2 * $(nproc))) -short -vet=off -tags "$tags" -skip "^($skip)\$" $(scripts/packages.sh quick) || bad=1
took "$step" "tests"
echo "make quick: $(($(date +%s) - began)) s"
exit $bad

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/upgrade"
	"ledge/upgrade/upgradetest"
)

// onCard gives a board a card of its own, small enough to be filled at once. It is let go with the board.
func (b *testBoard) onCard(size int64) (card string) {
	b.t.Helper()
	img, card := filepath.Join(b.t.TempDir(), "img"), b.t.TempDir()
	must(b.t, os.WriteFile(img, nil, 0o600))
	must(b.t, os.Truncate(img, size))
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-m", "0", "-N", "2000", img}, {"mount", "-o", "loop", img, card}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			b.t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	b.data = filepath.Join(card, "data")
	b.t.Cleanup(func() {
		b.finish()
		b.over = true
		if err := unix.Unmount(card, 0); err != nil {
			b.t.Errorf("unmount: %v", err)
		}
	})
	return card
}

// fillUp takes every byte, or every inode, that is left where a directory is.
func fillUp(t *testing.T, dir, what string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	size := int64(64 << 20)
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
		for err == nil && what == "bytes" && size > 0 {
			if err = unix.Fallocate(int(f.Fd()), 0, 0, size); errors.Is(err, unix.ENOSPC) {
				size, err = size/2, nil
				continue
			}
			break
		}
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		if errors.Is(err, unix.ENOSPC) || size == 0 {
			return
		}
		must(t, err)
	}
}

// noEviction leaves it to the test to make room.
const noEviction = "--eviction-hard=nodefs.available<0%,nodefs.inodesFree<0%,imagefs.available<0%,imagefs.inodesFree<0%"

// TestFullCardAtStart: a board comes up on a card without a byte or an inode, after whatever end, and whether or not somebody has
// taken what the store had kept for this. What runs goes on, objects can be deleted, and with room there is all is as it was. A version
// that is on trial when the card is full waits for room, for its starts cannot be counted, and the one before it runs meanwhile.
func TestFullCardAtStart(t *testing.T) { // N-6.26
	t.Parallel()
	testrun.OnHost(t)
	b := newBoard(t)
	card := b.onCard(224 << 20)
	b.serve(noEviction)
	b.importRough()
	signer := upgradetest.NewSigner(t)
	own := ownVersion(t)
	program, next := another(t, signer, "9")
	b.apply(strings.Replace(roughPod("innocent", `"eat", "1"`, ""), "Never", "Always", 1))
	b.running("innocent")
	filler, ballast, taken := filepath.Join(card, "filler"), filepath.Join(b.data, "store/ballast"), filepath.Join(card, "taken")
	for _, end := range []string{"kill", "upgrade", "power cut"} {
		for _, what := range []string{"bytes", "inodes"} {
			for _, reserve := range []string{"kept", "taken"} {
				try := end + ", 0 " + what + ", reserve " + reserve
				b.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rubbish}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\n")
				b.endBy(end)
				if end == "upgrade" && !b.onTrial(next) {
					if out, err := b.upgrade(signer, program); err != nil || !strings.Contains(out, "its next start is of ") {
						t.Fatalf("%s: %v %s", try, err, out)
					}
				}
				if reserve == "taken" {
					must(t, os.Rename(ballast, taken))
				}
				fillUp(t, filler, what)
				began := time.Now()
				b.start(noEviction)
				b.eventually(try+": the node is Ready", b.readyOrEnded)
				ready := time.Since(began).Round(10 * time.Millisecond)
				if out := b.must("version"); !strings.Contains(out, own) || (end == "upgrade") != b.onTrial(next) && end != "power cut" {
					t.Errorf("%s: it runs as %s", try, out)
				}
				if out, err := b.try("delete", "configmap", "rubbish"); err != nil {
					t.Errorf("%s: nothing can be deleted: %v %s", try, err, out)
				}
				b.must("get", "configmap", "kept")
				if end != "power cut" {
					b.unhurt("innocent")
				}
				if reserve == "taken" {
					must(t, errors.Join(os.RemoveAll(ballast), os.Rename(taken, ballast)))
				}
				pieces, err := os.ReadDir(ballast)
				must(t, err)
				must(t, os.RemoveAll(filler))
				b.eventually(try+": its pod runs", func() error {
					if len(b.processes("/kubepods/")) == 0 {
						return errors.New("no process")
					}
					return contains(b.ledge("get", "pod", "innocent"), " Running ")
				})
				b.must("delete", "configmap", "kept")
				t.Logf("%-36s Ready after %4d ms, %d of 16 pieces of the reserve left", try, ready.Milliseconds(), len(pieces))
			}
		}
	}
	b.endBy("stop")
	b.start(noEviction)
	b.eventually("with room there is, the version on trial is well and stays", func() error {
		return contains(b.ledge("get", "events"), "is well and stays")
	})
	b.endBy("kill")
	must(t, os.RemoveAll(ballast))
	fillUp(t, filler, "bytes")
	b.start(noEviction)
	b.nodeVersion(next)
}

// onTrial says whether a version is.
func (b *testBoard) onTrial(version string) bool {
	s, err := upgrade.Open(b.data).Load()
	must(b.t, err)
	return s.Pending != nil && strings.Contains(s.Pending.Name, version)
}

// TestFullCardRecovers: a board that begins on a full card, with nothing kept, evicts the pod that has filled it and is well again.
func TestFullCardRecovers(t *testing.T) { // N-6.26
	t.Parallel()
	testrun.OnHost(t)
	b := newBoard(t)
	b.onCard(160 << 20)
	b.serve(noEviction)
	b.importRough()
	b.apply(roughPod("innocent", `"eat", "1"`, ""))
	b.apply(roughPod("eater", `"eat", "1"`, "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {}}]\n"))
	b.running("innocent")
	b.running("eater")
	volume := filepath.Join(b.data, "volumes", string(b.pod("eater").UID), "v")
	b.endBy("kill")
	must(t, os.RemoveAll(filepath.Join(b.data, "store/ballast")))
	fillUp(t, filepath.Join(volume, "all"), "bytes")
	began := time.Now()
	b.start("--eviction-hard", "nodefs.available<10%")
	b.eventually("the pod that filled the card is evicted", func() error {
		if err := b.readyOrEnded(); err != nil {
			return err
		}
		return contains(b.ledge("get", "pod", "eater", "-o", "yaml"), "reason: Evicted")
	})
	b.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: after}\n")
	b.unhurt("innocent")
	t.Logf("0 bytes, reserve taken by a pod: evicted, and writes taken, %d ms after the start", time.Since(began).Milliseconds())
}

// readyOrEnded wants a node that is Ready, and fails at once where the brain has ended.
func (b *testBoard) readyOrEnded() error {
	select {
	case err := <-b.done:
		data, _ := os.ReadFile(b.log.Name())
		b.cmd = nil
		b.t.Fatalf("it does not start: %v\n%s", err, tail(string(data), 1500))
	default:
	}
	return contains(b.ledge("get", "nodes"), " Ready ")
}

// endBy ends the brain: with a signal, or with all that runs and the run directory, as the power does. Before another version starts,
// or the same one again, it is told to stop; that is no shutdown of the board.
func (b *testBoard) endBy(how string) {
	b.t.Helper()
	if how == "stop" || how == "upgrade" {
		must(b.t, b.signal(syscall.SIGTERM))
		return
	}
	if err := b.signal(syscall.SIGKILL); err == nil {
		b.t.Fatal("it was not killed")
	}
	if how == "power cut" {
		b.must("reset")
	}
}

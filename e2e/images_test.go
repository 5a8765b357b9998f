package e2e

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"

	"ledge/images/imagestest"
	"ledge/internal/testrun"
)

// roughProgram is a static program that does what no one should do on a host (runtime/runtimetest/rough): built
// here, or brought along where there is no Go, in the guest.
func roughProgram(t *testing.T) []byte {
	t.Helper()
	bin := os.Getenv("LEDGE_TESTPROG")
	if bin == "" {
		bin = filepath.Join(t.TempDir(), "rough")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "../runtime/runtimetest/testprog")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	data, err := os.ReadFile(bin)
	must(t, err)
	return data
}

const roughImage = "registry.example/rough:1"

// importRough gives the board an image of the rough program.
func (b *testBoard) importRough() {
	b.t.Helper()
	prog := imagestest.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "testprog", Mode: 0o755}, Body: string(roughProgram(b.t))}
	archive := imagestest.OCI(imagestest.Image{Names: []string{roughImage},
		Config: v1.ImageConfig{Entrypoint: []string{"/testprog"}, Env: []string{"FROM=image"}},
		Layers: [][]byte{imagestest.Layer(imagestest.Dir("tmp"), prog)}, Compress: imagestest.Gzip})
	file := filepath.Join(b.t.TempDir(), "rough.tar")
	must(b.t, os.WriteFile(file, archive, 0o600))
	if out := b.must("images", "import", file); !strings.Contains(out, roughImage) {
		b.t.Fatalf("import says %q", out)
	}
}

// An unclean end has every image read again, whoever needs it: what is damaged is mended before anybody asks for it.
func TestImagesAfterUncleanEnd(t *testing.T) {
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	b.serve()
	b.importRough()
	files, err := filepath.Glob(filepath.Join(b.data, "images/layers/*/fs/testprog"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	whole, err := os.ReadFile(files[0])
	must(t, err)
	_ = b.signal(syscall.SIGKILL) // its verdict is the kill
	f, err := os.OpenFile(files[0], os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{^whole[1000]}, 1000) // size and times say nothing of it
	must(t, errors.Join(err, f.Close()))
	b.serve()
	b.eventually("the image is mended", func() error {
		if now, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(now, whole) {
			return fmt.Errorf("it is still damaged: %v", err)
		}
		return nil
	})
}

func (b *testBoard) pod(name string) *corev1.Pod {
	b.t.Helper()
	var p corev1.Pod
	must(b.t, json.Unmarshal([]byte(b.must("get", "pod", name, "-o", "json")), &p))
	return &p
}

func roughPod(name, args, extra string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: %s
    args: [%s]
%s`, name, roughImage, args, extra)
}

// What a container may do to itself, and how it is told afterwards.
func TestRoughContainers(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.serve()
	b.apply(roughPod("early", `"exit", "0"`, ""))
	b.eventually("a pod without its image waits", func() error { return contains(b.ledge("get", "pod", "early"), "ImagePullBackOff") })
	b.importRough() // and this wakes it
	b.apply(strings.Join([]string{
		roughPod("fails", `"exit", "7"`, ""),
		roughPod("eats", `"eat", "200"`, "    resources: {limits: {memory: 32Mi}}\n"),
		roughPod("speaks", `"lines", "5000"`, ""),
		roughPod("tells", `"write", "/told/why"`, "    terminationMessagePath: /told/why\n"),
		roughPod("env", `"env"`, "    env: [{name: A, value: x}, {name: B, value: $(A)y}, {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]\n"),
	}, "\n---\n"))
	for name, want := range map[string]struct {
		code   int32
		reason string
		phase  corev1.PodPhase
	}{
		"early":  {0, "Completed", corev1.PodSucceeded},
		"fails":  {7, "Error", corev1.PodFailed},
		"eats":   {137, "OOMKilled", corev1.PodFailed},
		"speaks": {0, "Completed", corev1.PodSucceeded},
		"tells":  {0, "Completed", corev1.PodSucceeded},
		"env":    {0, "Completed", corev1.PodSucceeded},
	} {
		b.eventually(name+" has ended", func() error {
			p := b.pod(name)
			if p.Status.Phase != want.phase {
				return fmt.Errorf("phase %s", p.Status.Phase)
			}
			end := p.Status.ContainerStatuses[0].State.Terminated
			if end == nil || end.ExitCode != want.code || end.Reason != want.reason {
				return fmt.Errorf("%+v", end)
			}
			return nil
		})
	}
	if m := b.pod("tells").Status.ContainerStatuses[0].State.Terminated.Message; m != "x" {
		t.Errorf("termination message %q", m)
	}
	if n := strings.Count(b.must("logs", "speaks"), "\n"); n != 5000 {
		t.Errorf("%d lines of 5000", n)
	}
	if got := strings.Count(b.must("logs", "speaks", "--tail", "10"), "\n"); got != 10 {
		t.Errorf("tail of 10 gave %d lines", got)
	}
	env := b.must("logs", "env")
	for _, want := range []string{"FROM=image", "A=x", "B=xy", "NAME=env"} {
		if err := contains(env, want); err != nil {
			t.Error(err)
		}
	}
	if out, err := b.try("images", "rm", "ledge.local/self"); err == nil {
		t.Errorf("the built-in image was removed: %s", out)
	}
}

// A container that does not listen gets its grace and no more.
func TestDeafContainer(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	b.serve()
	b.importRough()
	b.apply(roughPod("deaf", `"ignore"`, ""))
	b.running("deaf")
	if out, err := b.try("images", "rm", roughImage); err == nil || !strings.Contains(out, "in use") {
		t.Errorf("an image in use was removed: %v %s", err, out)
	}
	began := time.Now()
	b.must("delete", "pod", "deaf")
	if took := time.Since(began); took < 2*time.Second || took > 20*time.Second {
		t.Errorf("deleted after %v, its grace is 2 s", took)
	}
	if p := b.processes("/kubepods/"); len(p) > 0 {
		t.Errorf("processes %v", p)
	}
	b.must("images", "rm", roughImage)
}

// A log that is being written while both processes are killed goes on where it was.
func TestLogsThroughKills(t *testing.T) {
	testrun.OnHost(t)
	b := newBoard(t)
	b.serve()
	b.importRough()
	b.apply(roughPod("ticks", `"lines", "100000", "20ms"`, ""))
	b.running("ticks")
	lines := func() int { return strings.Count(b.ledge("logs", "ticks"), "\n") }
	more := func(what string) {
		t.Helper()
		was := lines()
		b.eventually("the log goes on after "+what, func() error {
			if now := lines(); now < was+10 {
				return fmt.Errorf("%d lines, were %d", now, was)
			}
			return nil
		})
	}
	more("the start")
	b.killKeeper()
	more("a kill of the keeper")
	b.killKeeper()
	_ = b.signal(9)
	b.serve()
	more("a kill of both")
	log := strings.Split(strings.TrimSpace(b.must("logs", "ticks")), "\n")
	for i := 1; i < len(log); i++ {
		if log[i] == log[i-1] {
			t.Fatalf("line %d is there twice: %s", i, log[i])
		}
	}
}

// A full disk: writes are refused with a reason, the API answers, and the node recovers by itself.
func TestFullDisk(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	dir := t.TempDir()
	img := filepath.Join(t.TempDir(), "img")
	must(t, errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, 128<<20)))
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-m", "0", img}, {"mount", "-o", "loop", img, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		b.finish()
		b.over = true
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	b.data = filepath.Join(dir, "data")
	// the pod is not to go for it
	b.serve("--eviction-hard", "nodefs.available<0%,nodefs.inodesFree<0%,imagefs.available<0%,imagefs.inodesFree<0%")
	b.apply(webPod)
	pid := b.running("web")
	filler, err := os.Create(filepath.Join(dir, "filler"))
	must(t, err)
	for err == nil {
		_, err = filler.Write(make([]byte, 64<<10))
	}
	for err = nil; err == nil; {
		_, err = filler.Write(make([]byte, 512))
	}
	filler.Sync()
	big := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: big%d}\ndata: {a: " + strings.Repeat("x", 200<<10) + "}\n"
	refused := ""
	for i := 0; i < 100 && refused == ""; i++ {
		file := filepath.Join(t.TempDir(), "cm.yaml")
		must(t, os.WriteFile(file, fmt.Appendf(nil, big, i), 0o600))
		if out, err := b.try("apply", "-f", file); err != nil {
			refused = out
		}
	}
	if !strings.Contains(refused, "full") {
		t.Errorf("refused with %q", refused)
	}
	if err := errors.Join(contains(b.ledge("get", "nodes"), b.name), contains(b.ledge("get", "pod", "web"), "Running")); err != nil {
		t.Errorf("the API does not answer: %v", err)
	}
	if got := b.processes("/kubepods/"); len(got) != 1 || got[0] != pid {
		t.Errorf("processes %v, was %d", got, pid)
	}
	must(t, errors.Join(filler.Close(), os.Remove(filler.Name())))
	b.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: after}\n")
}

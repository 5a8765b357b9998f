package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// curl asks the control plane from a board's network; how says who it is.
func (s *shed) curl(from *testBoard, how, path string) *exec.Cmd {
	return exec.CommandContext(s.t.Context(), "sh", "-c",
		fmt.Sprintf("exec nsenter --net=/run/netns/%s curl -sSkN -w '%%{http_code}' %s 'https://%s:%d%s'",
			from.netns, how, s.plane.address(1), shedPort, path))
}

// watching is a watch that has told something already; ended gives what it ends with.
func (s *shed) watching(from *testBoard, how, path string) (ended chan error) {
	s.t.Helper()
	said, err := os.Create(filepath.Join(s.t.TempDir(), "said"))
	must(s.t, err)
	s.t.Cleanup(func() { said.Close() })
	cmd := s.curl(from, how, path)
	cmd.Stdout, cmd.Stderr = said, said
	must(s.t, cmd.Start())
	ended = make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.plane.eventually(path+" is watched", func() error {
		text, err := os.ReadFile(said.Name())
		if err != nil {
			return err
		}
		return contains(string(text), `"ADDED"`)
	})
	return ended
}

// following is who reads a log and has got words of it; ended gives what that ends with.
func (s *shed) following(k *client, pod, words string) (ended chan error) {
	s.t.Helper()
	said := filepath.Join(s.t.TempDir(), "log")
	cmd := k.sh(s.t.Context(), "kubectl logs -f "+pod+" >"+said)
	must(s.t, cmd.Start())
	ended = make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.plane.eventually("the log is followed", func() error {
		text, err := os.ReadFile(said)
		if err != nil {
			return err
		}
		return contains(string(text), words)
	})
	return ended
}

// TestRevoke: one of two boards was stolen. What it has open ends, nothing that is on its card is of use, whatever becomes of the
// control plane's store, and another board can have its name.
func TestRevoke(t *testing.T) {
	needGo(t)
	s := newShed(t, quickLease, "--node-monitor-period=1s", "--node-monitor-grace-period=6s")
	one, two := s.board(), s.board()
	line := s.line("--uses", "9", "--ttl", "10h")
	k, cert, tokens := s.occupied(one, two, line)
	old := filepath.Join(t.TempDir(), "backup")
	s.plane.must("backup", "save", old)
	s.cutOff(k, one, two, cert, tokens)
	out := func(when string) {
		t.Helper()
		for b, code := range map[*testBoard]string{one: "401", two: "200"} {
			for how, path := range map[string]string{cert(b): "/api/v1/nodes/" + b.name, tokens[b]: "/api/v1/namespaces/default/pods"} {
				if got, err := s.curl(b, how, path).CombinedOutput(); err != nil || !strings.HasSuffix(string(got), code) {
					t.Errorf("%s, %s: %s %v, want %s", when, b.name, tail(string(got), 500), err, code)
				}
			}
		}
		s.says(one.name, " Revoked ", func() string { return s.plane.ledge("node", "ls") })
		s.says(two.name, " Joined ", func() string { return s.plane.ledge("node", "ls") })
	}
	out("at once")
	s.plane.eventually("the board is told", func() error {
		data, err := os.ReadFile(one.log.Name())
		if err != nil {
			return err
		}
		return contains(string(data), "was revoked on")
	})
	s.nodeSays(one.name, " NotReady ") // its pods are what those of any lost board are
	s.refused(s.board(), "not one of this control plane", line...)

	_ = s.plane.signal(syscall.SIGKILL)
	s.plane.launch("serve", "--listen", fmt.Sprintf("0.0.0.0:%d", shedPort))
	s.ready(two.name)
	out("after a restart")
	must(t, s.plane.signal(syscall.SIGTERM))
	s.plane.must("backup", "restore", old, "--data-dir", s.plane.data)
	s.plane.launch("serve", "--listen", fmt.Sprintf("0.0.0.0:%d", shedPort))
	s.ready(two.name)
	out("with a backup from before")
	s.refused(s.board(), "not one of this control plane", line...)

	_ = one.signal(syscall.SIGKILL)
	spare := s.board()
	s.plane.must("delete", "node", one.name)
	spare.join(append(s.line("--node", one.name), "--hostname-override", one.name)...)
	s.ready(one.name)
	if got, err := s.curl(one, cert(one), "/api/v1/nodes/"+one.name).CombinedOutput(); err != nil || !strings.HasSuffix(string(got), "401") {
		t.Errorf("when another has its place: %s %v", got, err)
	}
}

// occupied has both boards work: a pod each, and one with a log on the first. cert and tokens say how each board, and its pod, is known.
func (s *shed) occupied(one, two *testBoard, line []string) (k *client, cert func(*testBoard) string, tokens map[*testBoard]string) {
	t := s.t
	t.Helper()
	for _, b := range []*testBoard{one, two} {
		b.join(line...)
		s.ready(b.name)
	}
	one.importBusybox()
	s.plane.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: db}\n---\n" + strings.Replace(fleetPod("p1", one.name), "spec:\n",
		"spec:\n  imagePullSecrets: [{name: db}]\n", 1) +
		"---\n" + fleetPod("p2", two.name) + "---\n" + farPod(one.name))
	s.says("far", " Running ", s.pods)
	s.says("p1", " Running ", s.pods)
	s.says("p2", " Running ", s.pods)
	k = s.kubectl()
	must(t, k.try("kubectl create clusterrolebinding all --clusterrole=view --serviceaccount=default:default", "created"))
	bound := func(pod string) string {
		t.Helper()
		uid := string(s.pod(pod).UID)
		out, err := k.sh(t.Context(), "kubectl create token default --bound-object-kind Pod --bound-object-name "+pod+
			" --bound-object-uid "+uid).Output()
		must(t, err)
		return "-H 'Authorization: Bearer " + strings.TrimSpace(string(out)) + "'"
	}
	tokens = map[*testBoard]string{one: bound("p1"), two: bound("p2")}
	cert = func(b *testBoard) string {
		file := filepath.Join(b.data, "board", "board.pem")
		return "--cert " + file + " --key " + file
	}
	return k, cert, tokens
}

// cutOff revokes the first board while both have much open.
func (s *shed) cutOff(k *client, one, two *testBoard, cert func(*testBoard) string, tokens map[*testBoard]string) {
	t := s.t
	t.Helper()
	ends := map[string]chan error{}
	own := func(b *testBoard) string { return "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3D" + b.name }
	const pods = "/api/v1/pods?watch=1"
	ends["the board's watch"] = s.watching(one, cert(one), own(one))
	ends["its pod's watch"] = s.watching(one, tokens[one], pods)
	stays := map[string]chan error{"the other board's watch": s.watching(two, cert(two), own(two)),
		"its pod's watch": s.watching(two, tokens[two], pods)}
	ends["the log of its pod"] = s.following(k, "far", "I am far")

	said := s.plane.must("node", "revoke", one.name)
	for _, words := range []string{"node/" + one.name + " revoked", "default/db", "ledge delete node " + one.name} {
		must(t, contains(said, words))
	}
	for what, end := range ends {
		select {
		case <-end:
		case <-time.After(testrun.Patience(10 * time.Second)):
			t.Errorf("%s goes on", what)
		}
	}
	must(t, k.try("kubectl logs far", "!board "+one.name+" does not answer"))
	for what, end := range stays {
		select {
		case err := <-end:
			t.Errorf("%s has ended: %v", what, err)
		default:
		}
	}
}

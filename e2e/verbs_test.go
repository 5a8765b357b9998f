package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ledge/cli"
)

// ownVerbs are what a board without kubectl has, on a board that has the image with a shell.
func (b *testBoard) ownVerbs(t *testing.T) {
	b.apply(kubectlPod)
	b.running("web")
	has := func(out string, want ...string) {
		t.Helper()
		for _, w := range want {
			if err := contains(out, w); err != nil {
				t.Error(err)
			}
		}
	}
	has(b.must("describe", "pod", "web"), "Status:       Running", "Running for", "Started", "Containers:")
	has(b.must("describe", "node"), "Ready", "web", "memory", "NodeReady")
	has(b.must("describe", "cm/kube-root-ca.crt"), "BEGIN CERTIFICATE")
	has(b.must("exec", "web", "--", "echo", "-n", "said inside"), "said inside")
	bin, err := filepath.Abs(ledgeBin(t))
	must(t, err)
	k := &client{t: t, home: t.TempDir(), ran: &strings.Builder{},
		env: []string{"PATH=" + filepath.Dir(bin) + ":/usr/bin:/bin", "LEDGE_RUN_DIR=" + b.runDir, "TERM=dumb"}}
	k.write("typed.yaml", strings.ReplaceAll(typedPod, "$IMAGE", busyboxImage))
	for _, s := range []step{
		{"ledge apply -f typed.yaml; until ledge get pod typed | grep ' 1/1 '; do sleep 0.1; done", "Running", ""},
		{"head -c 300000 /dev/zero | ledge attach -i typed | wc -c", "300000", ""},
		{"ledge attach -it web", "!container main of pod web has no stdin", ""},
		{"ledge delete pod typed", "deleted", ""},
		{"ledge exec web -c main -- sh -c 'echo bad >&2; exit 7'; echo code $?", "bad|code 7", ""},
		{"ledge exec web -- /no/such/program", "!no such", ""},
		{"ledge exec nosuch -- true", `!pods "nosuch" not found`, ""},
		{"head -c 300000 /dev/zero | ledge exec -i web -- cat | wc -c", "300000", ""},
		{`script -qec "stty rows 33 cols 77; ledge exec -it web -- sh -c 'tty; until stty size 2>&1 | grep 33.77; do sleep 0.1; done'" /dev/null`,
			"/dev/pts/|33 77", ""},
		{`bash -c 'source <(ledge completion bash); COMP_WORDS=(ledge exec w); COMP_CWORD=2; _ledge; echo "${COMPREPLY[@]}"'`, "web", ""},
		{"ledge top pods nosuch", "!has not been measured", ""},
		{"ledge cordon && ledge cordon && ledge get nodes", "cordoned|already cordoned|SchedulingDisabled", ""},
		{"ledge uncordon", "uncordoned", ""},
		{"ledge drain", "!has no controller that would make it again (--force)", ""},
		{"ledge drain --force --timeout 60s", "already cordoned|evicting pod default/web|drained", ""},
		{"ledge get pods", "No resources found", ""},
		{"ledge uncordon " + b.name, "uncordoned", ""},
	} {
		if err := k.try(s.line, s.want); err != nil {
			t.Error(err)
		}
	}
	var exit *exec.ExitError
	if _, err := b.try("drain", "nosuch"); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("drain of a node that is not there: %v", err)
	}
	if out, err := b.try("exec", "web"); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "--") {
		t.Errorf("exec without a command: %v %s", err, out)
	}
}

const typedPod = `apiVersion: v1
kind: Pod
metadata: {name: typed}
spec:
  restartPolicy: Never
  containers: [{name: main, image: $IMAGE, command: [cat], stdin: true, stdinOnce: true}]
`

// checkedOut is what scripts/build.sh stamps: the commit of this checkout and its time, or SOURCE_DATE_EPOCH. A tree
// without git, as in the guest, has none.
func checkedOut(t *testing.T) (commit string, made time.Time) {
	t.Helper()
	out, err := exec.Command("git", "log", "-1", "--format=%H %ct").Output()
	if err != nil {
		return "", time.Time{}
	}
	commit, seconds, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	must(t, err)
	return commit, time.Unix(n, 0).UTC()
}

// TestVersionVerb: what is stamped in, and what it was built of, for people and for programs.
func TestVersionVerb(t *testing.T) {
	out, err := exec.Command(ledgeBin(t), "version", "-o", "json").Output()
	must(t, err)
	var v cli.Versions
	must(t, json.Unmarshal(out, &v))
	built, err := time.Parse(time.RFC3339, v.BuildTime)
	if err != nil {
		t.Error("build time:", err)
	}
	if head, made := checkedOut(t); head == "" {
		t.Log("no checkout: a binary without stamps is well")
	} else if v.Commit != head || !built.Equal(made) {
		t.Errorf("the binary is of %s, %s; want the checkout's %s, %s (make build)", v.Commit, v.BuildTime, head, made)
	}
	for _, said := range []string{v.Version, v.Libcontainer, v.Bbolt, strings.TrimPrefix(v.Go, "go")} {
		if !regexp.MustCompile(`^v?\d+\.\d+`).MatchString(said) {
			t.Errorf("%q is no version: %s", said, out)
		}
	}
	if !regexp.MustCompile(`^[0-9a-f]{40}$|^unknown$`).MatchString(v.Commit) {
		t.Errorf("commit %q", v.Commit)
	}
	text, err := exec.Command(ledgeBin(t), "version").Output()
	must(t, err)
	for _, want := range []string{v.Version, v.Commit, v.BuildTime, v.Libcontainer, v.Bbolt, v.Go} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if out, err := exec.Command(ledgeBin(t), "version", "-o", "yaml").CombinedOutput(); err == nil {
		t.Errorf("took an unknown format: %s", out)
	}
}

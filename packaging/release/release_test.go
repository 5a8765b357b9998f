package release

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const changes = "# Changelog\n\n## Unreleased\n\n- not yet\n\n## 0.0.1 - 2026-11-25\n\n- It starts.\n\n## 0.0.0\n\n- Nothing.\n"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sh runs a script with more environment.
func sh(t *testing.T, script string, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(script, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func key(t *testing.T, dir, name string) string {
	t.Helper()
	if _, err := exec.LookPath("minisign"); err != nil {
		t.Skip("minisign is not installed: scripts/setup.sh images")
	}
	secret := filepath.Join(dir, name)
	if out, err := exec.Command("minisign", "-G", "-W", "-s", secret, "-p", secret+".pub").CombinedOutput(); err != nil {
		t.Fatalf("minisign -G: %v: %s", err, out)
	}
	return secret
}

// build makes a release of this machine's architecture, without images, which have tests of their own.
func build(t *testing.T, dir, secret string) {
	t.Helper()
	changelog := filepath.Join(t.TempDir(), "changes")
	must(t, os.WriteFile(changelog, []byte(changes), 0o600))
	arch := map[string]string{"amd64": "amd64", "arm64": "arm64", "arm": "armv7"}[runtime.GOARCH]
	out, err := sh(t, "./build.sh", []string{"TO=" + dir, "ARCHS=" + arch, "IMAGES=", "DIRTY=ok", "CHANGES=" + changelog}, "v0.0.1", secret)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestRelease: what is released can be installed by its own installer, from a folder and from a server, whoever checks the signatures;
// nothing is installed of what somebody has changed.
func TestRelease(t *testing.T) {
	work := t.TempDir()
	dir, secret := filepath.Join(work, "out"), key(t, work, "key")
	build(t, dir, secret)
	if os.Getenv("LEDGE_LONG") != "" { // the same bytes, elsewhere
		again := filepath.Join(t.TempDir(), "again")
		build(t, again, secret)
		if out, err := exec.Command("diff", "-r", dir, again).CombinedOutput(); err != nil {
			t.Errorf("made twice: %v: %s", err, out)
		}
	}
	notes, err := os.ReadFile(filepath.Join(dir, "NOTES.md"))
	must(t, err)
	if string(notes) != "# ledge 0.0.1\n\n- It starts.\n" {
		t.Errorf("notes %q", notes)
	}
	sums, err := exec.Command("sh", "-c", `cd "$1" && sha256sum -c SHA256SUMS && wc -l <SHA256SUMS && ls | wc -l`, "sh", dir).CombinedOutput()
	must(t, err)
	if !strings.Contains(string(sums), "\n6\n9\n") { // all files but SHA256SUMS and two signatures
		t.Errorf("%s", sums)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	for _, checker := range []string{"minisign", "openssl"} {
		t.Run(checker, func(t *testing.T) {
			path := only(t, checker)
			for _, from := range []string{dir, server.URL} {
				to := t.TempDir()
				out, err := sh(t, filepath.Join(dir, "install.sh"), []string{path, "LEDGE_FROM=" + from, "LEDGE_TO=" + to})
				if err != nil {
					t.Fatalf("from %s: %v: %s", from, err, out)
				}
				said, err := exec.Command(filepath.Join(to, "ledge"), "version").CombinedOutput()
				if err != nil || !strings.HasPrefix(string(said), "ledge v0.0.1 ") {
					t.Errorf("installed is %s, %v", said, err)
				}
			}
			changed(t, dir, secret, path)
		})
	}
}

// only is a PATH on which one of the programs that check signatures is missing.
func only(t *testing.T, checker string) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
		entries, err := os.ReadDir(from)
		must(t, err)
		for _, e := range entries {
			if (e.Name() == "minisign" || e.Name() == "openssl") && e.Name() != checker {
				continue
			}
			_ = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())) // the first of a name is the one
		}
	}
	return "PATH=" + dir
}

// changed: each way to change a release leaves nothing installed.
func changed(t *testing.T, dir, secret, path string) {
	t.Helper()
	binary, err := filepath.Glob(filepath.Join(dir, "ledge-linux-*.minisig"))
	if err != nil || len(binary) != 1 {
		t.Fatalf("%q, %v", binary, err)
	}
	name := strings.TrimSuffix(filepath.Base(binary[0]), ".minisig")
	edit := func(file, cut, with string) func(string) error {
		return func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, file), []byte(strings.Replace(string(data), cut, with, 1)), 0o600)
		}
	}
	other := key(t, t.TempDir(), "other")
	sign := func(comment, with string) func(string) error {
		return func(dir string) error {
			return exec.Command("minisign", "-S", "-s", with, "-m", filepath.Join(dir, "SHA256SUMS"), "-t", comment).Run()
		}
	}
	for what, do := range map[string]func(dir string) error{
		"the binary":              edit(name, "ELF", "FLE"),
		"the checksums":           edit("SHA256SUMS", "a", "b"),
		"the comment":             edit("SHA256SUMS.minisig", "version:v0.0.1", "version:v0.0.2"),
		"another key":             sign("file:SHA256SUMS version:v0.0.1", other),
		"another file's comment":  sign("file:"+name+" version:v0.0.1", secret),
		"no signature":            func(dir string) error { return os.Remove(filepath.Join(dir, "SHA256SUMS.minisig")) },
		"half a signature":        func(dir string) error { return os.Truncate(filepath.Join(dir, "SHA256SUMS.minisig"), 100) },
		"no binary":               func(dir string) error { return os.Remove(filepath.Join(dir, name)) },
		"a binary without a line": edit("SHA256SUMS", "  "+name+"\n", "  other\n"),
	} {
		copied := t.TempDir()
		for _, f := range []string{name, "SHA256SUMS", "SHA256SUMS.minisig"} {
			if out, err := exec.Command("cp", filepath.Join(dir, f), copied).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		must(t, do(copied))
		to := t.TempDir()
		out, err := sh(t, filepath.Join(dir, "install.sh"), []string{path, "LEDGE_FROM=" + copied, "LEDGE_TO=" + to})
		left, _ := os.ReadDir(to)
		if err == nil || len(left) > 0 || !strings.Contains(out, "install.sh: ") {
			t.Errorf("%s was changed: %v, %d files: %s", what, err, len(left), out)
		}
	}
}

// TestRefused: what cannot be released is said before anything is built.
func TestRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "changes")
	must(t, os.WriteFile(file, []byte(changes), 0o600))
	for _, c := range []struct{ version, key, says string }{
		{"1.2.3", "", "is no version"},
		{"v1.2", "", "is no version"},
		{"v0.0.1 ; id", "", "is no version"},
		{"v0.0.2", "", "has no heading '## 0.0.2'"},
	} {
		out, err := sh(t, "./build.sh", []string{"DIRTY=ok", "CHANGES=" + file, "TO=" + filepath.Join(t.TempDir(), "out")}, c.version)
		if err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v: %s", c.version, err, out)
		}
	}
}

package machines

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// TestMachineListers: by a program and by a URL, they answer with a word or not at all (N-3.62).
func TestMachineListers(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "lister")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\n[ \"$1\" = --fleet ] || exit 9\ncase $2:$3 in\n"+
		"a:id) echo shutdown;;\nb:) echo gone;;\nlong:) head -c 100000 /dev/zero | tr '\\0' x;;\nword:) echo perhaps;;\n*) echo 'no idea' >&2; exit 1;;\nesac\n"), 0o700))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); q.Get("fleet") + " " + q.Get("node") + ":" + q.Get("providerID") {
		case "1 a:id":
			fmt.Fprintln(w, "shutdown")
		case "1 b:":
			fmt.Fprint(w, "gone")
		case "1 long:":
			fmt.Fprint(w, strings.Repeat("x", 100000))
		case "1 word:":
			fmt.Fprint(w, "perhaps")
		default:
			http.Error(w, "no idea", http.StatusNotFound)
		}
	}))
	defer server.Close()
	for _, text := range []string{program + " --fleet", server.URL + "/machines?fleet=1"} {
		l, err := New(text)
		must(t, err)
		for _, c := range []struct{ node, id, want, wrong string }{
			{"a", "id", "shutdown", ""}, {"b", "", "gone", ""}, {"long", "", "", "a machine is"}, {"word", "", "", `not "perhaps"`},
			{"c", "", "", " "},
		} {
			got, err := l.Machine(t.Context(), c.node, c.id)
			if string(got) != c.want || (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s %s: %q %v, want %q %s", text, c.node, got, err, c.want, c.wrong)
			}
		}
	}
	for text, want := range map[string]bool{"": true, "http://": false, filepath.Join(dir, "none"): false} {
		if _, err := New(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestMachineListerHangs: a program has its time, and so has what it starts; nothing of it is left (N-3.62).
func TestMachineListerHangs(t *testing.T) {
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	program := filepath.Join(dir, "lister")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\nsleep 60 &\necho $! >>"+pids+"\n[ $1 = hung ] && wait\necho exists\n"), 0o700))
	l, err := New(program)
	must(t, err)
	for _, c := range []struct{ node, want, wrong string }{{"hung", "", "no answer in time"}, {"left", "exists", ""}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		began := time.Now()
		got, err := l.Machine(ctx, c.node, "")
		cancel()
		if string(got) != c.want || (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %q %v, want %q %s", c.node, got, err, c.want, c.wrong)
		}
		if took := time.Since(began); took > testrun.Patience(10*time.Second) {
			t.Errorf("%s: it took %s", c.node, took)
		}
	}
	text, err := os.ReadFile(pids)
	must(t, err)
	started := strings.Fields(string(text))
	if len(started) != 2 {
		t.Fatalf("started %q", started)
	}
	for _, pid := range started {
		testrun.Until(t, 5*time.Second, pid+" is gone", func() bool { return !running(pid) })
	}
}

// running says whether there is such a process that has not ended; nobody may be there to reap it.
func running(pid string) bool {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package e2e

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"ledge/images/imagestest"
)

const sqliteImage = "registry.example/sqlite:1"

// importSqlite gives the board an image with Debian's sqlite3, the libraries that it is linked to, and a shell.
func (b *testBoard) importSqlite() {
	b.t.Helper()
	libraries, err := exec.Command("ldd", "/usr/bin/sqlite3").CombinedOutput()
	if err != nil {
		b.t.Fatalf("%v: %s: scripts/setup.sh images installs sqlite3", err, libraries)
	}
	entries := []imagestest.Entry{imagestest.Dir("bin"), imagestest.Dir("tmp"), imagestest.Symlink("bin/sh", "busybox"),
		imagestest.Symlink("bin/sleep", "busybox")}
	program := func(from, to string) {
		data, err := os.ReadFile(from)
		must(b.t, err)
		entries = append(entries, imagestest.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: to, Mode: 0o755}, Body: string(data)})
	}
	program("/bin/busybox", "bin/busybox")
	program("/usr/bin/sqlite3", "bin/sqlite3")
	for _, word := range strings.Fields(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			program(word, strings.TrimPrefix(word, "/"))
		}
	}
	file := filepath.Join(b.t.TempDir(), "sqlite.tar")
	must(b.t, os.WriteFile(file, imagestest.OCI(imagestest.Image{Names: []string{sqliteImage},
		Config: v1.ImageConfig{Env: []string{"PATH=/bin"}}, Layers: [][]byte{imagestest.Layer(entries...)}}), 0o600))
	b.must("images", "import", file)
}

// database writes row after row, and says of each that it is committed.
const database = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: db
        image: ` + sqliteImage + `
        command:
        - sh
        - -c
        - |
          sqlite3 /data/rows.db 'create table if not exists rows (n integer primary key)'
          while n=$(sqlite3 /data/rows.db 'insert into rows default values; select max(n) from rows'); do echo row $n; sleep 0.02; done
        volumeMounts: [{name: data, mountPath: /data}]
`

// TestDatabase: Debian's sqlite in a StatefulSet keeps each row that it has committed, whoever is killed, when its pod is deleted, and when
// the board stops and starts all pods.
func TestDatabase(t *testing.T) { // N-13.10
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	b.serve("--on-term=drain")
	b.importSqlite()
	b.apply(database)
	committed := 0 // rows that somebody was told
	told := func() int {
		lines := strings.Fields(b.ledge("logs", "db-0"))
		if len(lines) == 0 {
			return 0
		}
		n, err := strconv.Atoi(lines[len(lines)-1])
		if err != nil {
			return 0
		}
		return n
	}
	grows := func(after string) {
		t.Helper()
		b.eventually(after+": more rows", func() error {
			if n := told(); n < committed+3 {
				return fmt.Errorf("%d are committed, before there were %d", n, committed)
			}
			return nil
		})
		committed = told()
	}
	check := func(after string) {
		t.Helper()
		got := ""
		b.eventually(after+": the database answers", func() (err error) {
			got, err = b.try("exec", "db-0", "--", "sqlite3", "-cmd", ".timeout 5000", "/data/rows.db",
				"pragma integrity_check; select count(*) = max(n), max(n) >= "+strconv.Itoa(committed)+" from rows")
			return err
		})
		if strings.TrimSpace(got) != "ok\n1|1" {
			t.Errorf("%s, with %d rows committed: %s", after, committed, got)
		}
	}
	grows("from the start")
	must(t, syscall.Kill(b.processes("/kubepods/")[0], syscall.SIGKILL))
	check("killed")
	grows("killed")

	b.killKeeper()
	_ = b.signal(syscall.SIGKILL) // its verdict is the kill
	must(t, syscall.Kill(b.processes("/kubepods/")[0], syscall.SIGKILL))
	b.serve("--on-term=drain")
	check("with brain, keeper and container killed")
	grows("with brain, keeper and container killed")

	was := b.pod("db-0").UID
	b.must("delete", "pod", "db-0")
	b.eventually("another pod comes", func() error {
		if text := b.ledge("get", "pod", "db-0", "-o", "json"); strings.Contains(text, string(was)) || !strings.Contains(text, `"uid"`) {
			return errors.New("not yet")
		}
		return nil
	})
	check("moved")
	grows("moved")

	must(t, b.signal(syscall.SIGTERM))
	b.serve()
	check("stopped and started with the board")
	grows("stopped and started with the board")
	b.must("delete", "statefulset", "db")
	b.must("delete", "pvc", "data-db-0")
	b.noVolumes()
}

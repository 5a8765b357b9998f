package plugins

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/node/devices"
	"ledge/node/grpc"
)

// played is a plugin that answers what a test wants.
type played struct {
	name, dir string
	list      func(w http.ResponseWriter, r *http.Request) // ListAndWatch
	methods   map[string]grpc.Method
	s         *http.Server
}

func deviceList(ids ...string) (b []byte) {
	for _, id := range ids {
		b = grpc.AppendBytes(b, 1, grpc.AppendBytes(grpc.AppendBytes(nil, 1, id), 2, "Healthy"))
	}
	return b
}

// lists sends these lists, and no more until the connection ends.
func lists(all ...[]byte) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, b := range all {
			_, _ = w.Write(grpc.Frame(b))
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}
}

func (p *played) begin(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(p.dir, p.name))
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]grpc.Method{plugin + "GetDevicePluginOptions": func(context.Context, []byte) ([]byte, error) { return nil, nil }}
	for name, m := range p.methods {
		methods[plugin+name] = m
	}
	rest := grpc.Handler(methods, mostMessage)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	p.s = &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == plugin+"ListAndWatch" {
			w.Header().Set("Content-Type", "application/grpc")
			p.list(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})}
	go func() { _ = p.s.Serve(l) }()
	t.Cleanup(func() { _ = p.s.Close() })
}

func ask(dir, version, endpoint, resource string) error {
	c := grpc.NewClient(grpc.Client{Authority: "localhost", Most: mostMessage}, func(ctx context.Context) (net.Conn, error) {
		return dialSocket(ctx, filepath.Join(dir, doorName))
	})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := c.Call(ctx, register, grpc.AppendBytes(grpc.AppendBytes(grpc.AppendBytes(nil, 1, version), 2, endpoint), 3, resource))
	return err
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// begin has plugins served until stop is called.
func begin(t *testing.T, dir, file string) (p *Plugins, stop func()) {
	t.Helper()
	p = New(Config{Dir: dir, File: file})
	p.Serve(Rim{Changed: func() {}, Lives: func(pod string) bool { return pod != "ended" }, Boot: func() string { return "boot-1" }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Error("it does not end")
		}
	}
	t.Cleanup(stop)
	eventually(t, "the socket is there", func() bool { return inode(filepath.Join(dir, doorName)) != 0 })
	return p, stop
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "plugins")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// container is an AllocateResponse that sets one variable.
func container(value string) []byte {
	env := grpc.AppendBytes(grpc.AppendBytes(nil, 1, "GOT"), 2, value)
	return grpc.AppendBytes(nil, 1, grpc.AppendBytes(nil, 1, env))
}

// TestPlugins: devices are given, kept over a restart, asked for anew after a boot, and given to nobody without their plugin.
func TestPlugins(t *testing.T) {
	dir, asked := shortDir(t), 0
	file := filepath.Join(dir, "plugins.json")
	v := &played{name: "v.sock", dir: dir, list: lists(deviceList("a", "b")), methods: map[string]grpc.Method{
		"Allocate": func(_ context.Context, m []byte) ([]byte, error) {
			asked++
			inner, err := only(m)
			ids, err2 := strings1(inner)
			return container(strings.Join(ids, ",")), errors.Join(err, err2)
		}}}
	p, stop := begin(t, dir, file)
	v.begin(t)
	if err := ask(dir, version, v.name, "example.com/x"); err != nil {
		t.Fatal(err)
	}
	want := func(c, a int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d/%d", c, a), func() bool { return p.Counts()["example.com/x"] == devices.Count{Capacity: c, Allocatable: a} })
	}
	want(2, 2)
	give := func(pod string, n int) ([]Gift, error) {
		return p.Give(t.Context(), Ask{Pod: pod, Container: "c"}, map[string]int{"example.com/x": n, "other.com/y": 1})
	}
	first, err := give("p", 1)
	if err != nil || len(first) != 1 || first[0].Answer.Env["GOT"] != "a" {
		t.Fatal(first, err)
	}
	if _, err := give("q", 2); err == nil || !strings.Contains(err.Error(), "Requested: 2, Available: 1") {
		t.Error(err)
	}
	if again, err := give("p", 1); err != nil || !slices.Equal(again[0].IDs, first[0].IDs) || asked != 1 {
		t.Error(again, err, asked)
	}
	if _, err := give("p", 2); err == nil || !strings.Contains(err.Error(), "changed request") {
		t.Error(err)
	}
	stop()
	_ = v.s.Close()
	p, _ = begin(t, dir, file)
	want(0, 0) // there was one
	if again, err := give("p", 1); err != nil || again[0].Answer.Env["GOT"] != "a" {
		t.Error(again, err)
	}
	if _, err := give("q", 1); err == nil || !strings.Contains(err.Error(), "unregistered device example.com/x") {
		t.Error(err)
	}
	p.Serve(Rim{Changed: func() {}, Lives: func(string) bool { return true }, Boot: func() string { return "boot-2" }})
	if _, err := give("p", 1); err == nil || !strings.Contains(err.Error(), "waits for the device plugin") {
		t.Error(err)
	}
	v.begin(t)
	if err := ask(dir, version, v.name, "example.com/x"); err != nil {
		t.Fatal(err)
	}
	want(2, 2)
	if again, err := give("p", 1); err != nil || again[0].IDs[0] != "a" || asked != 2 {
		t.Error(again, err, asked)
	}
	_ = v.s.Close()
	want(2, 0)
}

// TestAbuse: what a plugin or a stranger in the directory does costs nobody else anything.
func TestAbuse(t *testing.T) {
	dir := shortDir(t)
	p, stop := begin(t, dir, filepath.Join(dir, "plugins.json"))
	for _, c := range [][4]string{{"v1alpha", "a.sock", "example.com/x", "not supported"}, {version, "../a.sock", "example.com/x", "Endpoint"},
		{version, "kubelet.sock", "example.com/x", "Endpoint"}, {version, "a.sock", "kubernetes.io/x", "ResourceName"},
		{version, "a.sock", "cpu", "ResourceName"}, {version, "a.sock", "ledge.local/serial", "ResourceName"},
		{version, "none.sock", "example.com/x", "no such file"}, {version, "file", "example.com/x", "no socket"},
		{version, "link", "example.com/x", "no socket"}} {
		_ = os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
		_ = os.Symlink(doorName, filepath.Join(dir, "link"))
		if err := ask(dir, c[0], c[1], c[2]); err == nil || !strings.Contains(err.Error(), c[3]) {
			t.Errorf("%v: %v", c, err)
		}
	}
	long := make([]byte, 5)
	binary.BigEndian.PutUint32(long[1:], 1<<31)
	many := make([]string, mostDevices+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	hung := func(ctx context.Context, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
	begin := func(name string, list func(http.ResponseWriter, *http.Request)) {
		t.Helper()
		v := &played{name: name, dir: dir, list: list, methods: map[string]grpc.Method{"Allocate": hung}}
		v.begin(t)
		if err := ask(dir, version, name, "example.com/"+name); err != nil {
			t.Fatal(name, err)
		}
	}
	has := func(name string) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.ends["example.com/"+name] != nil
	}
	begin("long", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(long) })
	begin("many", lists(deviceList(many...)))
	begin("junk", lists([]byte{0xff}))
	begin("good", lists(deviceList("a")))
	begin("ends", func(http.ResponseWriter, *http.Request) {})
	sent := 0
	begin("flood", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(grpc.Frame(deviceList(fmt.Sprint(sent)))); err != nil {
				return
			}
			sent++
		}
	})
	for _, name := range []string{"long", "many", "junk", "ends"} {
		eventually(t, name+" is gone", func() bool { return !has(name) })
	}
	eventually(t, "the good one is counted", func() bool { return p.Counts()["example.com/good"].Allocatable == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := p.Give(ctx, Ask{Pod: "p", Container: "c"}, map[string]int{"example.com/good": 1}); err == nil {
		t.Error("a plugin that hangs gives")
	}
	if free, _ := p.book.free(Ask{Pod: "q"}, "example.com/good"); len(free) != 1 {
		t.Error("what was not given is not free again")
	}
	for i := len(p.Counts()); i < mostPlugins; i++ {
		begin(fmt.Sprint("n", i), lists(deviceList("a")))
	}
	p.mu.Lock()
	p.book.Sources["example.com/long"] = Source{} // nobody is to be forgotten
	for name := range p.book.Sources {
		p.book.Sources[name] = Source{}
	}
	p.mu.Unlock()
	v := &played{name: "one", dir: dir, list: lists()}
	v.begin(t)
	if err := ask(dir, version, "one", "example.com/one"); err == nil || !strings.Contains(err.Error(), "no more are counted") {
		t.Error(err)
	}
	stop()
	if sent > 200_000 {
		t.Errorf("%d lists were taken from one that never ends", sent)
	}
}

// TestDoor: no socket is taken from a kubelet, and none is put where others may write.
func TestDoor(t *testing.T) {
	dir := shortDir(t)
	l, err := openDoor(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDoor(dir); err == nil || !strings.Contains(err.Error(), "another ledge") {
		t.Error(err)
	}
	_ = l.Close()
	again, err := openDoor(dir) // what a process that was killed leaves
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
	for what, make := range map[string]func() error{"no socket": func() error {
		return errors.Join(os.Remove(l.name), os.WriteFile(l.name, nil, 0o600))
	}, "root alone": func() error { return os.Chmod(dir, 0o777) }} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if _, err := openDoor(dir); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		_ = os.Chmod(dir, 0o755)
	}
	if _, err := openDoor("/dev/null/x"); err == nil {
		t.Error("a door below a file")
	}
}

// TestBook: containers of a pod that do not run at the same time have the same device, others not.
func TestBook(t *testing.T) {
	b := Book{Sources: map[string]Source{"r": {Devices: map[string]bool{"a": true, "b": true, "c": false}}}}
	give := func(a Ask, n int, prefer ...string) string {
		g, err := b.Give(a, "r", n, prefer)
		if err != nil {
			return err.Error()
		}
		b.Gifts = append(b.Gifts, g)
		return strings.Join(g.IDs, "")
	}
	if got := give(Ask{"p", "init", true}, 1, "b"); got != "b" {
		t.Error(got)
	}
	if got := give(Ask{"p", "main", false}, 1, "a"); got != "b" {
		t.Error(got)
	}
	if got := give(Ask{"p", "more", false}, 1); got != "a" {
		t.Error(got)
	}
	if got := give(Ask{"q", "main", false}, 1); !strings.Contains(got, "Available: 0") {
		t.Error(got)
	}
	b.Gifts = nil
	give(Ask{"p", "sidecar", false}, 1, "a")
	if got := give(Ask{"p", "init", true}, 1, "a"); got != "b" {
		t.Errorf("an init container gets %s, and the sidecar before it has a", got)
	}
	now := time.Now()
	if got := b.Counts(now)["r"]; got != (devices.Count{Capacity: 3, Allocatable: 2}) {
		t.Error(got)
	}
	b.Sources["r"] = Source{Devices: unhealthy(b.Sources["r"].Devices), Gone: now}
	if got := b.Counts(now.Add(4 * time.Minute))["r"]; got != (devices.Count{Capacity: 3}) {
		t.Error(got)
	}
	if got := b.Counts(now.Add(6 * time.Minute))["r"]; got != (devices.Count{}) {
		t.Error(got)
	}
}

// TestListensSoon: a plugin may register a moment before it listens.
func TestListensSoon(t *testing.T) {
	name := filepath.Join(t.TempDir(), "late.sock")
	listened := make(chan error, 1)
	time.AfterFunc(150*time.Millisecond, func() {
		l, err := net.Listen("unix", name)
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		listened <- err
	})
	c, err := dialSoon(t.Context(), name)
	if err := errors.Join(err, <-listened); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := dialSoon(ctx, name+"2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a socket that nobody makes: %v", err)
	}
}

func pathMessage(at, host, permissions string) []byte {
	b := grpc.AppendBytes(grpc.AppendBytes(nil, 1, at), 2, host)
	if permissions != "" {
		b = grpc.AppendBytes(b, 3, permissions)
	}
	return b
}

// TestAnswers: what cannot be given whole is refused with what to do.
func TestAnswers(t *testing.T) {
	for want, field := range map[string][]byte{
		"CDI":               grpc.AppendBytes(nil, 5, grpc.AppendBytes(nil, 1, "v.com/gpu=0")),
		"by CDI":            grpc.AppendBytes(nil, 4, grpc.AppendBytes(nil, 1, "cdi.k8s.io/x")),
		"permissions":       grpc.AppendBytes(nil, 3, pathMessage("/dev/x", "/dev/x", "w")),
		"permissions \"\"":  grpc.AppendBytes(nil, 3, pathMessage("/dev/x", "/dev/x", "")),
		"below /dev":        grpc.AppendBytes(nil, 3, pathMessage("/x", "/dev/x", "rw")),
		"hide":              grpc.AppendBytes(nil, 2, pathMessage("/proc/1", "/x", "")),
		"no absolute path":  grpc.AppendBytes(nil, 2, pathMessage("x", "/x", "")),
		"or the root":       grpc.AppendBytes(nil, 2, pathMessage("/..", "/x", "")),
		"name of a var":     grpc.AppendBytes(nil, 1, grpc.AppendBytes(nil, 1, "A=B")),
		"more than 256":     []byte(strings.Repeat(string(grpc.AppendBytes(nil, 1, grpc.AppendBytes(nil, 1, "A"))), mostEntries+1)),
		"more than 65536":   grpc.AppendBytes(nil, 9, make([]byte, mostAnswer)),
		"message is malfor": {0xff},
	} {
		if _, _, err := parseAnswer(grpc.AppendBytes(nil, 1, field)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, _, err := parseAnswer(nil); err == nil {
		t.Error("an answer for no container is one")
	}
	a, _, err := parseAnswer(grpc.AppendBytes(nil, 1, slices.Concat(grpc.AppendBytes(nil, 3, pathMessage("/dev/x", "/dev/y", "r")),
		grpc.AppendBytes(nil, 2, grpc.AppendVarint(pathMessage("/a/", "/b", ""), 3, 1)))))
	if err != nil || !slices.Equal(a.Nodes, []Node{{"/dev/y", "/dev/x", true}}) || !slices.Equal(a.Mounts, []Mount{{"/b", "/a", true}}) {
		t.Error(a, err)
	}
}

// TestLook: numbers are those of now; what is no character device is refused.
func TestLook(t *testing.T) {
	judged := errors.New("no")
	p := New(Config{Judge: func(major, _ uint32) error {
		if major == 10 {
			return judged
		}
		return nil
	}})
	look := func(host string) ([]Device, error) {
		out, err := p.Look([]Gift{{Resource: "r", Answer: Answer{Nodes: []Node{{host, "/dev/x", false}}}}})
		return out.Devices, err
	}
	if got, err := look("/dev/null"); err != nil || !slices.Equal(got, []Device{{"/dev/x", 1, 3, false}}) {
		t.Error(got, err)
	}
	for _, bad := range []string{"/etc/passwd", "/none", t.TempDir()} {
		if got, err := look(bad); err == nil {
			t.Error(bad, got)
		}
	}
	dir := t.TempDir()
	if err := unix.Mknod(filepath.Join(dir, "n"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil {
		t.Skip(err)
	}
	if got, err := look(dir); err != nil || !slices.Equal(got, []Device{{"/dev/x/n", 1, 5, false}}) {
		t.Error(got, err)
	}
	if err := unix.Mknod(filepath.Join(dir, "w"), unix.S_IFCHR|0o600, int(unix.Mkdev(10, 130))); err != nil {
		t.Skip(err)
	}
	if got, err := look(dir); !errors.Is(err, judged) {
		t.Error(got, err)
	}
}

// FuzzMessages: whatever a plugin sends is read without harm and within its bounds.
func FuzzMessages(f *testing.F) {
	f.Add(container("x"))
	f.Add(deviceList("a", "b"))
	f.Add(grpc.AppendBytes(nil, 1, grpc.AppendBytes(nil, 3, pathMessage("/dev/x", "/dev/y", "rw"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if list, err := parseDevices(b); err == nil && len(list) > mostDevices {
			t.Error("more devices than there may be")
		}
		a, _, err := parseAnswer(b)
		if err == nil && len(a.Env)+len(a.Mounts)+len(a.Nodes) > mostEntries {
			t.Error("more entries than there may be")
		}
		for _, n := range a.Nodes {
			if filepath.Clean(n.At) != n.At || !strings.HasPrefix(n.At, "/dev/") {
				t.Errorf("a node at %q", n.At)
			}
		}
		if r, err := parseRegistration(b); err == nil && r.check() == nil && strings.ContainsAny(r.endpoint, "/\x00") {
			t.Errorf("a socket %q", r.endpoint)
		}
		_, _ = parsePreferred(b)
		_, _ = parseOptions(b)
	})
}

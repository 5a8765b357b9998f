package registry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ledge/images"
	it "ledge/images/imagestest"
	"ledge/images/layers"
	"ledge/images/registry"
	"ledge/internal/testrun"
)

// real is Debian's docker-registry on loopback.
type real struct {
	t    *testing.T
	addr string
}

// newReal starts one; with a password for "me" if it is given as a line of htpasswd.
func newReal(t *testing.T, htpasswd string) *real {
	t.Helper()
	for _, tool := range []string{"docker-registry", "skopeo", "umoci", "buildah"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: scripts/setup.sh images", tool)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &real{t: t, addr: l.Addr().String()}
	_ = l.Close()
	dir := t.TempDir()
	config := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage:\n  filesystem: {rootdirectory: %s}\nhttp: {addr: %s}\n",
		filepath.Join(dir, "data"), r.addr)
	if htpasswd != "" {
		file := filepath.Join(dir, "htpasswd")
		if err := os.WriteFile(file, []byte(htpasswd+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		config += "auth:\n  htpasswd: {realm: test, path: " + file + "}\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", filepath.Join(dir, "config.yml"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	testrun.Succeeds(t, 20*time.Second, "docker-registry answers", func() error {
		conn, err := net.Dial("tcp", r.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return r
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// push sends images of an OCI archive there with skopeo.
func (r *real) push(name string, im it.Image, args ...string) {
	r.t.Helper()
	im.Names = []string{"x:1"}
	file := filepath.Join(r.t.TempDir(), "image.tar")
	if err := os.WriteFile(file, it.OCI(im), 0o600); err != nil {
		r.t.Fatal(err)
	}
	run(r.t, "skopeo", append(append([]string{"--insecure-policy", "copy", "--dest-tls-verify=false"}, args...), "oci-archive:"+file,
		"docker://"+r.addr+"/"+name)...)
}

type memIndex struct {
	mu   sync.Mutex
	rows map[string][]byte
}

func (x *memIndex) Put(k string, v []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rows[k] = slices.Clone(v)
	return nil
}

func (x *memIndex) Delete(k string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.rows, k)
	return nil
}

func (x *memIndex) All() (map[string][]byte, []string, error) { return x.rows, nil, nil }

// newStore is a real store that pulls with a real client.
func newStore(t *testing.T, cfg registry.Config) *images.Disk {
	t.Helper()
	dir := t.TempDir()
	d, err := images.Open(t.Context(), images.StoreConfig{Root: filepath.Join(dir, "images"), RunDir: filepath.Join(dir, "run"),
		Index: &memIndex{rows: map[string][]byte{}}, Layers: layers.New(layers.Config{}), Registry: newClient(t, cfg),
		RetryPause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Retain(context.Background(), nil); err != nil {
			t.Error(err)
		}
		_ = d.Close()
	})
	return d
}

// content mounts an image and reads one file of it.
func content(t *testing.T, d *images.Disk, id, file string) string {
	t.Helper()
	root, err := d.Mount(t.Context(), id, "look")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Error(err)
	}
	if err := d.Unmount(t.Context(), "look"); err != nil {
		t.Error(err)
	}
	return string(data)
}

// What other programs put into a real registry comes out: gzip and zstd, OCI and Docker's types, images of umoci.
func TestRealRegistry(t *testing.T) {
	r := newReal(t, "")
	d := newStore(t, registry.Config{})
	for name, args := range map[string][]string{
		"oci-gzip":    {"--dest-compress-format=gzip", "--format=oci"},
		"oci-zstd":    {"--dest-compress-format=zstd", "--dest-compress", "--format=oci"},
		"docker-gzip": {"--format=v2s2"},
	} {
		im := it.Sample("x")
		if name == "oci-zstd" {
			im.Compress = it.Zstd
			args = []string{"--format=oci"}
		}
		im.Layers = append(im.Layers, it.Layer(it.File("which", name)))
		r.push("team/"+name+":1", im, args...)
		p, err := d.Pull(t.Context(), images.PullRequest{Ref: r.addr + "/team/" + name + ":1"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := content(t, d, p.Image.ID, "which"); got != name {
			t.Errorf("%s: %q", name, got)
		}
		again, err := d.Pull(t.Context(), images.PullRequest{Ref: r.addr + "/team/" + name + ":1"})
		if err != nil || !again.Present || again.Bytes != 0 {
			t.Errorf("%s again: %+v, %v", name, again, err)
		}
	}
	if _, err := d.Pull(t.Context(), images.PullRequest{Ref: r.addr + "/team/none:1"}); err == nil ||
		!strings.Contains(err.Error(), "MANIFEST_UNKNOWN") {
		t.Errorf("%v", err)
	}
}

// Archives that skopeo writes are taken, and skopeo takes ours.
func TestRealArchives(t *testing.T) {
	r := newReal(t, "")
	im := it.Image{Compress: it.Gzip, Layers: [][]byte{it.Layer(it.File("word", "from skopeo"))}}
	r.push("app:1", im)
	dir := t.TempDir()
	for _, kind := range []string{"docker-archive", "oci-archive"} {
		d := newStore(t, registry.Config{})
		file := filepath.Join(dir, kind)
		run(t, "skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", "docker://"+r.addr+"/app:1", kind+":"+file+":example.com/app:1")
		in, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		list, err := d.Import(t.Context(), in)
		_ = in.Close()
		if err != nil || len(list) != 1 || !slices.Equal(list[0].Names, []string{"example.com/app:1"}) {
			t.Fatalf("%s: %+v, %v", kind, list, err)
		}
		if got := content(t, d, list[0].ID, "word"); got != "from skopeo" {
			t.Errorf("%s: %q", kind, got)
		}
		out, err := os.Create(filepath.Join(dir, "ours-"+kind))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Export(t.Context(), out, []string{"example.com/app:1"}), out.Close()); err != nil {
			t.Fatal(err)
		}
		run(t, "skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", "oci-archive:"+out.Name(), "docker://"+r.addr+"/again:"+kind)
	}
}

// An image that umoci made, with files removed in a later layer.
func TestRealUmoci(t *testing.T) {
	r := newReal(t, "")
	dir := t.TempDir()
	layout, bundle := filepath.Join(dir, "oci"), filepath.Join(dir, "bundle")
	run(t, "umoci", "init", "--layout", layout)
	run(t, "umoci", "new", "--image", layout+":v1")
	run(t, "umoci", "unpack", "--image", layout+":v1", bundle)
	for file, text := range map[string]string{"etc/keep": "kept", "etc/gone": "gone"} {
		path := filepath.Join(bundle, "rootfs", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(bundle, "rootfs/etc/keep"), filepath.Join(bundle, "rootfs/etc/link")); err != nil {
		t.Fatal(err)
	}
	run(t, "umoci", "repack", "--image", layout+":v2", "--refresh-bundle", bundle)
	if err := os.Remove(filepath.Join(bundle, "rootfs/etc/gone")); err != nil {
		t.Fatal(err)
	}
	run(t, "umoci", "repack", "--image", layout+":v3", bundle)
	run(t, "umoci", "config", "--image", layout+":v3", "--config.entrypoint", "/bin/thing", "--config.user", "12:34", "--config.workingdir",
		"/etc")
	run(t, "skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", "oci:"+layout+":v3", "docker://"+r.addr+"/umoci:v3")
	d := newStore(t, registry.Config{})
	p, err := d.Pull(t.Context(), images.PullRequest{Ref: r.addr + "/umoci:v3"})
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Image.Config; !slices.Equal(c.Entrypoint, []string{"/bin/thing"}) || c.User != "12:34" || c.WorkingDir != "/etc" {
		t.Errorf("%+v", c)
	}
	root, err := d.Mount(t.Context(), p.Image.ID, "look")
	if err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(root, "etc/*"))
	if err != nil || len(list) != 2 {
		t.Errorf("%q, %v", list, err)
	}
}

// An image that buildah made, and sent by itself.
func TestRealBuildah(t *testing.T) {
	r := newReal(t, "")
	dir := t.TempDir()
	buildah := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("buildah", append([]string{"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"),
			"--storage-driver", "vfs"}, args...)...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("buildah %q: %v\n%s", args, err, &errs)
		}
		return strings.TrimSpace(string(out))
	}
	file := filepath.Join(dir, "made")
	if err := os.WriteFile(file, []byte("by buildah"), 0o644); err != nil {
		t.Fatal(err)
	}
	box := buildah("from", "scratch")
	buildah("copy", box, file, "/etc/made")
	buildah("config", "--entrypoint", `["/bin/thing"]`, "--user", "3:4", "--env", "A=b", box)
	d := newStore(t, registry.Config{})
	for _, format := range []string{"oci", "docker"} {
		ref := r.addr + "/buildah:" + format
		buildah("commit", "--format", format, "--tls-verify=false", box, "docker://"+ref)
		p, err := d.Pull(t.Context(), images.PullRequest{Ref: ref})
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if c := p.Image.Config; !slices.Equal(c.Entrypoint, []string{"/bin/thing"}) || c.User != "3:4" || !slices.Contains(c.Env, "A=b") {
			t.Errorf("%s: %+v", format, c)
		}
		if got := content(t, d, p.Image.ID, "etc/made"); got != "by buildah" {
			t.Errorf("%s: %q", format, got)
		}
	}
}

// hashOf is bcrypt of the word in secret.
const hashOf = "$2b$04$kwzUAan/hs1eMpPf0EOfxeWim0g4KwWr7y6DBzGe2B9U.Pc91gjTO"

// A registry that wants a name and password gets those of the pull, else those of the node.
func TestRealPassword(t *testing.T) {
	r := newReal(t, "me:"+hashOf)
	r.push("app:1", it.Sample("x"), "--dest-creds=me:"+secret)
	ref := r.addr + "/app:1"
	good := keysFor(r.addr, images.Credential{Username: "me", Password: secret})
	bad := keysFor(r.addr, images.Credential{Username: "me", Password: "wrong"})
	if _, err := newStore(t, registry.Config{}).Pull(t.Context(), images.PullRequest{Ref: ref}); err == nil {
		t.Error("pulled by nobody")
	}
	if _, err := newStore(t, registry.Config{}).Pull(t.Context(), images.PullRequest{Ref: ref, Keys: bad}); err == nil ||
		strings.Contains(err.Error(), "wrong") {
		t.Errorf("wrong password: %v", err)
	}
	if _, err := newStore(t, registry.Config{}).Pull(t.Context(), images.PullRequest{Ref: ref, Keys: good}); err != nil {
		t.Error(err)
	}
	node := registry.Config{Keys: func() (images.Keyring, error) { return good, nil }}
	if _, err := newStore(t, node).Pull(t.Context(), images.PullRequest{Ref: ref, Keys: bad}); err != nil {
		t.Errorf("the node's own after a wrong one: %v", err)
	}
}

// An uplink that drops every transfer after a while, in front of a real registry: the image comes all the same, and
// every byte of it about once.
func TestRealBadUplink(t *testing.T) {
	r := newReal(t, "")
	rnd := rand.NewChaCha8([32]byte{7})
	data := make([]byte, 4<<20)
	_, _ = rnd.Read(data)
	im := it.Image{Compress: it.Gzip, Layers: [][]byte{it.Layer(it.File("big", string(data)))}}
	r.push("app:1", im)
	target, err := url.Parse("http://" + r.addr)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = nil
	var sent atomic.Int64
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.Contains(q.URL.Path, "/blobs/") {
			w = it.Throttle(&counted{w, &sent}, 300<<10)
		}
		proxy.ServeHTTP(w, q)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = front.Serve(l) }()
	t.Cleanup(func() { _ = front.Close() })
	d := newStore(t, registry.Config{})
	p, err := d.Pull(t.Context(), images.PullRequest{Ref: l.Addr().String() + "/app:1"})
	if err != nil {
		t.Fatal(err)
	}
	if got := content(t, d, p.Image.ID, "big"); got != string(data) {
		t.Error("other content")
	}
	if n := sent.Load(); n > 5<<20 {
		t.Errorf("%d bytes were sent for 4 MiB", n)
	}
}

type counted struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *counted) Flush() {
	if f, ok := c.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// A real registry as the mirror of one that does not exist.
func TestRealMirror(t *testing.T) {
	r := newReal(t, "")
	r.push("library/app:1", it.Sample("x"))
	d := newStore(t, registry.Config{Hosts: map[string]registry.Host{"docker.io": {Mirrors: []string{"http://" + r.addr}}}})
	p, err := d.Pull(t.Context(), images.PullRequest{Ref: "app:1"})
	if err != nil || !slices.Equal(p.Image.Names, []string{"docker.io/library/app:1"}) {
		t.Errorf("%+v, %v", p.Image, err)
	}
}

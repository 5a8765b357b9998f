package e2e

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"ledge/api/board"
	"ledge/images"
	"ledge/images/imagestest"
	"ledge/internal/testrun"
)

// farRegistry serves the rough program as an image, on loopback. It wants a name and password.
type farRegistry struct {
	*imagestest.Registry
	srv  *httptest.Server
	ref  string
	slow atomic.Bool
}

func newFarRegistry(t *testing.T) *farRegistry {
	t.Helper()
	r := &farRegistry{Registry: &imagestest.Registry{}}
	var h http.Handler
	r.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user, pass, _ := q.BasicAuth(); user != "me" || pass != "pw" {
			w.Header().Set("WWW-Authenticate", `Basic realm="far"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.slow.Load() && strings.Contains(q.URL.Path, "/blobs/") {
			time.Sleep(time.Second)
		}
		h.ServeHTTP(w, q)
	}))
	t.Cleanup(r.srv.Close)
	name := strings.TrimPrefix(r.srv.URL, "http://")
	h = r.Handler(name)
	r.ref = name + "/team/rough:1"
	prog := imagestest.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "testprog", Mode: 0o755}, Body: string(roughProgram(t))}
	r.Push(imagestest.Image{Names: []string{r.ref}, Config: v1.ImageConfig{Entrypoint: []string{"/testprog"}},
		Layers: [][]byte{imagestest.Layer(imagestest.Dir("tmp"), prog)}, Compress: imagestest.Gzip})
	return r
}

// An image comes from a registry that wants a password, by the node's credentials and by a pod's; pods run it, also
// when the registry has gone; it is exported, verified, mended and pruned.
func TestPullFromRegistry(t *testing.T) {
	testrun.OnHost(t)
	b := newBoard(t)
	reg := newFarRegistry(t)
	keys := filepath.Join(t.TempDir(), "keys.json")
	b.configure("registryCredentials: " + keys + "\n")
	b.serve()
	if out, err := b.try("images", "pull", reg.ref); err == nil || !strings.Contains(out, "no credential") {
		t.Fatalf("pulled without a password: %s", out)
	}
	// A pod's own credentials; the default policy of a tag is IfNotPresent.
	b.apply(fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: regcred, namespace: default}
type: kubernetes.io/dockerconfigjson
stringData:
  .dockerconfigjson: '{"auths":{%q:{"username":"me","password":"pw"}}}'
`, strings.Split(reg.ref, "/")[0]))
	reg.slow.Store(true)
	b.apply(pullPod("first", reg.ref, "IfNotPresent", `exit, "0"`, "  imagePullSecrets: [{name: regcred}]"))
	b.eventually("the pull shows while the pod waits", func() error {
		list := b.imageList()
		if len(list.Pulls) != 1 || list.Pulls[0].Ref != reg.ref || len(list.Pulls[0].Layers) != 1 || list.Pulls[0].Layers[0].Size == 0 {
			return fmt.Errorf("%+v", list.Pulls)
		}
		return nil
	})
	reg.slow.Store(false)
	b.eventually("the first pod has run", func() error { return contains(b.ledge("get", "pods"), "Completed") })
	for _, want := range []string{`Pulling image "` + reg.ref, `Successfully pulled image "` + reg.ref, "Image size: "} {
		b.eventually("an event tells of it", func() error { return contains(b.ledge("get", "events"), want) }) // they come after the status
	}
	b.must("delete", "pod", "first")
	b.removeImage(reg.ref)
	// The node's, read without a restart.
	must(t, os.WriteFile(keys, []byte(fmt.Sprintf(`{"auths":{%q:{"auth":"bWU6cHc="}}}`, reg.srv.URL)), 0o600))
	reg.slow.Store(true)
	out := b.must("images", "pull", "--pin", reg.ref)
	for _, want := range []string{reg.ref + ": ", " pulled (", "downloaded"} {
		if err := contains(out, want); err != nil {
			t.Error(err)
		}
	}
	if out := b.must("images", "pull", reg.ref); !strings.Contains(out, "is up to date") {
		t.Errorf("again: %s", out)
	}
	reg.srv.Close()
	b.apply(pullPod("offline", reg.ref, "Always", "run", ""))
	b.running("offline")
	if err := contains(b.ledge("images", "ls"), "default/offline"); err != nil {
		t.Error(err)
	}
	b.must("delete", "pod", "offline")
	b.mendAndMove(reg.ref)
}

// Images is what the board's own API says of images.
func (b *testBoard) imageList() (list board.Images) {
	b.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(b.runDir, "ledge.sock"))
		}}}
	resp, err := client.Get("http://ledge" + board.ImagesPath)
	must(b.t, err)
	defer resp.Body.Close()
	must(b.t, json.NewDecoder(resp.Body).Decode(&list))
	return list
}

// removeImage removes an image whose last pod has gone. The object of a pod that has come to its end goes at once, as on
// Kubernetes; the board may be clearing up behind it still, and the image is in use until then.
func (b *testBoard) removeImage(ref string) {
	b.t.Helper()
	b.eventually("image removed", func() error {
		out, err := b.try("images", "rm", ref)
		if err != nil && !strings.Contains(out, images.ErrInUse.Error()) {
			b.t.Fatalf("%v: %s", err, out)
		}
		return err
	})
}

// mendAndMove damages an image, mends it offline, and takes it elsewhere as an archive.
func (b *testBoard) mendAndMove(ref string) {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.data, "images/layers/*/fs/testprog"))
	if err != nil || len(files) != 1 {
		b.t.Fatalf("%q, %v", files, err)
	}
	must(b.t, os.Truncate(files[0], 100))
	if out, err := b.try("images", "verify"); err == nil || !strings.Contains(out, "1 damaged, 0 repaired") {
		b.t.Errorf("verify: %s", out)
	}
	if out := b.must("images", "verify", "--repair"); !strings.Contains(out, "1 damaged, 1 repaired") {
		b.t.Errorf("repair: %s", out)
	}
	archive := filepath.Join(b.t.TempDir(), "out.tar")
	f, err := os.Create(archive)
	must(b.t, err)
	export := exec.Command(ledgeBin(b.t), "--run-dir", b.runDir, "images", "export", ref)
	export.Stdout, export.Stderr = f, os.Stderr
	must(b.t, export.Run())
	must(b.t, f.Close())
	if out := b.must("images", "prune"); !strings.Contains(out, "0 unused images removed") {
		b.t.Errorf("a pinned image was pruned: %s", out)
	}
	b.removeImage(ref)
	in, err := os.Open(archive)
	must(b.t, err)
	defer in.Close()
	load := exec.Command(ledgeBin(b.t), "--run-dir", b.runDir, "images", "import", "-")
	load.Stdin = in
	if out, err := load.CombinedOutput(); err != nil || !strings.Contains(string(out), ref) {
		b.t.Errorf("import says %s, %v", out, err)
	}
	if out, err := b.try("images", "export", images.SelfName); err == nil || !strings.Contains(out, "built in") {
		b.t.Errorf("the built-in image: %s", out)
	}
}

func pullPod(name, image, policy, args, extra string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: %s
    imagePullPolicy: %s
    args: [%s]
%s
`, name, image, policy, args, extra)
}

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/network/netns"
)

const configObjects = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: %s, size: "7"}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: %s}
---
`

const configPod = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: a}, annotations: {note: hello}}
spec:
  terminationGracePeriodSeconds: 2
  hostname: there
  subdomain: sub
  hostAliases: [{ip: 192.0.2.9, hostnames: [other]}]
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53], searches: [x.example]}
  securityContext: {fsGroup: 4321, runAsUser: 1234}
  volumes:
  - {name: settings, configMap: {name: settings, items: [{key: colour, path: d/colour, mode: 0440}]}}
  - {name: hidden, secret: {secretName: hidden, defaultMode: 0400}}
  - name: all
    projected:
      sources:
      - configMap: {name: settings}
      - secret: {name: none, optional: true}
      - downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}
  - {name: scratch, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
  containers:
  - name: web
    image: ledge.local/self
    args: ["httpd", "-p", "8080"]
    envFrom: [{prefix: S_, configMapRef: {name: settings}}]
    env:
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: hidden, key: password}}}
    - {name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
    - {name: SAYS, value: "$(S_size) $(PASSWORD)"}
    resources: {limits: {cpu: 250m}}
    volumeMounts:
    - {name: settings, mountPath: /settings}
    - {name: hidden, mountPath: /hidden}
    - {name: all, mountPath: /all}
    - {name: scratch, mountPath: /scratch}
    - {name: memory, mountPath: /memory}
`

// inside reads a file as the process of a container sees it.
func inside(pid int, path string) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/root%s", pid, path))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// insideIs waits for a file in a container to say something.
func (b *testBoard) insideIs(pid int, path, want string) {
	b.t.Helper()
	b.eventually(path, func() error {
		if got := inside(pid, path); got != want {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}

// TestConfiguredPod: a pod with everything that ConfigMaps, Secrets and the downward API can give it, through updates
// and a kill of the brain, until nothing of it is left.
func TestConfiguredPod(t *testing.T) {
	b := newBoard(t)
	b.serve()
	b.apply(configPod)
	b.eventually("it waits for its configuration", func() error {
		return contains(b.ledge("get", "events"), `configmap "settings" not found`)
	})
	b.apply(fmt.Sprintf(configObjects, "blue", "first-password"))
	pid := b.running("web")

	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	must(t, err)
	all := strings.ReplaceAll(string(environ), "\x00", "\n")
	for _, want := range []string{"S_colour=blue\n", "S_size=7\n", "PASSWORD=first-password\n", "CPUS=250\n", "SAYS=7 first-password\n",
		"HOSTNAME=there\n"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %q", want, all)
		}
	}
	for path, want := range map[string]string{"/settings/d/colour": "blue", "/hidden/password": "first-password", "/all/size": "7",
		"/all/labels":   `app="a"`,
		"/etc/hostname": "there\n", "/etc/resolv.conf": "search x.example\nnameserver 192.0.2.53\n"} {
		if got := inside(pid, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	hosts := inside(pid, "/etc/hosts")
	if !strings.HasPrefix(hosts, "# Kubernetes-managed hosts file.\n") ||
		!strings.Contains(hosts, "\tthere.sub.default.svc.cluster.local\tthere\n") ||
		!strings.HasSuffix(hosts, "\n# Entries added by HostAliases.\n192.0.2.9\tother\n") {
		t.Errorf("hosts %q", hosts)
	}
	for path, want := range map[string]string{"/settings/d/colour": "-r--r----- 4321", "/hidden/password": "-r--r----- 4321",
		"/scratch": "dgrwxrwxrwx 4321", "/memory": "dgtrwxrwxrwx 4321"} {
		st, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, path))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%v %d", st.Mode(), st.Sys().(*syscall.Stat_t).Gid); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/hidden/x", pid), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a Secret's volume can be written to: %v", err)
	}

	b.apply(fmt.Sprintf(configObjects, "green", "second-password"))
	b.insideIs(pid, "/settings/d/colour", "green")
	b.insideIs(pid, "/all/colour", "green")
	b.insideIs(pid, "/hidden/password", "second-password")
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	b.apply(fmt.Sprintf(configObjects, "red", "third-password"))
	b.insideIs(pid, "/settings/d/colour", "red")
	b.insideIs(pid, "/all/colour", "red")
	b.insideIs(pid, "/hidden/password", "third-password")

	b.must("delete", "pod", "web")
	b.noVolumes()
	b.onDisk("first-password", "second-password", "third-password")
}

// noVolumes checks that no pod has left a volume, mounted or not.
func (b *testBoard) noVolumes() {
	b.t.Helper()
	for _, dir := range []string{b.data + "/volumes", b.runDir + "/volumes", b.runDir + "/config", b.runDir + "/subpaths", b.runDir + "/lasting"} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			b.t.Errorf("left in %s: %v %v", dir, entries, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(b.t, err)
	for line := range strings.Lines(string(mounts)) {
		for _, dir := range []string{b.data + "/volumes", b.runDir + "/volumes", b.runDir + "/config", b.runDir + "/subpaths", b.runDir + "/lasting"} {
			if strings.Contains(line, " "+dir+"/") {
				b.t.Errorf("still mounted: %s", line)
			}
		}
	}
}

// onDisk checks that no file of a pod on the card holds a secret. The store does, and is closed to all but root.
func (b *testBoard) onDisk(words ...string) {
	b.t.Helper()
	err := filepath.WalkDir(b.data, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/store/") || strings.Contains(path, "/images/") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, w := range words {
			if strings.Contains(string(data), w) {
				b.t.Errorf("%s holds a secret", path)
			}
		}
		return nil
	})
	must(b.t, err)
}

const mountsPod = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: inner}
stringData: {colour: red}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: claimed}
spec: {capacity: {storage: 1Mi}, accessModes: [ReadWriteOnce], hostPath: {path: %[1]s}, claimRef: {namespace: default, name: claimed}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claimed}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: claimed, resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: outwards}
spec: {capacity: {storage: 1Mi}, accessModes: [ReadWriteOnce], hostPath: {path: %[1]s}, claimRef: {namespace: default, name: outwards}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: outwards}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: outwards, resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: mounts}
spec:
  terminationGracePeriodSeconds: 2
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: inner, secret: {secretName: inner}}
  - {name: scratch, emptyDir: {sizeLimit: 50Mi}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: board, hostPath: {path: %[1]s, type: Directory}}
  - {name: claimed, persistentVolumeClaim: {claimName: claimed}}
  - {name: outwards, persistentVolumeClaim: {claimName: outwards}}
  containers:
  - name: web
    image: ledge.local/self
    args: ["httpd", "-p", "8080"]
    securityContext: {privileged: true}
    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts:
    - {name: settings, mountPath: /etc/colour, subPath: colour}
    - {name: inner, mountPath: /etc/a/b}
    - {name: settings, mountPath: /etc/a}
    - {name: scratch, mountPath: /own, subPathExpr: "logs/$(POD)"}
    - {name: scratch, mountPath: /scratch}
    - {name: memory, mountPath: /memory}
    - {name: board, mountPath: /both, mountPropagation: Bidirectional}
    - {name: board, mountPath: /in, mountPropagation: HostToContainer}
    - {name: board, mountPath: /alone}
    - {name: board, mountPath: /top, readOnly: true}
    - {name: board, mountPath: /below, readOnly: true, recursiveReadOnly: Enabled}
    - {name: claimed, mountPath: /claimed, mountPropagation: HostToContainer}
    - {name: outwards, mountPath: /outwards, mountPropagation: Bidirectional}
`

// inMounts runs f in the mount namespace of a process, on a thread that is then thrown away.
func inMounts(pid int, f func() error) error {
	return netns.Apart(func() error {
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return err
		}
		return f()
	})
}

// TestVolumeMounts: parts of volumes, a volume inside another, limits, read-only trees, and mounts that pass between the board and a
// container: each way as far as the pod says, and no trace when it has gone.
func TestVolumeMounts(t *testing.T) {
	b := newBoard(t)
	shared := filepath.Join(t.TempDir(), "shared")
	must(t, os.Mkdir(shared, 0o755))
	must(t, unix.Mount("tmpfs", shared, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(shared, unix.MNT_DETACH)) })
	must(t, unix.Mount("", shared, "", unix.MS_SHARED, ""))
	for _, d := range []string{"before", "after", "theirs", "claims", "own"} {
		must(t, os.Mkdir(filepath.Join(shared, d), 0o755))
	}
	tmpfs := func(dir string) {
		t.Helper()
		must(t, unix.Mount("tmpfs", filepath.Join(shared, dir), "tmpfs", 0, ""))
		must(t, os.WriteFile(filepath.Join(shared, dir, "f"), []byte(dir), 0o600))
	}
	tmpfs("before")
	b.serve()
	b.apply(fmt.Sprintf(mountsPod, shared))
	pid := b.running("mounts")
	tmpfs("after")

	must(t, os.WriteFile(filepath.Join("/proc", fmt.Sprint(pid), "root/own/x"), []byte("own"), 0o600))
	for path, want := range map[string]string{"/etc/colour": "blue", "/etc/a/colour": "blue", "/etc/a/b/colour": "red",
		"/scratch/logs/mounts/x": "own", "/both/before/f": "before", "/in/before/f": "before",
		"/alone/before/f": "before", "/top/before/f": "before", "/below/before/f": "before", "/both/after/f": "after", "/in/after/f": "after",
		"/claimed/before/f": "before", "/claimed/after/f": "after", "/outwards/before/f": "before", "/outwards/after/f": "after"} {
		if got := inside(pid, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := inside(pid, "/alone/after/f"); !strings.Contains(got, "no such file") {
		t.Errorf("a mount of the board came where it was not asked for: %q", got)
	}
	for path, want := range map[string]error{"/top/x": syscall.EROFS, "/top/before/x": nil, "/below/x": syscall.EROFS,
		"/below/before/x": syscall.EROFS,
		"/etc/colour":     syscall.EROFS, "/alone/x": nil} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/root%s", pid, path), nil, 0o600); !errors.Is(err, want) {
			t.Errorf("writing %s: %v", path, err)
		}
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/memory/big", pid), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("more than a volume in memory holds: %v", err)
	}
	for from, to := range map[string]string{"/both/theirs": "theirs", "/outwards/claims": "claims"} {
		must(t, inMounts(pid, func() error { return unix.Mount("tmpfs", from, "tmpfs", 0, "") }))
		must(t, inMounts(pid, func() error { return os.WriteFile(from+"/f", []byte(to), 0o600) }))
		if data, err := os.ReadFile(filepath.Join(shared, to, "f")); err != nil || string(data) != to {
			t.Errorf("a mount of the container did not come out: %q %v", data, err)
		}
	}
	must(t, inMounts(pid, func() error { return unix.Mount("tmpfs", "/claimed/own", "tmpfs", 0, "") }))
	must(t, os.Remove(filepath.Join(shared, "own"))) // nothing is mounted there on the board

	_ = b.signal(syscall.SIGKILL)
	b.serve()
	b.must("delete", "pod", "mounts")
	b.noVolumes()
	for _, d := range []string{"theirs", "claims", "after", "before"} { // all are there still
		must(t, unix.Unmount(filepath.Join(shared, d), 0))
	}
}

// TestServiceAccounts: a pod's token is its own: it says who the pod is to the API, opens nothing else, and is worth
// nothing once the pod has gone.
func TestServiceAccounts(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	b.serve()
	b.apply(strings.Replace(webPod, "spec:\n", "spec:\n  securityContext: {runAsUser: 1234, fsGroup: 4321}\n", 1))
	pid := b.running("web")
	const dir = "/var/run/secrets/kubernetes.io/serviceaccount/"
	token, ca := inside(pid, dir+"token"), inside(pid, dir+"ca.crt")
	if got := inside(pid, dir+"namespace"); got != "default" || strings.Count(token, ".") != 2 {
		t.Fatalf("namespace %q, token %q", got, token)
	}
	if st, err := os.Stat(fmt.Sprintf("/proc/%d/root%stoken", pid, dir)); err != nil || st.Mode() != 0o640 ||
		st.Sys().(*syscall.Stat_t).Uid != 1234 {
		t.Errorf("the token is %v %v", st, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(ca)) {
		t.Fatalf("ca.crt %q", ca)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	ask := func(method, path, token, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, fmt.Sprintf("https://127.0.0.1:%d%s", b.port, path), strings.NewReader(body))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		must(t, err)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(data)
	}
	const review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	code, who := ask("POST", review, token, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)
	if code != 201 || !strings.Contains(who, `"username":"system:serviceaccount:default:default"`) ||
		!strings.Contains(who, `"authentication.kubernetes.io/pod-name":["web"]`) {
		t.Errorf("who am I: %d %s", code, who)
	}
	for _, c := range []struct {
		method, path, token string
		want                int
	}{
		{"GET", "/version", token, 200}, {"GET", "/api/v1", token, 200}, {"GET", "/version", "", 200}, {"GET", "/api", "", 401},
		{"GET", "/version", "x.y.z", 401},
		{"GET", "/version", token[:len(token)-4] + "AAAA", 401},
		{"GET", "/api/v1/namespaces/default/pods", token, 403}, {"GET", "/api/v1/namespaces/default/pods/web", token, 403},
		{"GET", "/api/v1/namespaces/default/secrets", token, 403}, {"GET", "/api/v1/namespaces/default/pods/web/log", token, 403},
		{"POST", "/api/v1/namespaces/default/serviceaccounts/default/token", token, 403},
		{"DELETE", "/api/v1/namespaces/default/pods/web", token, 403}, {"GET", "/metrics/resource", token, 403},
		{"GET", "/ledge/v1/images", token, 403},
	} {
		if code, body := ask(c.method, c.path, c.token, ""); code != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, code, body, c.want)
		}
	}
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	if code, body := ask("GET", "/version", token, ""); code != 200 {
		t.Errorf("after a restart of the brain: %d %s", code, body)
	}
	b.must("delete", "pod", "web")
	if code, body := ask("GET", "/version", token, ""); code != 401 {
		t.Errorf("after the end of its pod: %d %s", code, body)
	}
	b.noVolumes()
	b.onDisk(token)
}

const imagePod = `apiVersion: v1
kind: Pod
metadata: {name: image}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: rough, image: {reference: ` + roughImage + `, pullPolicy: Never}}]
  containers:
  - name: web
    image: ledge.local/self
    args: ["httpd", "-p", "8080"]
    volumeMounts: [{name: rough, mountPath: /rough}, {name: rough, mountPath: /one, subPath: testprog}]
`

// TestImageVolumes: the files of an image in another's container, to be read and nothing else.
func TestImageVolumes(t *testing.T) {
	testrun.OnHost(t)
	b := newBoard(t)
	b.serve()
	b.importRough()
	b.apply(imagePod)
	pid := b.running("image")
	whole, part := inside(pid, "/rough/testprog"), inside(pid, "/one")
	if len(whole) < 1000 || whole != part {
		t.Errorf("%d and %d bytes", len(whole), len(part))
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/rough/x", pid), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("writing: %v", err)
	}
	if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", pid)); err != nil ||
		!strings.Contains(string(data), " /rough overlay ro,nosuid,nodev,noexec,") {
		t.Errorf("mounted otherwise: %v\n%s", err, data)
	}
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	if got := inside(pid, "/rough/testprog"); got != whole {
		t.Error("it is not there after a restart of the brain")
	}
	b.must("delete", "pod", "image")
	b.noVolumes()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), b.name+"/images/rootfs/") {
		t.Errorf("still mounted:\n%s", mounts)
	}
}

const churnPod = `---
apiVersion: v1
kind: Pod
metadata: {name: churn-%[1]d}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: hidden, secret: {secretName: hidden}}
  - {name: scratch, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: self, image: {reference: ledge.local/self}}
  containers:
  - name: web
    image: ledge.local/self
    args: ["pause"]
    volumeMounts:
    - {name: settings, mountPath: /settings}
    - {name: hidden, mountPath: /password, subPath: password}
    - {name: scratch, mountPath: /scratch, subPath: a/b}
    - {name: memory, mountPath: /memory, subPathExpr: c}
    - {name: self, mountPath: /self}
`

// TestVolumesThroughKills: whenever the brain is killed, while pods come or while they go, nothing of theirs stays
// mounted once they have gone.
func TestVolumesThroughKills(t *testing.T) {
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	b.serve()
	const pods = 5
	all, names := fmt.Sprintf(configObjects, "blue", "a-password"), []string{"delete", "pod"}
	for i := range pods {
		all += fmt.Sprintf(churnPod, i)
		names = append(names, fmt.Sprint("churn-", i))
	}
	for round := range 4 {
		b.apply(all)
		time.Sleep(time.Duration(round) * 60 * time.Millisecond) // each round finds them further on
		_ = b.signal(syscall.SIGKILL)
		b.serve()
		b.eventually("all pods run", func() error {
			if n := strings.Count(b.ledge("get", "pods"), " Running "); n != pods {
				return fmt.Errorf("%d of %d", n, pods)
			}
			return nil
		})
		deleted := make(chan string, 1)
		go func() {
			out, err := b.try(names...)
			deleted <- fmt.Sprint(out, err)
		}()
		time.Sleep(time.Duration(900+round*80) * time.Millisecond) // their grace ends at one second
		_ = b.signal(syscall.SIGKILL)
		<-deleted
		b.serve()
		if out, err := b.try(names...); err != nil && !strings.Contains(out, "not found") {
			t.Errorf("delete: %v %s", err, out)
		}
		b.eventually("all pods have gone", func() error { return contains(b.ledge("get", "pods"), "No resources found") })
		b.noVolumes()
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if n := strings.Count(string(mounts), b.name+"/images/rootfs/"); n > 0 {
		t.Errorf("%d root file systems are still mounted", n)
	}
}

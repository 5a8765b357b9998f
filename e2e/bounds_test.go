package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/cli"
)

const boundPod = `apiVersion: v1
kind: Pod
metadata: {name: bound}
spec:
  shareProcessNamespace: true
  securityContext:
    sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "80"}]
    seccompProfile: {type: Localhost, localhostProfile: mine.json}
  containers:
  - name: web
    image: ledge.local/self
    args: ["httpd", "-p", "8080"]
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {memory: 64Mi}}
  - name: beside
    image: ledge.local/self
    args: ["pause"]
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
`

// memoryLimit reads what the kernel bounds a cgroup of this board to.
func (b *testBoard) memoryLimit(cgroup string) string {
	return b.memoryFile(cgroup, "memory.limit_in_bytes", "memory.max")
}

// usage is what a cgroup of this board has now, the cache of files with it.
func (b *testBoard) usage(cgroup string) int64 {
	n, _ := strconv.ParseInt(b.memoryFile(cgroup, "memory.usage_in_bytes", "memory.current"), 10, 64)
	return n
}

// memoryFile is a file of cgroup v1 or v2.
func (b *testBoard) memoryFile(cgroup, v1, v2 string) string {
	for _, file := range []string{filepath.Join("/sys/fs/cgroup/memory", b.name, cgroup, v1),
		filepath.Join("/sys/fs/cgroup", b.name, cgroup, v2)} {
		if v, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(v))
		}
	}
	return "no such cgroup"
}

// TestBounds: what a pod is bound by stands in the kernel, can be changed while it runs, and holds over a restart of the
// brain; what the board cannot give is refused in words.
func TestBounds(t *testing.T) {
	b := newBoard(t)
	b.configure("podPidsLimit: 300\nsystemReserved: {memory: 100Mi}\n")
	must(t, os.MkdirAll(filepath.Join(b.data, "seccomp"), 0o700))
	must(t, os.WriteFile(filepath.Join(b.data, "seccomp", "mine.json"), []byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[
		{"names":["chroot"],"action":"SCMP_ACT_ERRNO"}]}`), 0o600))
	b.serve()
	b.apply(boundPod)
	pid := b.running("bound")
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	must(t, err)
	if own, _ := os.Readlink("/proc/self/ns/pid"); ns == own {
		t.Error("the pod sees the host's processes")
	}
	pod := b.pod("bound")
	group := "kubepods/burstable/pod" + string(pod.UID)
	container := filepath.Join(group, string(pod.UID)+".web.0")
	limit := func(cgroup, want string) func() error {
		return func() error {
			if got := b.memoryLimit(cgroup); got != want {
				return fmt.Errorf("%s is bound to %s, want %s", cgroup, got, want)
			}
			return nil
		}
	}
	b.eventually("the container is bound", limit(container, "67108864"))
	b.eventually("the pod is bound", limit(group, "134217728"))
	if all := b.memoryLimit("kubepods"); len(all) > 15 || all == "max" || all == "no such cgroup" {
		t.Errorf("all pods together are bound to %s", all)
	}
	resize := func(spec string) { // as kubectl patch --subresource resize
		t.Helper()
		c, err := (&cli.Command{RunDir: b.runDir}).Client()
		must(t, err)
		_, err = c.Patch(t.Context(), api.Pods, "default", "bound",
			api.Patch{Type: types.StrategicMergePatchType, Data: []byte(`{"spec":` + spec + `}`)},
			api.WriteOptions{Subresource: "resize"})
		must(t, err)
	}
	resize(`{"containers":[{"name":"web","resources":{"requests":{"cpu":"100m"},"limits":{"memory":"96Mi"}}}]}`)
	b.eventually("the container has more", limit(container, "100663296"))
	b.eventually("the pod has more", limit(group, "167772160"))
	b.eventually("the status says so", func() error {
		st := b.pod("bound").Status.ContainerStatuses
		for _, c := range st {
			if c.Name == "web" && c.Resources != nil && c.Resources.Limits.Memory().String() == "96Mi" &&
				c.AllocatedResources.Cpu().String() == "100m" && c.RestartCount == 0 {
				return nil
			}
		}
		return fmt.Errorf("%+v", st)
	})
	resize(`{"resources":{"limits":{"memory":"192Mi"}}}`)
	b.eventually("the pod has more as a whole", limit(group, "201326592"))
	b.eventually("the container has what it had", limit(container, "100663296"))
	if b.running("bound") != pid {
		t.Error("the container was restarted")
	}
	b.apply(strings.NewReplacer("name: bound", "name: unsafe", "net.ipv4.ip_unprivileged_port_start", "net.core.somaxconn").Replace(boundPod))
	b.apply(strings.NewReplacer("name: bound", "name: large", "cpu: 50m",
		"cpu: 500").Replace(strings.Replace(boundPod, "spec:\n", "spec:\n  nodeName: "+b.name+"\n", 1)))
	for name, want := range map[string]string{"unsafe": "SysctlForbidden", "large": "OutOfcpu"} {
		b.eventually(name+" is refused", func() error {
			if s := b.pod(name).Status; s.Reason != want || !strings.HasPrefix(s.Message, "Pod was rejected: ") {
				return fmt.Errorf("%s %q", s.Reason, s.Message)
			}
			return nil
		})
	}
}

// mapsMemory: tmpfs can be id-mapped, from Linux 6.3 on.
func mapsMemory(t *testing.T) bool {
	t.Helper()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	must(t, err)
	var major, minor int
	if _, err := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil {
		t.Fatalf("%q: %v", release, err)
	}
	return major > 6 || major == 6 && minor >= 3
}

// TestUsersOfItsOwn: root in a pod with hostUsers: false is nobody on the board, and still root of its files, its volumes
// and its network. A file system that cannot be mapped is refused: some never can, memory not before Linux 6.3, and every
// pod has some for its token.
func TestUsersOfItsOwn(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	b.serve()
	b.importRough()
	const own = "    volumeMounts: [{name: v, mountPath: /v}]\n  hostUsers: false\n"
	refused := func(name, of string) {
		t.Helper()
		b.eventually(name+" is refused", func() error {
			for _, c := range b.pod(name).Status.ContainerStatuses {
				if w := c.State.Waiting; w != nil && w.Reason == "RunContainerError" {
					return contains(w.Message, "failed to set MOUNT_ATTR_IDMAP on "+of)
				}
			}
			return fmt.Errorf("%+v", b.pod(name).Status)
		})
	}
	unmapped := t.TempDir()
	must(t, unix.Mount("ramfs", unmapped, "ramfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(unmapped, unix.MNT_DETACH)) })
	token := "  automountServiceAccountToken: false\n"
	b.apply(roughPod("never", `"write", "/v/x"`, own+token+"  volumes: [{name: v, hostPath: {path: "+unmapped+"}}]\n"))
	refused("never", unmapped)
	b.must("delete", "pod", "never")
	if !mapsMemory(t) {
		b.apply(roughPod("mapped", `"write", "/v/x"`, own+"  volumes: [{name: v, emptyDir: {}}]\n"))
		refused("mapped", b.runDir)
		return
	}
	b.apply(roughPod("mapped", `"write", "/x", "/v/x", "/etc/deep", "/dev/termination-log"`,
		own+"  volumes: [{name: v, emptyDir: {}}]\n"))
	b.eventually("it has ended", func() error {
		if p := b.pod("mapped"); p.Status.Phase != "Succeeded" {
			return fmt.Errorf("%s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		return nil
	})
	out := b.must("logs", "mapped")
	for _, path := range []string{"/x", "/v/x", "/dev/termination-log"} {
		if !strings.Contains(out, path+" ok\n") {
			t.Errorf("root of the pod cannot write to %s:\n%s", path, out)
		}
	}
	b.apply(roughPod("stays", `"ignore"`, "  hostUsers: false\n  shareProcessNamespace: true\n"))
	b.running("stays")
	for _, pid := range b.processes("/kubepods/") {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(status), "\nUid:\t")
		var uid int
		if _, err := fmt.Sscan(after, &uid); err != nil || uid < 0x70000000 {
			t.Errorf("a process of the pod is user %d on the board: %v", uid, err)
		}
	}
	b.must("delete", "pod", "stays")
	if _, err := os.Stat("/run/ledge-roots"); !os.IsNotExist(err) {
		entries, _ := os.ReadDir("/run/ledge-roots")
		for _, e := range entries {
			if strings.Contains(e.Name(), string(b.pod("mapped").UID)) {
				t.Errorf("still shown: %s", e.Name())
			}
		}
	}
}

// Package libct turns runtime.Pod and runtime.Container into libcontainer configurations and processes. It is the
// only package of ledge that imports libcontainer, whose API promises nothing from release to release.
//
// It keeps nothing of containers in memory: every call is given what it needs, so a keeper that has just been restarted goes on
// with the containers of its predecessor. It does not wait for processes, read logs or remember exits; that is
// runtime/keeper, which declares the interface that Runner satisfies.
//
// What a pod shares is made without a pause process: the network, IPC and UTS namespaces are created by a thread
// that then dies, and stay alive because they are bind-mounted below the pod's directory:
//
//	<pod dir>/ns/net, ns/ipc, ns/uts   pinned namespaces
//	<pod dir>/shm                      tmpfs, /dev/shm of every container of the pod
//	<container dir>/libct/<id>/        libcontainer's own state
//
// libcontainer seals /proc/self/exe before it lets a container's init run from it (CVE-2019-5736): by a read-only
// overlay over the directory of the binary where the kernel can (5.2, overlayfs), else by a copy of the whole
// binary in memory for every start. The binary should therefore stand alone in a directory on a file system that
// overlayfs accepts as a lower layer.
package libct

import (
	"errors"
	"fmt"
	"os"
	"path"
	goruntime "runtime"
	"sync"

	"github.com/opencontainers/cgroups"
	// Linked for its effect: without it the cgroup managers cannot set device rules.
	_ "github.com/opencontainers/cgroups/devices"
	"github.com/opencontainers/runc/libcontainer"
	// Linked for its effect: the C constructor that enters namespaces before Go starts.
	_ "github.com/opencontainers/runc/libcontainer/nsenter"
	"github.com/opencontainers/runc/libcontainer/seccomp"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// Version of libcontainer, held to go.mod by a test.
const Version = "v1.5.2"

// The main thread is kept out of Go's hands from the start: init runs on it, and a locked goroutine keeps it. Here
// and in libcontainer, threads enter other namespaces and then end. The main thread cannot end: it would stay in the
// other namespace, and /proc/self (mounts, namespaces, cgroups) would show that one.
//
// When libcontainer started this process as the init process of a container it becomes that here, and never returns. What
// comes before main is paid for at every container start: from here most of Kubernetes' packages have not been initialized.
func init() {
	goruntime.LockOSThread()
	if len(os.Args) > 1 && os.Args[1] == "init" && os.Getenv("_LIBCONTAINER_INITPIPE") != "" {
		useFilter(lentFile)
		_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0) // what ledge is refused (hugepages.go), containers get
		libcontainer.Init()
	}
}

// Config of a Runner.
type Config struct {
	// CgroupRoot is where kubepods stands, from the top of the hierarchy, like "/ledge". Empty: on cgroup v2 the
	// cgroup that systemd delegated to this process, else "/".
	CgroupRoot string
	// Warn is told once of each thing that must be done without on this machine. Nil: nobody is told.
	Warn func(msg string)
}

// Runner makes and unmakes containers. It is safe for concurrent use.
type Runner struct {
	cfg     Config
	tree    *tree
	host    hostFacts
	filters filters

	mu     sync.Mutex
	warned map[string]bool
}

// New looks at the machine. It changes nothing; Enter does.
func New(cfg Config) (*Runner, error) {
	r := &Runner{cfg: cfg, tree: &tree{unified: cgroups.IsCgroup2UnifiedMode()}, warned: map[string]bool{}}
	root, err := r.tree.findRoot(cfg.CgroupRoot)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup root: %w", err)
	}
	r.tree.root = root
	if r.host, err = readHostFacts(); err != nil {
		return nil, fmt.Errorf("look at this machine: %w", err)
	}
	return r, nil
}

// Info describes the library and this machine.
func (r *Runner) info() runtime.Info {
	v := 1
	if r.tree.unified {
		v = 2
	}
	return runtime.Info{Name: "libcontainer", Version: Version, CgroupVersion: v, CgroupRoot: r.tree.root,
		Seccomp: seccomp.Enabled && r.host.seccomp, AppArmor: r.host.apparmor, SELinux: r.host.selinux}
}

// warn tells of a degradation, once.
func (r *Runner) warn(msg string) {
	r.mu.Lock()
	seen := r.warned[msg]
	r.warned[msg] = true
	r.mu.Unlock()
	if !seen && r.cfg.Warn != nil {
		r.cfg.Warn(msg)
	}
}

// checkCgroup refuses a cgroup path that leaves the root.
func checkCgroup(p string) error {
	if p == "" || p == "." || path.IsAbs(p) || path.Clean(p) != p || p == ".." || len(p) > 2 && p[:3] == "../" {
		return fmt.Errorf("cgroup %q: want a clean path below the cgroup root", p)
	}
	return nil
}

var errNoSeccomp = errors.New("this binary was built without seccomp, or the kernel has none; " +
	"a container can only run here with seccomp unconfined")

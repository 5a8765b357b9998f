package libct

/*
extern char __start_podinit[], __stop_podinit[];
static char *start(void) { return __start_podinit; }
static int size(void) { return __stop_podinit - __start_podinit; }
*/
import "C"

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// A PID namespace lives as long as its first process. Containers of a pod that shares its processes come and go, so such a pod gets a
// first process of its own. That process only waits, and the kernel reaps what is left to it. It is a few hundred bytes of code
// (podinit.c), run as a container with nothing in it: no capabilities, no user's rights, and above all a root of its own, since everybody
// in the pod may look at /proc/1/root.
const initID = "init"

// initBase is where the program is loaded; any address that is free in an empty process.
const initBase = 0x400000

// initProgram is an executable file of the code in podinit.c: one segment, which holds the headers too.
func initProgram() ([]byte, error) {
	code := C.GoBytes(unsafe.Pointer(C.start()), C.size())
	if len(code) == 0 {
		return nil, errors.New("ledge bug: the pod's init was not linked")
	}
	type arch struct {
		class   byte
		machine uint16
		flags   uint32
	}
	a, ok := map[string]arch{"amd64": {2, 62, 0}, "arm64": {2, 183, 0}, "arm": {1, 40, 0x05000000}}[goruntime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no pod's init for %s", goruntime.GOARCH)
	}
	var out bytes.Buffer
	put := func(fields ...any) {
		for _, f := range fields {
			_ = binary.Write(&out, binary.LittleEndian, f)
		}
	}
	out.Write([]byte{0x7f, 'E', 'L', 'F', a.class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	put(uint16(2), a.machine, uint32(1)) // executable, version 1
	if a.class == 2 {
		const head = 64 + 56
		put(uint64(initBase+head), uint64(64), uint64(0), a.flags, uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0))
		n := uint64(head + len(code))
		put(uint32(1), uint32(5), uint64(0), uint64(initBase), uint64(initBase), n, n, uint64(0x1000)) // load, readable, executable
	} else {
		const head = 52 + 32
		put(uint32(initBase+head), uint32(52), uint32(0), a.flags, uint16(52), uint16(32), uint16(1), uint16(0), uint16(0), uint16(0))
		n := uint32(head + len(code))
		put(uint32(1), uint32(0), uint32(initBase), uint32(initBase), n, n, uint32(5), uint32(0x1000))
	}
	out.Write(code)
	return out.Bytes(), nil
}

// ensureInit sees to it that a pod that shares its processes has a first one, and its PID namespace a name. Should the
// first process have died, all others have too: the pod gets a new namespace.
func (r *Runner) ensureInit(ctx context.Context, podDir string, p runtime.Pod) (err error) {
	if !p.ShareProcess || r.initRuns(p) && isNamespace(filepath.Join(podDir, "ns", "pid")) {
		return nil
	}
	if err := r.dropInit(podDir, p); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the pod's first process: %w", err), r.dropInit(podDir, p))
		}
	}()
	dir := filepath.Join(podDir, initID)
	root := filepath.Join(dir, "rootfs")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	// The run directory is often mounted so that nothing can be executed.
	if err := unix.Mount("init", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, initOptions(p)); err != nil {
		return fmt.Errorf("mount its root: %w", err)
	}
	program, err := initProgram()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, initID), program, 0o555); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	own, adj := p, -998
	own.ShareProcess = false
	pid, err := r.Start(ctx, podDir, dir, own,
		runtime.Container{ID: initID, PodUID: p.UID, Rootfs: root, Args: []string{"/" + initID}, Cwd: "/",
			User: runtime.User{UID: 65535, GID: 65535}, ReadonlyRootfs: true, NoNewPrivs: true,
			Seccomp:   runtime.Seccomp{Unconfined: !r.info().Seccomp},
			Resources: runtime.Resources{CPUShares: 2, OOMScoreAdj: &adj}}, [3]*os.File{null, null, null}, nil)
	if err != nil {
		return err
	}
	pin := filepath.Join(podDir, "ns", "pid")
	if err := os.WriteFile(pin, nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/pid", pid), pin, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pin pid: %w", err)
	}
	return nil
}

// initOptions: whoever starts it has to make mount points in its root.
func initOptions(p runtime.Pod) string {
	options := "mode=755,size=64k"
	if p.Users != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", p.Users.Host, p.Users.Host)
	}
	return options
}

func (r *Runner) initRuns(p runtime.Pod) bool {
	m, err := r.tree.open(r.tree.containerCgroup(p, initID), nil)
	if err != nil {
		return false
	}
	pids, err := m.GetPids()
	return err == nil && len(pids) > 0
}

// dropInit ends a pod's first process, and with it every process of the pod. It is not an error if there is none.
func (r *Runner) dropInit(podDir string, p runtime.Pod) error {
	var pids []int
	if m, err := r.tree.open(r.tree.containerCgroup(p, initID), nil); err == nil {
		pids, _ = m.GetPids()
	}
	err := r.Unmake(filepath.Join(podDir, initID), p, initID)
	for _, pid := range pids { // a child of this process, unless that has been restarted since
		for range 50 {
			got, werr := unix.Wait4(pid, nil, unix.WNOHANG, nil)
			if got == pid || werr != nil && !errors.Is(werr, unix.EINTR) {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	return errors.Join(err, unmountAll(filepath.Join(podDir, "ns", "pid")), unmountAll(filepath.Join(podDir, initID, "rootfs")),
		os.RemoveAll(filepath.Join(podDir, initID)))
}

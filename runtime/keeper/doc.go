// Package keeper is the process that owns every container of a board, and the Engine that talks to it. It goes on
// when the brain (ledge serve, ledge agent) is restarted, upgraded or killed, and picks its containers up again
// when it is restarted itself. There is one keeper for all pods: no process per pod.
//
//	brain                                keeper
//	Client (runtime.Engine) --socket--> server -> Engine -> Runner (runtime/libct)
//	Client.Run: holds parked files <-------+         |-> pidfd of each first process: its end
//	                                                 |-> FIFO of stdout, of stderr: the log
//	                                                 |-> records on tmpfs, exit.json before anybody is told
//
// The run directory (tmpfs) holds everything known about what runs, and nothing survives a reboot:
//
//	keeper.sock, keeper.lock, boot_id
//	pods/<uid>/pod.json, ns/, shm/           ns and shm are runtime/libct's
//	containers/<id>/container.json           written before anything is made, and again with the PID
//	containers/<id>/exit.json                written before the exit is reported
//	containers/<id>/stdin, stdout, stderr    named FIFOs, so that a restarted keeper can open them again
//	containers/<id>/libct/                   runtime/libct's
//
// The package imports nothing of ledge but runtime, so that it can become a small program of its own.
package keeper

import (
	"context"
	"log/slog"
	"net"
	"os"

	"ledge/runtime"
)

// Runner is what the keeper needs from a container library; runtime/libct is one. It keeps no state in memory and
// does not wait for processes.
type Runner interface {
	// Enter prepares the calling process (its cgroup) and describes the library.
	Enter() (runtime.Info, error)
	// MakePod makes namespaces, pinned below podDir, and the pod's cgroup; idempotent; nothing is left on error.
	// When ctx ends first it gives up.
	MakePod(ctx context.Context, podDir string, p runtime.Pod) (netns string, err error)
	// UnmakePod undoes it, also half-done, and fails if anything is left.
	UnmakePod(podDir string, p runtime.Pod) error
	// Start runs a container and gives the PID of its first process, a child of this process that nobody has
	// waited for. With TTY the terminal's master is sent over console. When ctx ends before the container's program executes
	// it kills what it has started, and fails. Nothing is left on error.
	Start(ctx context.Context, podDir, dir string, p runtime.Pod, c runtime.Container, stdio [3]*os.File, console *os.File) (int, error)
	// Exec runs a command in a running container: c with the command's words. It gives the PID of a child like Start,
	// and puts all that the command starts into a group. ctx counts as in Start. Nothing is left on error.
	Exec(ctx context.Context, dir string, p runtime.Pod, c runtime.Container, size runtime.Size, stdio [3]*os.File, console *os.File,
		group string) (int, error)
	// EndExec kills what is left of a group, LeaveExec leaves it to the container, EndExecs kills all groups.
	EndExec(p runtime.Pod, id, group string) error
	LeaveExec(p runtime.Pod, id, group string) error
	EndExecs(p runtime.Pod, id string) error
	// Kill sends SIGKILL to every process of a container.
	Kill(p runtime.Pod, id string) error
	// Unmake removes what Start made, killing what still runs; idempotent; fails if anything is left.
	Unmake(dir string, p runtime.Pod, id string) error
	// Limit changes the cgroup of a container, or with an empty id that of the pod.
	Limit(p runtime.Pod, id string, r runtime.Resources) error
	// LimitGroup sets a cgroup above the pods' and makes it if it is not there.
	LimitGroup(cgroup string, r runtime.Resources) error
	// OOM is what the kernel has counted of the container's memory.
	OOM(p runtime.Pod, id string) (runtime.OOM, error)
	// Clear removes what Enter and the pods left above the pods' cgroups.
	Clear() error
}

// Config of a keeper.
type Config struct {
	RunDir string
	Runner Runner
	Log    *slog.Logger // nil: slog.Default

	// Park and Unpark hand a file to somebody who outlives this process (systemd's FD store: FDSTORE=1 with FDPOLL=0,
	// and FDSTOREREMOVE=1). Names have no colon and at most 255 characters. Nil: only the brain holds files.
	Park   func(name string, f *os.File) error
	Unpark func(name string) error
	// Parked are the files an earlier keeper parked, with the same names; they are closed.
	Parked []*os.File

	// Trust says why whoever connected may not be answered though it is root, as a container's is; nil: every root is.
	Trust func(net.Conn) error

	// Ready is called when the keeper answers.
	Ready func()

	// BootID names the kernel's life; empty: asks the kernel. For tests.
	BootID string
}

func (c Config) log() *slog.Logger {
	if c.Log != nil {
		return c.Log
	}
	return slog.Default()
}

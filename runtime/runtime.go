// Package runtime is the contract between the agent and whatever runs containers: plain types and one
// interface. It imports nothing of ledge. The real engine is libcontainer (runtime/libct) behind the keeper
// process (runtime/keeper); runtime/fake stands in for it in simulation. All of them pass runtime/runtimetest.
//
// Inside ledge the name runtime means this package; a file that also needs Go's imports it as goruntime.
package runtime

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"
)

// ErrNotFound says that a pod or container is not known to the engine.
var ErrNotFound = errors.New("not found")

// ErrUnavailable says that the engine cannot be reached just now (the keeper restarts); ask again.
var ErrUnavailable = errors.New("container engine unavailable")

// ErrNotRunning says that a container has ended, so that nothing can be run in it.
var ErrNotRunning = errors.New("container is not running")

// ErrNoStdin says that a container was started without a standard input.
var ErrNoStdin = errors.New("container has no stdin")

// ErrTooSlow says that an attacher did not take a container's output as fast as it came.
var ErrTooSlow = errors.New("the output comes faster than it is taken")

// Engine runs containers. Every method is idempotent: called twice it does what it did once. All of it
// survives a restart of the caller, and List after one tells what is there.
type Engine interface {
	// Info says what the engine is; an error means it is not healthy.
	Info(ctx context.Context) (Info, error)
	// EnsurePod makes what the containers of a pod share: pinned namespaces and the pod's cgroup.
	EnsurePod(ctx context.Context, pod Pod) (PodStatus, error)
	// RemovePod kills and removes every container of the pod, then its namespaces and cgroup.
	// An unknown pod is not an error.
	RemovePod(ctx context.Context, uid string) error
	// Start creates a container and starts it. A container of that ID that exists already is left alone and
	// its status returned, whatever its state. If it cannot be started nothing of it is left behind; so too when ctx ends, or
	// a minute has gone by, before the container's own program executes.
	Start(ctx context.Context, c Container) (Status, error)
	// Signal sends to the container's first process; SIGKILL goes to every process in the container.
	// A container that has exited is not an error; one that never was is ErrNotFound.
	Signal(ctx context.Context, id string, sig syscall.Signal) error
	// Remove forgets an exited container and its record; a running one is killed first. An unknown one is
	// not an error.
	Remove(ctx context.Context, id string) error
	// List is everything the engine holds.
	List(ctx context.Context) (State, error)
	// Watch calls fn for every container there is, and then at each change of state, until ctx ends or the
	// engine is lost (an error, as is the end of ctx). States that follow each other faster than fn returns may be
	// told as one, the last. fn must not block for long and must not call the engine.
	Watch(ctx context.Context, fn func(Status)) error
	Execer
}

// Execer runs commands in containers.
type Execer interface {
	// Exec runs a command in a running container and tells how it ended; how the command itself fails is no error. It
	// returns when the command has ended and its output has been written. The command has every bound of the
	// container: namespaces, cgroup, capabilities, system call filter. When ctx ends, the command and everything that
	// it started are killed, and the error is ctx's; so too when the engine or its caller dies. What a command leaves
	// in the background when it ends by itself runs on, as a part of the container; its later output is nobody's.
	// An unknown container is ErrNotFound, one that has ended ErrNotRunning.
	Exec(ctx context.Context, x Exec) (Exit, error)
}

// Attacher joins the streams of running containers. It is an interface of its own for the same reason as Limiter.
type Attacher interface {
	// Attach carries what a container reads and writes from now on, beside its log, which loses nothing by it. It ends
	// without an error when the container has ended and its output has been written, or when Stdin has ended and the
	// container's is to stay open (see Container.StdinOnce). When ctx ends the error is ctx's; the container goes on then,
	// as it does when the engine or the caller dies. Whoever takes output too slowly may hold the container up for a
	// moment, and then gets ErrTooSlow. An unknown container is ErrNotFound, one that has ended ErrNotRunning, and one
	// without a standard input ErrNoStdin where there is a Stdin.
	Attach(ctx context.Context, x Attach) error
}

// Limiter is an Engine that can change limits while things run. It is an interface of its own because simulations
// and most callers need only Engine.
type Limiter interface {
	// Limit sets what r names and leaves the rest as it is. An exited container is not an error; what is not held
	// is ErrNotFound. What was set is told in Status and PodStatus. The other fields of r, OOMScoreAdj among them, are
	// fixed when a container starts.
	Limit(ctx context.Context, at Place, r Resources) error
}

// Place is whose limits are meant: exactly one field is set.
type Place struct {
	Container string // its ID
	Pod       string // its UID
	// Group is a cgroup above the pods ("kubepods", "kubepods/burstable"), which is made if it is not there.
	Group string
}

// Info describes an engine.
type Info struct {
	Name          string // "libcontainer"
	Version       string // of the library, "v1.5.2"
	CgroupVersion int    // 1 or 2
	CgroupRoot    string // where kubepods stands
	Seccomp       bool
	AppArmor      bool // the kernel enforces it
	SELinux       bool
	// Late is what has been under way for more than half a minute.
	Late []Late `json:",omitempty"`
}

// Late is an operation that takes long. A minute is the most there is: then it ends, with an error.
type Late struct {
	What      string // Starting, Entering or Removing
	PodUID    string
	Container string // its ID; empty for a pod
	For       time.Duration
}

// What operations take time.
const (
	Starting = "start"
	Entering = "exec"
	Removing = "remove"
)

// Pod is what the containers of one pod share.
type Pod struct {
	UID             string
	Namespace, Name string
	Hostname        string
	Domainname      string
	HostNetwork     bool
	HostPID         bool
	HostIPC         bool
	// ShareProcess gives the containers one PID namespace, whose first process belongs to the pod. Not with HostPID.
	ShareProcess bool
	// Users gives the pod a user namespace, to which all its other namespaces belong. Nil: the board's users.
	Users *IDRange
	// Cgroup below the engine's root (Info.CgroupRoot), e.g. "kubepods/burstable/pod<uid>". The cgroup of a container
	// stands in it and has the container's ID as its name.
	Cgroup    string
	Resources Resources
	Sysctls   map[string]string
}

// IDRange is the users and groups of a user namespace: 0 and on inside are Host and on outside.
type IDRange struct{ Host, Size uint32 }

// PodStatus is a pod as the engine holds it.
type PodStatus struct {
	Pod Pod
	// NetNS is the path of the pinned network namespace; empty with HostNetwork.
	NetNS     string
	CreatedAt time.Time
}

// Container is everything needed to run one container once. A restart is a new Container with a new ID.
type Container struct {
	ID      string // unique for ever; [a-zA-Z0-9_.-], at most 200
	PodUID  string
	Name    string
	Attempt int

	Rootfs string // a mounted directory, only this container's
	Args   []string
	Env    []string
	Cwd    string
	User   User

	ReadonlyRootfs bool
	Privileged     bool
	NoNewPrivs     bool
	Capabilities   []string // "CAP_NET_BIND_SERVICE"; "ALL" is every one there is; ignored when Privileged
	DropCaps       []string // taken off Capabilities again
	Seccomp        Seccomp
	AppArmor       string   // a profile the kernel has loaded; empty: none
	ProcMount      string   // "" or "Default": masked and read-only paths; "Unmasked"
	Mounts         []Mount  // beside /proc, /dev, /sys and the rest of the default set
	Rlimits        []Rlimit // beside what the engine inherits
	Devices        []Device `json:",omitempty"` // beside the usual ones; an engine that does not know the field refuses it
	Blocks         []Device `json:",omitempty"` // likewise: block devices

	// ProcessesOf is the ID of a running container of the pod: this one then has its PID namespace, sees its processes and
	// ends with it.
	ProcessesOf string

	// Stdin keeps a standard input open for attachers; else it is /dev/null. With StdinOnce it ends for good with the
	// input of the first attacher that has one, or when that attacher leaves. A terminal does not end so. The first attacher
	// also gets what the container has said before, as far as the engine keeps it.
	Stdin     bool
	StdinOnce bool
	TTY       bool // a terminal, and TERM=xterm unless Env has another
	// LogPath is the file that gets stdout and stderr in CRI log format; empty: nobody wants them. A full one is renamed
	// to LogPath.N, N counting up from 1, and a new one begins: a name, once given, is never another file's. The log of
	// an exited container is complete. The engine removes LogPath only to stay within LogTotal: it belongs to the caller.
	LogPath  string
	LogBytes int64 // rotate at this size; 0: 10 MiB
	LogFiles int   // keep so many files, the one being written among them; 0: 5
	LogRate  int64 // bytes a second, ten seconds' worth of them at once; what is above is left out and counted in the log; 0: all
	// LogTotal bounds all logs below LogRoot, whosever they are: the directory with the most loses its oldest file
	// first. 0: no bound.
	LogRoot  string
	LogTotal int64

	Resources Resources
	// Labels are given back in Status untouched; the engine does not read them.
	Labels map[string]string
}

// User is who a container runs as, already resolved to numbers.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Seccomp chooses the system call filter.
type Seccomp struct {
	Unconfined bool
	// Profile is a JSON profile in the runtime-spec format; empty: the default profile.
	Profile []byte
}

// Mount is a bind mount or, with Type tmpfs, a fresh file system.
type Mount struct {
	Source, Target string
	Type           string // "bind" (also when empty), "tmpfs"
	ReadOnly       bool
	Recursive      bool // bind submounts too
	ReadOnlyBelow  bool // with ReadOnly and Recursive: submounts are read-only as well, or an error (Linux 5.12)
	// Mapped has the file system's own users appear in a pod with a user namespace, as they do in one without. Else
	// what belongs to the board's users belongs to nobody there.
	Mapped      bool
	Propagation string // "", "rslave", "rshared"
	Options     []string
}

// Device is one that the container may open. Not in a pod with users of its own.
type Device struct {
	// Path is where its node is made, below /dev, for every user of the container to open; empty: nowhere, as a mount has one.
	Path         string `json:",omitempty"`
	Major, Minor uint32
	ReadOnly     bool `json:",omitempty"`
}

// Exec is a command to run in a container.
type Exec struct {
	Container string // ID
	Args      []string
	Env       []string // beside and over the container's own
	Cwd       string   // empty: the container's
	User      *User    // nil: the container's

	// Stdin is read until its end, which the command then sees, or until Exec returns; a Read that is under way then is
	// not waited for, so whoever owns Stdin closes it. Nil is /dev/null.
	Stdin io.Reader
	// Stdout and Stderr get the output; nil throws it away. An error of theirs closes the pipe, so that the command gets
	// SIGPIPE. How much is kept is for them to decide; a Write must come back when ctx has ended.
	Stdout, Stderr io.Writer

	// TTY gives the command a terminal. Everything then comes from Stdout, and Resize may be used.
	TTY    bool
	Size   Size
	Resize <-chan Size // nil or open: it need not be closed
}

// Attach is somebody who joins the streams of a container.
type Attach struct {
	Container string // ID

	// Stdin goes to the container's standard input, which others may write to as well; nil: nothing does. A Read that is
	// under way when Attach returns is not waited for, so whoever owns Stdin closes it.
	Stdin io.Reader
	// Stdout and Stderr get the output; nil throws it away. With a terminal everything comes from Stdout. An error of
	// theirs ends the attachment and is its error; a Write must come back when ctx has ended.
	Stdout, Stderr io.Writer

	Resize <-chan Size // of the container's terminal, if it has one; nil or open: it need not be closed
}

// Size is that of a terminal, in characters.
type Size struct{ Width, Height uint16 }

// Rlimit is one resource limit.
type Rlimit struct {
	Type       string // "RLIMIT_NOFILE"
	Hard, Soft uint64
}

// Resources are cgroup settings. Zero means not set, except where noted.
type Resources struct {
	CPUShares   uint64 // v1 scale, 2..262144
	CPUQuotaUS  int64
	CPUPeriodUS uint64
	MemoryBytes int64
	// SwapBytes on top of memory; nil leaves it to the kernel, 0 forbids swap, -1 lifts the limit. On v1, which only
	// knows memory and swap together, 0 and more have no effect without MemoryBytes.
	SwapBytes *int64
	// IOWeight is 1..10000 (v2, where the kernel shares out I/O by weight).
	IOWeight uint64
	// HugePages bounds huge pages by page size, both in bytes. Not nil: sizes it does not name get none.
	HugePages   map[int64]int64
	PidsLimit   int64
	OOMScoreAdj *int
	// KillAllOnOOM sets memory.oom.group: the container's processes die together (v2).
	KillAllOnOOM bool
	CPUSet       string
	Unified      map[string]string
}

// Phase is where a container is in its one life.
type Phase string

// The phases, in order.
const (
	Running Phase = "running"
	Exited  Phase = "exited"
)

// Status is a container as the engine holds it.
type Status struct {
	ID        string
	PodUID    string
	Name      string
	Attempt   int
	Phase     Phase
	Pid       int
	StartedAt time.Time
	Exit      *Exit // set when Exited
	LogPath   string
	Resources Resources // as last set
	Labels    map[string]string
}

// Exit says how a container ended.
type Exit struct {
	Code      int // 128+signal when a signal ended it
	Signal    int
	OOMKilled bool
	// With OOMKilled: how much memory it has used at the most, and its limit or that of its pod. 0: not known, or no limit.
	MemoryPeak, MemoryLimit int64
	// Unknown: the exit was not seen and could not be recovered; Code is then 137 and not to be trusted.
	Unknown    bool
	FinishedAt time.Time
}

// OOM is what the kernel has counted of a container.
type OOM struct {
	Kills       uint64 // processes killed for want of memory
	Peak, Limit int64  // as in Exit
}

// State is everything an engine holds at one moment.
type State struct {
	Pods       []PodStatus
	Containers []Status
}

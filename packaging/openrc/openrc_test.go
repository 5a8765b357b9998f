// Package openrc_test runs the services under a real OpenRC and a real init of busybox, each the first process of a PID namespace.
package openrc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// world makes a machine of this one's files below $1 and OpenRC's ($2), with a network, a /run and a data directory ($3) of
// its own, and starts what $3/init says. Nothing of it is seen from outside.
const world = `set -eu
mount -t tmpfs none "$1"
mkdir -p "$1/upper/usr" "$1/work" "$1/root"
cp -a "$2/etc" "$1/upper/"
for d in bin sbin lib; do if [ -d "$2/$d" ]; then cp -a "$2/$d" "$1/upper/usr/"; fi; done
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs run run
mkdir -p var/lib/ledge
mount --bind "$3" var/lib/ledge
ip link set lo up
ip link add eth0 type veth peer name eth1
ip addr add 192.0.2.1/24 dev eth0
ip link set eth0 up
ip link set eth1 up
mkdir -p etc/ledge
cp "$3/config.yaml" etc/ledge/
. "$3/init"
`

// asOpenRC makes OpenRC the init of the world.
const asOpenRC = `
find etc/runlevels -type l -delete
rm -rf etc/init.d etc/conf.d
mkdir -p etc/init.d etc/conf.d
cp "$4/ledge" "$4/ledge-keeper" etc/init.d/
cp "$3"/conf.d/* etc/conf.d/
# OpenRC mounts a sysfs over ours.
printf '#!/sbin/openrc-run\nstart() { umount /sys; }\n' >etc/init.d/localmount
chmod 755 etc/init.d/*
printf 'rc_cgroup_mode=none\n' >etc/rc.conf
touch etc/insserv.conf
ln -s /etc/init.d/localmount etc/runlevels/boot/
ln -s /etc/init.d/ledge /etc/init.d/ledge-keeper etc/runlevels/default/
exec chroot . /sbin/openrc-init
`

// asBusybox makes busybox's init that of the world; the flags of $3/conf.d stand for those of the example.
const asBusybox = `
. "$3/conf.d/ledge"
. "$3/conf.d/ledge-keeper"
mkdir -p usr/local/bin
ln -sf /var/lib/ledge/bin usr/local/bin/ledge
cp "$4/ledge-stop" usr/local/bin/
sed -e "s|^\(.* serve .*\)|::respawn:/bin/sh -c 'exec /usr/local/bin/ledge serve --start-keeper=false $LEDGE_ARGS >>$LEDGE_LOG 2>\&1'|" \
	-e "s|^\(.*keeper --cgroup-root.*\)|::respawn:/usr/local/bin/ledge keeper $LEDGE_KEEPER_ARGS|" "$4/busybox-inittab" >etc/inittab
cp "$(command -v busybox)" init
exec chroot . /init
`

const manifests = `apiVersion: v1
kind: Pod
metadata: {name: low}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: ledge.local/self, args: [sleep, "86396"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: high, namespace: kube-system}
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: ledge.local/self, args: [sleep, "86396"]}]
`

// machine is one that OpenRC runs.
type machine struct {
	t     *testing.T
	data  string
	cmd   *exec.Cmd
	ended chan struct{}
	out   bytes.Buffer
	init  int // OpenRC's process, as seen from here
}

// TestServices: OpenRC starts keeper and brain in their order with the flags of conf.d; pods outlive every restart and
// every stop of either; what dies is started again; and a power-off stops the pods by priority, the brain, then the keeper.
func TestServices(t *testing.T) {
	m := start(t, asOpenRC, "openrc-init")
	pods, steady := m.pods()
	m.sh("rc-service ledge restart")
	steady("restart of the brain")
	m.sh("rc-service ledge-keeper restart")
	steady("restart of the keeper")
	m.killEach(steady)
	m.sh("rc-service ledge stop && rc-service ledge-keeper stop")
	if now := m.processes("applet", "sleep", "86396"); !slices.Equal(now, pods) || len(m.processes("serve"))+len(m.processes("keeper")) > 0 {
		t.Fatalf("with both stopped: pods %v, were %v, brains %v, keepers %v", now, pods, m.processes("serve"), m.processes("keeper"))
	}
	m.sh("rc-service ledge start") // which brings the keeper
	steady("stop and start")

	m.sh("openrc-shutdown --poweroff now")
	m.inOrder()
	said := m.out.String()
	brain, keeper := strings.LastIndex(said, "Stopping ledge ..."), strings.LastIndex(said, "Stopping ledge keeper")
	if brain < 0 || keeper < brain {
		t.Errorf("the keeper was not stopped after the brain:\n%s", said)
	}
}

// TestInittab: the same as far as busybox's init goes, which only starts, restarts and ends.
func TestInittab(t *testing.T) {
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Skip("needs busybox")
	}
	m := start(t, asBusybox, "init")
	_, steady := m.pods()
	m.killEach(steady)
	m.sh("kill -USR2 1") // power off
	m.inOrder()
}

// pods waits until both pods run, and gives their processes and what holds after every step.
func (m *machine) pods() (pods []int, steady func(after string)) {
	m.t.Helper()
	m.eventually("both pods run", m.running)
	if pods = m.processes("applet", "sleep", "86396"); len(pods) != 2 {
		m.t.Fatalf("the pods' processes are %v", pods)
	}
	steady = func(after string) {
		m.t.Helper()
		m.eventually(after+": one keeper, one brain, both pods run", func() error {
			if keepers, brains := m.processes("keeper"), m.processes("serve"); len(keepers) != 1 || len(brains) != 1 {
				return fmt.Errorf("keepers %v, brains %v", keepers, brains)
			}
			return m.running()
		})
		if now := m.processes("applet", "sleep", "86396"); !slices.Equal(now, pods) {
			m.t.Fatalf("after %s the pods' processes are %v, were %v", after, now, pods)
		}
	}
	steady("start")
	return pods, steady
}

// killEach kills brain and keeper, of which another is started each time.
func (m *machine) killEach(steady func(after string)) {
	m.t.Helper()
	for _, verb := range []string{"serve", "keeper"} {
		was := m.processes(verb)
		for _, pid := range was {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				m.t.Fatal(err)
			}
		}
		m.eventually("another "+verb, func() error {
			if now := m.processes(verb); len(now) != 1 || slices.Equal(now, was) {
				return fmt.Errorf("%v, was %v", now, was)
			}
			return nil
		})
		steady("kill -9 of " + verb)
	}
}

// inOrder waits for the end of the machine; the pods must have been stopped by priority.
func (m *machine) inOrder() {
	m.t.Helper()
	select {
	case <-m.ended:
	case <-time.After(testrun.Patience(2 * time.Minute)):
		m.t.Fatal("the machine does not go down")
	}
	log, err := os.ReadFile(filepath.Join(m.data, "ledge.log"))
	if err != nil {
		m.t.Fatal(err)
	}
	var stages []string
	for _, found := range regexp.MustCompile(`shutdown stage over" priority=(\d+ pods=\d+ late=\d+)`).FindAllSubmatch(log, -1) {
		stages = append(stages, string(found[1]))
	}
	if want := []string{"0 pods=1 late=0", "2000000000 pods=1 late=0"}; !slices.Equal(stages, want) {
		m.t.Errorf("stages %q, want %q", stages, want)
	}
}

// needs gives where OpenRC's files and ledge are, or leaves the test out.
func needs(t *testing.T) (openrc, ledge string) {
	t.Helper()
	openrc = filepath.Join(os.Getenv("LEDGE_CACHE"), "openrc")
	if os.Getenv("LEDGE_CACHE") == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		openrc = filepath.Join(cache, "ledge", "openrc")
	}
	ledge = os.Getenv("LEDGE_BIN")
	switch _, err := os.Stat(openrc); {
	case os.Getuid() != 0:
		t.Skip("needs root")
	case ledge == "":
		t.Skip("needs LEDGE_BIN, a built ledge")
	case err != nil:
		t.Skip("needs OpenRC's files: scripts/setup.sh vm fetches them")
	}
	return openrc, ledge
}

// start boots a world with this init, whose process then has this name.
func start(t *testing.T, init, name string) *machine {
	t.Helper()
	openrc, ledge := needs(t)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, mark := t.TempDir(), testrun.Mark()
	m := &machine{t: t, data: filepath.Join(dir, "data"), ended: make(chan struct{})}
	for name, text := range map[string]string{
		"conf.d/ledge": fmt.Sprintf("LEDGE=/var/lib/ledge/bin\nLEDGE_LOG=/var/lib/ledge/ledge.log\n"+
			"LEDGE_ARGS='--cgroup-root /%s --manifests /var/lib/ledge/manifests --hostname-override openrc'\n", mark),
		"conf.d/ledge-keeper": fmt.Sprintf("LEDGE=/var/lib/ledge/bin\nLEDGE_KEEPER_LOG=/var/lib/ledge/keeper.log\nLEDGE_KEEPER_ARGS='--cgroup-root /%s'\n", mark),
		"config.yaml":         "shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 30s\n",
		"manifests/pods.yaml": manifests,
		"../world":            world,
		"init":                init,
	} {
		path := filepath.Join(m.data, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "top"), 0o755); err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(ledge)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.data, "bin"), binary, 0o755); err != nil {
		t.Fatal(err)
	}
	// Its end, by us or by itself, is the end of everything in it: the kernel sees to that.
	m.cmd = exec.Command("unshare", "--kill-child", "--fork", "--mount", "--pid", "--net", "--ipc", "--uts",
		"sh", filepath.Join(dir, "world"), filepath.Join(dir, "top"), openrc, m.data, here)
	m.cmd.Stdout, m.cmd.Stderr = &m.out, &m.out
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = m.cmd.Wait() // killed, or switched off: a namespace's reboot(2) is a signal
		close(m.ended)
	}()
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		<-m.ended
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(m.data, "ledge.log"))
			keeper, _ := os.ReadFile(filepath.Join(m.data, "keeper.log"))
			t.Logf("init:\n%s\nledge:\n%s\nkeeper:\n%s", m.out.String(), log, keeper)
		}
		removeCgroups(t, mark)
	})
	m.eventually(name+" runs", func() error {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.cmd.Process.Pid))
		if err != nil {
			return err
		}
		m.init, err = strconv.Atoi(strings.TrimSpace(string(children)))
		if err != nil {
			return err
		}
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", m.init)); err != nil || string(comm) != name+"\n" {
			return fmt.Errorf("%q, %w", comm, err)
		}
		return nil
	})
	return m
}

// removeCgroups removes what the pods of the machine stood in; they are gone with it.
func removeCgroups(t *testing.T, mark string) {
	t.Helper()
	tops, _ := filepath.Glob("/sys/fs/cgroup/*/" + mark)
	for _, top := range append(tops, "/sys/fs/cgroup/"+mark) {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs)
		for _, d := range dirs {
			if err := os.Remove(d); err != nil {
				t.Error(err)
			}
		}
	}
}

// inside is a command in the machine.
func (m *machine) inside(command string) *exec.Cmd {
	return exec.Command("nsenter", "--target", strconv.Itoa(m.init), "--mount", "--pid", "--net", "--ipc", "--uts", "--root", "--wd",
		"/bin/sh", "-c", "PATH=/usr/sbin:/usr/bin:/sbin:/bin; "+command)
}

// sh runs a command in the machine.
func (m *machine) sh(command string) {
	m.t.Helper()
	if out, err := m.inside(command).CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// running fails unless both pods run and none was started again.
func (m *machine) running() error {
	out, err := m.inside("/var/lib/ledge/bin get pods -A -o json").Output()
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			Status struct {
				Phase             string
				ContainerStatuses []struct{ RestartCount int }
			}
		}
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return err
	}
	if len(list.Items) != 2 {
		return fmt.Errorf("pods: %+v", list)
	}
	for _, p := range list.Items {
		if s := p.Status; s.Phase != "Running" || len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].RestartCount != 0 {
			return fmt.Errorf("pods: %+v", list)
		}
	}
	return nil
}

// processes are those of ledge in the machine that have these arguments in a row.
func (m *machine) processes(args ...string) (pids []int) {
	mine, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", m.init))
	if err != nil {
		return nil // it has ended
	}
	net, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", m.init))
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		dir := filepath.Dir(f)
		line, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(line, []byte("\x00"+strings.Join(args, "\x00")+"\x00")) ||
			bytes.HasPrefix(line, []byte("supervise-daemon")) {
			continue
		}
		// Containers have a mount namespace of their own, and this machine's network.
		mnt, _ := os.Readlink(dir + "/ns/mnt")
		theirs, _ := os.Readlink(dir + "/ns/net")
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && (mnt == mine || theirs == net) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

func (m *machine) eventually(what string, f func() error) {
	m.t.Helper()
	testrun.Succeeds(m.t, time.Minute, what, f)
}

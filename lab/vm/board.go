package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// boardFiles are two static pods of different priorities, and the address of a time server: the guest's watcher, which is two hours ahead.
var boardFiles = map[string]string{
	"manifests/low.yaml":    boardPod("low", ""),
	"manifests/high.yaml":   boardPod("high", "system-node-critical"),
	"etc/ledge/config.yaml": "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\nfailSwapOn: false\nntpServers: [127.0.0.1]\n",
}

func boardPod(name, class string) string {
	return `apiVersion: v1
kind: Pod
metadata: {name: ` + name + `, namespace: kube-system}
spec:
  priorityClassName: "` + class + `"
  containers:
  - name: main
    image: ledge.local/self
    args: [httpd, -p, "8080"]
`
}

// runBoard boots ledge as the whole user space of a board: its data on a partition, pods from files, nothing else. First the brain is
// killed, and the pods must not notice. Then the next brain is killed and the power button is pressed while there is none: the pods must
// end in order, and the machine after them. A machine without a button is asked to end through the node or, with signal, by SIGPWR to
// process 1.
func runBoard(ctx context.Context, arch, ledge string, signal bool, memory int, limit time.Duration) error {
	dir, err := prepare(ctx, arch)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "ledge-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	initrd, data := filepath.Join(work, "board.cpio"), filepath.Join(work, "data.img")
	if err := applianceRoot(ctx, arch, dir, ledge, work, initrd, boardFiles); err != nil {
		return err
	}
	if out, err := command(ctx, "mke2fs", "-q", "-t", "ext4", data, "256M").CombinedOutput(); err != nil {
		return fmt.Errorf("make the data partition: %w: %s", err, out)
	}
	kernel, watch := filepath.Join(dir, "vmlinux"), "pods"
	if arch != "amd64" { // Debian's kernel has no driver for the button of QEMU's other boards
		kernel, watch = filepath.Join(dir, "vmlinuz"), "pods,off"
	}
	if signal {
		watch = "pods,signal"
	}
	g := guest{arch: arch, kernel: kernel, initrd: initrd, memory: memory, disks: []string{data}, qmp: filepath.Join(work, "qmp"),
		append: "rdinit=/init watch=" + watch +
			" ledge.data=/dev/nvme0n1 ledge.name=board -- serve --manifests /manifests --watchdog /dev/watchdog"}
	b := &boardBoot{qmp: g.qmp, button: watch == "pods", began: time.Now()}
	err = g.boot(ctx, limit, b.line)
	if !errors.Is(err, errGuestEnded) || b.fault != nil || !b.clock || !b.inOrder() || b.kernel != "Power down" {
		return fmt.Errorf("%s: ended with %w, fault %v, stages %v, the kernel said %q; its console:\n%s", arch, err, b.fault, b.stages, b.kernel,
			strings.Join(b.all, "\n"))
	}
	fmt.Printf("ok  \tboard %s\t%.3fs\n", arch, time.Since(b.began).Seconds())
	return nil
}

// boardBoot collects what one boot prints.
type boardBoot struct {
	qmp    string
	button bool // the guest has one; else it goes down by itself
	began  time.Time
	all    []string
	clock  bool // it was set by the time server
	stages
	kernel string // its last word on the end
	fault  error
}

// stages are the priorities whose pods have been stopped, in the order of the log. Each has one pod.
type stages []string

func (s *stages) over(text string) error {
	_, rest, _ := strings.Cut(text, "priority=")
	priority, rest, _ := strings.Cut(rest, " ")
	*s = append(*s, priority)
	if !strings.Contains(rest, "pods=1 late=0") {
		return errors.New(text)
	}
	return nil
}

// inOrder says whether the usual pod was stopped before the critical one.
func (s stages) inOrder() bool { return slices.Equal(s, []string{"0", "2000000000"}) }

func (b *boardBoot) line(text string) bool {
	b.all = append(b.all, text)
	say := func() { fmt.Printf("vm: %5.1f s: %s\n", time.Since(b.began).Seconds(), text) }
	switch word, rest, _ := strings.Cut(text, " "); {
	case word == "@@fault:" || strings.Contains(text, "Kernel panic"):
		b.fault = errors.New(rest)
		return true
	case word == "@@running" && rest != "2":
		b.fault = fmt.Errorf("%s containers run, not 2", rest)
		return true
	case word == "@@clock" && rest != "2h0m0s":
		b.fault = fmt.Errorf("the clock was set by %s, not by two hours", rest)
		return true
	case word == "@@gone":
		say()
		if b.button {
			b.fault = pressPowerButton(b.qmp)
		}
		return b.fault != nil
	case strings.HasPrefix(word, "@@"):
		b.clock = b.clock || word == "@@clock"
		say()
	case strings.Contains(text, "shutdown stage over"):
		say()
		if err := b.over(text); err != nil { // what was wrong before stays so
			b.fault = err
		}
	case strings.HasSuffix(text, "reboot: Power down"):
		say()
		b.kernel = "Power down"
	}
	return false
}

// pressPowerButton presses the power button of the guest, as a person would.
func pressPowerButton(qmp string) error { return monitor(qmp, `{"execute":"system_powerdown"}`) }

// pressSysRq asks the kernel something over its keyboard.
func pressSysRq(qmp, key string) error {
	return monitor(qmp, `{"execute":"send-key","arguments":{"keys":[{"type":"qcode","data":"alt"},{"type":"qcode","data":"sysrq"},{"type":"qcode","data":"`+key+`"}]}}`)
}

// monitor gives QEMU a command and waits for its answer.
func monitor(qmp, command string) error {
	_, err := query(qmp, command)
	return err
}

// query gives QEMU a command and returns what it answers.
func query(qmp, command string) (answer json.RawMessage, err error) {
	conn, err := net.Dial("unix", qmp)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(`{"execute":"qmp_capabilities"}` + command + "\n")); err != nil {
		return nil, err
	}
	messages := json.NewDecoder(conn)
	for answers := 0; answers < 2; { // to both commands; between them come events
		var m struct{ Return, Error json.RawMessage }
		if err := messages.Decode(&m); err != nil {
			return nil, fmt.Errorf("QEMU on %s: %w", command, err)
		}
		if m.Error != nil {
			return nil, fmt.Errorf("QEMU on %s: %s", command, m.Error)
		}
		if m.Return != nil {
			answer = m.Return
			answers++
		}
	}
	return answer, nil
}

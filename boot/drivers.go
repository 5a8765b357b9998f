package boot

import (
	"bufio"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ledge/host"
)

// What an image brings along besides ledge: a kernel whose drivers are modules, and a program that looks for addresses. A
// board whose kernel has all built in has neither.
const (
	modprobe       = "/sbin/modprobe" // the kernel calls it too
	modulesList    = "/etc/modules"   // those that no device asks for
	networkProgram = "/sbin/network"
	watchdogDevice = "/dev/watchdog"
)

// loadDrivers loads what the devices ask for that are there, and goes on for those that come later.
func loadDrivers() {
	if _, err := os.Stat(modprobe); err != nil {
		return
	}
	d, err := host.WatchDevices()
	if err != nil {
		slog.Error("devices that come later are not seen", "err", err)
		return
	}
	load(listedModules())
	for range 5 { // a driver of a bus brings the next devices
		aliases := d.There()
		if len(aliases) == 0 {
			break
		}
		load(aliases)
	}
	if _, err := os.Stat(watchdogDevice); err != nil {
		load([]string{"softdog"}) // better than none
	}
	go func() {
		for {
			aliases, err := d.Next()
			if err != nil {
				slog.Error("devices that come from now on are not seen", "err", err)
				return
			}
			load(aliases)
		}
	}()
}

// load has modules loaded by name or by what a device says it is. Most devices need none, and modprobe's code says nothing.
func load(names []string) {
	if len(names) > 0 {
		_ = exec.Command(modprobe, append([]string{"-abq"}, names...)...).Run()
	}
}

func listedModules() (names []string) {
	f, err := os.Open(modulesList)
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, _, _ := strings.Cut(s.Text(), "#"); strings.TrimSpace(name) != "" {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// keepNetwork runs the image's program for addresses, again whenever it ends. It is waited for by a descriptor: process 1
// reaps all its children in one place.
func keepNetwork() {
	if _, err := os.Stat(networkProgram); err != nil {
		return
	}
	const pause = 5 * time.Second // longer than the end of the machine takes, which ends that program too
	for {
		var fd int
		p, err := os.StartProcess(networkProgram, []string{networkProgram}, &os.ProcAttr{Dir: "/",
			Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &fd}})
		if err != nil {
			slog.Error("nothing looks for addresses", "err", err)
			time.Sleep(pause)
			continue
		}
		_ = p.Release()
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
				break
			}
		}
		_ = unix.Close(fd)
		time.Sleep(pause)
		slog.Warn("the program for addresses ended and is started again", "program", networkProgram)
	}
}

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CharDevice is a character device below /dev, and what the kernel says of it.
type CharDevice struct {
	Path         string
	Links        []string // below /dev, that lead to it
	Major, Minor uint32
	Born         uint64 // another number: another node was made, as for what was plugged in anew
	Group        uint32
	Subsystem    string
	Console      bool   // the kernel or its log is shown there
	Bare         bool   // a serial port that has no hardware behind it
	USB          string // 0403:6001
	Serial       string
	Port         string // 1-1.2
	Part         string // 1.0, and .1 for the second port of an interface
	Speaks       string // the classes of the interfaces of a USB device that is the node itself: 03 08
	Captures     bool
	Converts     bool
}

// CharDevices finds the character devices of this machine, and tells when some have come or gone. The zero value is ready.
type CharDevices struct {
	Dev, Sys, Proc string // empty: this machine's

	known  map[string]CharDevice // what was read of a node, by what makes it another one
	plugs  *os.File
	failed bool // nobody tells of plugs here
}

// mostNodes bounds a look: a board has some hundred.
const mostNodes = 8192

// notDevices are directories of /dev in which there are none, or none but what stands elsewhere too.
var notDevices = []string{"pts", "shm", "mqueue", "hugepages", "fd", "block", "char", "disk"}

// Look lists those that wants says yes to, by their path or that of a link.
func (c *CharDevices) Look(wants func(path string) bool) ([]CharDevice, error) {
	dev := orDefault(c.Dev, "/dev")
	links := map[string][]string{} // by what they lead to
	nodes := map[string]bool{}
	n := 0
	err := filepath.WalkDir(dev, func(at string, e fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(at, dev)
		switch {
		case err != nil:
			if at == dev {
				return err
			}
			return nil // it has just gone
		case e.IsDir() && (slices.Contains(notDevices, strings.TrimPrefix(rel, "/")) || strings.Count(rel, "/") > 4):
			return fs.SkipDir
		case e.IsDir():
			return nil
		}
		if n++; n > mostNodes {
			return fmt.Errorf("more than %d names are in %s", mostNodes, dev)
		}
		name := "/dev" + rel
		switch {
		case e.Type()&fs.ModeCharDevice != 0:
			nodes[name] = nodes[name] || wants(name)
		case e.Type()&fs.ModeSymlink != 0:
			to, err := filepath.EvalSymlinks(at)
			if err == nil && strings.HasPrefix(to, dev+"/") {
				to = "/dev" + strings.TrimPrefix(to, dev)
				links[to] = append(links[to], name)
				nodes[to] = nodes[to] || wants(name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	consoles := c.consoles()
	known := map[string]CharDevice{}
	var out []CharDevice
	for name, wanted := range nodes {
		if !wanted {
			continue
		}
		d, ok := c.read(name, known)
		if !ok {
			continue
		}
		d.Links, d.Console = links[name], slices.Contains(consoles, filepath.Base(name))
		out = append(out, d)
	}
	for key, d := range c.known { // what another look asks for: to read a camera anew opens it
		if wanted, there := nodes[d.Path]; there && !wanted {
			known[key] = d
		}
	}
	c.known = known
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out, nil
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// consoles are the terminals that the kernel speaks to.
func (c *CharDevices) consoles() (names []string) {
	active, _ := os.ReadFile(filepath.Join(orDefault(c.Sys, "/sys"), "class/tty/console/active"))
	names = strings.Fields(string(active))
	cmdline, _ := os.ReadFile(filepath.Join(orDefault(c.Proc, "/proc"), "cmdline"))
	for _, word := range strings.Fields(string(cmdline)) {
		for _, key := range []string{"console=", "kgdboc="} {
			if value, ok := strings.CutPrefix(word, key); ok {
				name, _, _ := strings.Cut(value, ",")
				names = append(names, strings.TrimPrefix(name, "/dev/"))
			}
		}
	}
	return names
}

// read is what the kernel says of a node; false: it is none, or none any more.
func (c *CharDevices) read(name string, known map[string]CharDevice) (CharDevice, bool) {
	at := orDefault(c.Dev, "/dev") + strings.TrimPrefix(name, "/dev")
	var st unix.Stat_t
	if unix.Lstat(at, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return CharDevice{}, false
	}
	d := CharDevice{Path: name, Major: unix.Major(uint64(st.Rdev)), Minor: unix.Minor(uint64(st.Rdev)), Born: uint64(st.Ino)}
	key := fmt.Sprintf("%s %d:%d %d", name, d.Major, d.Minor, d.Born)
	if was, ok := c.known[key]; ok {
		d = was
	} else {
		c.describe(&d, at)
	}
	d.Group = st.Gid // udev gives it a moment later
	known[key] = d
	return d, true
}

func (c *CharDevices) describe(d *CharDevice, at string) {
	sys := orDefault(c.Sys, "/sys")
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, "dev/char", fmt.Sprintf("%d:%d", d.Major, d.Minor)))
	if err != nil {
		return
	}
	d.Subsystem = linkBase(dir, "subsystem")
	d.Bare = d.Subsystem == "tty" && word(dir, "type") == "0"
	if d.Subsystem == "video4linux" {
		d.Captures, d.Converts = videoKind(at)
	}
	if d.Subsystem == "usb" {
		interfaces, _ := filepath.Glob(filepath.Join(dir, "*", "bInterfaceClass"))
		for _, at := range interfaces {
			d.Speaks += " " + word(filepath.Dir(at), "bInterfaceClass")
		}
		d.Speaks = strings.TrimSpace(d.Speaks)
	}
	port := word(filepath.Join(dir, "device"), "port_number")
	for ; len(dir) > len(sys); dir = filepath.Dir(dir) {
		if linkBase(dir, "subsystem") != "usb" {
			continue
		}
		base := filepath.Base(dir)
		if vendor := word(dir, "idVendor"); vendor != "" {
			d.USB, d.Serial, d.Port = vendor+":"+word(dir, "idProduct"), plain(word(dir, "serial")), base
			return
		}
		if _, part, ok := strings.Cut(base, ":"); ok && d.Part == "" {
			d.Part = part
			if port != "" && port != "0" {
				d.Part += "." + port
			}
		}
	}
}

// plain is a stick's own text without what would be in the way of a name. Anybody can make a stick.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < '0' || r > 'z' || r > '9' && r < 'A' || r > 'Z' && r < 'a' {
			return '_'
		}
		return r
	}, text)
	return text[:min(len(text), 64)]
}

func linkBase(dir, name string) string {
	to, err := os.Readlink(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

func word(dir, name string) string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// videoKind asks a video device what it does (VIDIOC_QUERYCAP). Who uses it meanwhile does not notice.
func videoKind(at string) (captures, converts bool) {
	fd, err := unix.Open(at, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	const (
		queryCap = 0x80685600
		deviceAt = 88 // of the second word: what this node does, and not others of the driver
		capture  = 0x1 | 0x1000
		convert  = 0x8000 | 0x4000
	)
	var caps [104]byte
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), queryCap, uintptr(unsafe.Pointer(&caps))); e != 0 {
		return false, false
	}
	word := *(*uint32)(unsafe.Pointer(&caps[deviceAt]))
	return word&capture != 0, word&convert != 0
}

// Wait returns when the kernel has told of something that was plugged or unplugged, after most, or when ctx ends.
func (c *CharDevices) Wait(ctx context.Context, most time.Duration) {
	if !c.hears() {
		select {
		case <-ctx.Done():
		case <-time.After(most):
		}
		return
	}
	defer context.AfterFunc(ctx, func() { _ = c.plugs.SetReadDeadline(time.Now()) })()
	_ = c.plugs.SetReadDeadline(time.Now().Add(most))
	if ctx.Err() != nil { // the line above may have come after that of its end
		return
	}
	buf := make([]byte, 16<<10)
	n, err := c.plugs.Read(buf)
	for err == nil && !plugs(string(buf[:n])) {
		n, err = c.plugs.Read(buf)
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, unix.ENOBUFS) { // the last: more came than the socket holds
		_ = c.plugs.Close()
		c.plugs, c.failed = nil, true
	}
}

// hears says whether plugs are told here, from the first call on.
func (c *CharDevices) hears() bool {
	if c.plugs == nil && !c.failed {
		c.failed = c.listen() != nil
	}
	return !c.failed
}

// Drain forgets what was told until now.
func (c *CharDevices) Drain() {
	if !c.hears() {
		return
	}
	buf := make([]byte, 16<<10)
	_ = c.plugs.SetReadDeadline(time.Now().Add(time.Millisecond))
	for range 1000 {
		if _, err := c.plugs.Read(buf); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// plugs says whether an event is of a device that has, or had, a node.
func plugs(event string) bool {
	if strings.HasPrefix(event, "change@") {
		return strings.Contains(event, "\x00DEVNAME=")
	}
	return (strings.HasPrefix(event, "add@") || strings.HasPrefix(event, "remove@")) && strings.Contains(event, "\x00DEVNAME=") &&
		!strings.Contains(event, "\x00SUBSYSTEM=block\x00")
}

func (c *CharDevices) listen() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		_ = unix.Close(fd)
		return err
	}
	c.plugs = os.NewFile(uintptr(fd), "uevents")
	return nil
}

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Devices names what is found on a machine's buses, for who loads the kernel's drivers: each by its modalias.
type Devices struct {
	fd   int
	told map[string]bool
}

// WatchDevices begins to listen for devices that come.
func WatchDevices() (*Devices, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("listen for devices: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("listen for devices: %w", err)
	}
	return &Devices{fd: fd, told: map[string]bool{}}, nil
}

// There returns the devices that were not reported yet.
func (d *Devices) There() (aliases []string) {
	_ = filepath.WalkDir("/sys/devices", func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "modalias" { // a device that has just gone
			return nil
		}
		text, _ := os.ReadFile(at)
		aliases = d.add(aliases, strings.TrimSpace(string(text)))
		return nil
	})
	return aliases
}

func (d *Devices) add(aliases []string, alias string) []string {
	if alias == "" || d.told[alias] {
		return aliases
	}
	d.told[alias] = true
	return append(aliases, alias)
}

// Next waits until a device comes that nobody was told of.
func (d *Devices) Next() ([]string, error) {
	buf := make([]byte, 16<<10)
	for {
		n, _, err := unix.Recvfrom(d.fd, buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS): // more came than the socket holds
			if all := d.There(); len(all) > 0 {
				return all, nil
			}
			continue
		case err != nil:
			return nil, fmt.Errorf("listen for devices: %w", err)
		}
		if alias := addedAlias(string(buf[:n])); alias != "" {
			if all := d.add(nil, alias); len(all) > 0 {
				return all, nil
			}
		}
	}
}

// addedAlias reads the kernel's word on a device: the event, then variables, each with a zero behind it.
func addedAlias(event string) string {
	if !strings.HasPrefix(event, "add@") {
		return ""
	}
	for word := range strings.SplitSeq(event, "\x00") {
		if alias, ok := strings.CutPrefix(word, "MODALIAS="); ok {
			return alias
		}
	}
	return ""
}

package plugins

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is a character device of the board, and where its node is to be in a container.
type Device struct {
	At           string
	Major, Minor uint32
	ReadOnly     bool
}

// Given is what a container gets for all its gifts.
type Given struct {
	Env     map[string]string
	Mounts  []Mount
	Devices []Device
}

// Look finds on the board what plugins have named. Numbers of devices may have changed since.
func (p *Plugins) Look(gifts []Gift) (out Given, err error) {
	out.Env = map[string]string{}
	for _, g := range gifts {
		for name, value := range g.Answer.Env {
			if was, ok := out.Env[name]; ok && was != value {
				return Given{}, fmt.Errorf("two device plugins, of %s one of them, set the variable %s", g.Resource, name)
			}
			out.Env[name] = value
		}
		for _, m := range g.Answer.Mounts {
			if _, err := os.Stat(m.Host); err != nil {
				return Given{}, fmt.Errorf("the device plugin of %s mounts what is not there: %w", g.Resource, err)
			}
			if !slices.Contains(out.Mounts, m) {
				out.Mounts = append(out.Mounts, m)
			}
		}
		for _, n := range g.Answer.Nodes {
			list, err := p.nodes(n)
			if err != nil {
				return Given{}, fmt.Errorf("the device plugin of %s: %w", g.Resource, err)
			}
			out.Devices = append(out.Devices, list...)
		}
	}
	return out, nil
}

// nodes are those of a device, or of all devices in a directory.
func (p *Plugins) nodes(n Node) (out []Device, err error) {
	if st, err := os.Stat(n.Host); err != nil {
		return nil, err
	} else if !st.IsDir() {
		d, err := p.node(n.Host, n.At, n.ReadOnly)
		return []Device{d}, err
	}
	err = filepath.WalkDir(n.Host, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.Type()&fs.ModeCharDevice == 0:
			return nil // also block devices: who asks for a directory does not ask for disks
		case len(out) == mostEntries:
			return fmt.Errorf("more than %d devices are in %s", mostEntries, n.Host)
		}
		d, err := p.node(at, path.Join(n.At, strings.TrimPrefix(at, n.Host)), n.ReadOnly)
		out = append(out, d)
		return err
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("no device is in %s", n.Host)
	}
	return out, err
}

func (p *Plugins) node(host, at string, readOnly bool) (Device, error) {
	var st unix.Stat_t
	if err := unix.Stat(host, &st); err != nil {
		return Device{}, &fs.PathError{Op: "stat", Path: host, Err: err}
	}
	d := Device{at, unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)), readOnly}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFBLK:
		return d, fmt.Errorf("%s is a block device, which is given to nobody but privileged pods", host)
	case kind != unix.S_IFCHR:
		return d, fmt.Errorf("%s is no device", host)
	case p.cfg.Judge == nil:
		return d, nil
	}
	if err := p.cfg.Judge(d.Major, d.Minor); err != nil {
		return d, fmt.Errorf("%s: %w", host, err)
	}
	return d, nil
}

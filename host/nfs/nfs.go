// Package nfs mounts shares without a helper program: what mount.nfs would tell the kernel is told here. A server that does not answer
// keeps whoever asks it, for minutes or for ever, in the kernel. So a child process does it, which is waited for a while and then left:
//
//	Shares.Mount -> child: name -> address, vers=4.2 .. 3 -> mount(2)
//	Shares.Look  -> child: statfs
//	Shares.Leave -> child: umount2(MNT_DETACH), which ends what is left of the mount when the last user has gone
package nfs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Share is what to mount.
type Share struct {
	Server, Path string
	ReadOnly     bool
	Options      []string // each may be several with commas between
}

// String is how the kernel and people name it.
func (s Share) String() string {
	server := s.Server
	if a, err := netip.ParseAddr(strings.Trim(server, "[]")); err == nil && a.Is6() {
		server = "[" + a.String() + "]"
	}
	return server + ":" + s.Path
}

// mountFlags are options that the kernel takes as flags; those that mean nothing to it, or are its own way anyway, are 0.
var mountFlags = map[string]uintptr{"ro": unix.MS_RDONLY, "rw": 0, "nosuid": unix.MS_NOSUID, "suid": 0, "nodev": unix.MS_NODEV, "dev": 0,
	"noexec": unix.MS_NOEXEC, "exec": 0, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	"sync": unix.MS_SYNCHRONOUS, "async": 0, "defaults": 0, "_netdev": 0, "nofail": 0, "auto": 0, "noauto": 0, "intr": 0, "nointr": 0, "fg": 0}

// shareOptions are the mount options that the kernel's own parser uses. An unknown word fails a mount, and the error does not name it.
var shareOptions = []string{"vers", "nfsvers", "minorversion", "proto", "port", "rsize", "wsize", "bsize", "namlen", "timeo", "retrans",
	"acregmin", "acregmax", "acdirmin", "acdirmax", "actimeo", "ac", "noac", "acl", "noacl", "cto", "nocto", "hard", "soft", "softerr", "softreval",
	"nosoftreval", "lock", "nolock", "local_lock", "lookupcache", "nconnect", "max_connect", "rdirplus", "nordirplus", "resvport", "noresvport",
	"sharecache", "nosharecache", "sec", "fsc", "nofsc", "migration", "nomigration", "trunkdiscovery", "notrunkdiscovery", "write",
	"mountport", "mountproto", "mountvers", "xprtsec", "tcp"}

// kernelOptions sorts options: flags, versions that are asked for (none: all), and the rest for the kernel.
func kernelOptions(s Share) (flags uintptr, versions, rest []string, err error) {
	minor := ""
	for _, words := range s.Options {
		for word := range strings.SplitSeq(words, ",") {
			name, value, _ := strings.Cut(word, "=")
			flag, isFlag := mountFlags[word]
			switch {
			case isFlag:
				flags |= flag
			case !slices.Contains(shareOptions, name):
				return 0, nil, nil, fmt.Errorf("mount option %q is not known", word)
			case name == "vers" || name == "nfsvers":
				versions = []string{value}
			case name == "minorversion":
				minor = value
			default:
				rest = append(rest, word)
			}
		}
	}
	if s.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	if versions, err = known(versions, minor); err != nil {
		return 0, nil, nil, err
	}
	if slices.Contains(rest, "lock") {
		if len(versions) == 1 && versions[0] == "3" {
			return 0, nil, nil, errors.New("mount option \"lock\" of version 3 needs a program (rpc.statd) that boards do not have: use version 4, or nolock")
		}
		versions = slices.DeleteFunc(versions, func(v string) bool { return v == "3" })
	}
	return flags, versions, rest, nil
}

// allVersions from the best down.
var allVersions = []string{"4.2", "4.1", "4.0", "3"}

func known(asked []string, minor string) ([]string, error) {
	switch {
	case len(asked) == 0 && minor == "":
		return slices.Clone(allVersions), nil
	case len(asked) == 0 || asked[0] == "4" && minor != "":
		asked = []string{"4." + minor}
	case asked[0] == "4":
		return slices.Clone(allVersions[:3]), nil
	}
	if !slices.Contains(allVersions, asked[0]) {
		return nil, fmt.Errorf("version %q of NFS is not one of %s", asked[0], strings.Join(allVersions, ", "))
	}
	return asked, nil
}

// data is what the kernel reads besides the flags.
func data(version string, server, own netip.Addr, rest []string) string {
	words := []string{"vers=" + version, "addr=" + server.String()}
	if version == "3" { // locks of version 3 want a program beside the kernel; its mount protocol does not
		if !slices.Contains(rest, "nolock") {
			words = append(words, "nolock")
		}
		if !slices.ContainsFunc(rest, func(w string) bool { return strings.HasPrefix(w, "mountproto=") }) {
			words = append(words, "mountproto=tcp")
		}
	} else if own.IsValid() {
		words = append(words, "clientaddr="+own.String())
	}
	return strings.Join(append(words, rest...), ",")
}

// next says whether a server may still have an older version.
func next(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTO)
}

// ownAddress is from where packets go to a server.
func ownAddress(server netip.Addr) netip.Addr {
	c, err := net.Dial("udp", netip.AddrPortFrom(server, 2049).String()) // sends nothing
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// plainly puts the kernel's number into words that somebody can act on.
func plainly(s Share, err error) error {
	why := map[unix.Errno]string{
		unix.ENODEV:          "the kernel of this board has no NFS: load its module nfs, or install it",
		unix.ENOENT:          "the server does not export that path",
		unix.EACCES:          "the server refuses this board, or does not export that path",
		unix.EPERM:           "the server refuses this board, or does not export that path",
		unix.ECONNREFUSED:    "nothing listens there for NFS",
		unix.EHOSTUNREACH:    "no way leads to the server",
		unix.ENETUNREACH:     "no way leads to the server",
		unix.ETIMEDOUT:       "the server does not answer",
		unix.EPROTONOSUPPORT: "the server has none of these versions of NFS",
		unix.EINVAL:          "the kernel does not take these options",
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok && why[errno] != "" {
		return fmt.Errorf("mount %s: %s (%w)", s, why[errno], err)
	}
	return fmt.Errorf("mount %s: %w", s, err)
}

package podspec

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// maxAccountFile bounds how much of an image's /etc/passwd or /etc/group is read: an image may bring gigabytes
// (CVE-2026-47262).
const maxAccountFile = 1 << 20

// resolveUser finds the numbers to run as: the container's security context, then the pod's, then the image's
// USER, which may be a name from the image's own /etc/passwd.
func resolveUser(rootfs string, pod *corev1.Pod, c *corev1.Container, imageUser string) (runtime.User, error) {
	psc, sc := pod.Spec.SecurityContext, c.SecurityContext
	if psc == nil {
		psc = &corev1.PodSecurityContext{}
	}
	if sc == nil {
		sc = &corev1.SecurityContext{}
	}
	uid, gid := pickID(sc.RunAsUser, psc.RunAsUser), pickID(sc.RunAsGroup, psc.RunAsGroup)
	nonRoot := sc.RunAsNonRoot
	if nonRoot == nil {
		nonRoot = psc.RunAsNonRoot
	}
	who := imageUser
	if uid != nil { // then the image's user, with its group, is nobody's business
		who = strconv.FormatInt(*uid, 10)
	}
	out, named, err := imageAccount(rootfs, who)
	if err != nil {
		return out, err
	}
	if gid != nil {
		out.GID = uint32(*gid)
	}
	if nonRoot != nil && *nonRoot {
		switch {
		case named:
			return out, fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", imageUser,
				whose(pod, c))
		case out.UID == 0 && uid != nil:
			return out, fmt.Errorf("%w %s", errRootAsked, whose(pod, c))
		case out.UID == 0:
			return out, fmt.Errorf("%w %s", errRootUser, whose(pod, c))
		}
	}
	if p := psc.SupplementalGroupsPolicy; p != nil && *p == corev1.SupplementalGroupsPolicyStrict {
		out.Groups = nil // those that the image's /etc/group names do not count
	}
	if psc.FSGroup != nil {
		out.Groups = append(out.Groups, uint32(*psc.FSGroup))
	}
	for _, g := range psc.SupplementalGroups {
		out.Groups = append(out.Groups, uint32(g))
	}
	slices.Sort(out.Groups)
	out.Groups = slices.Compact(out.Groups)
	// The primary group is one of them, as with other runtimes: a process that gives it up by a set-group-ID program
	// must not lose what is denied to that group (CVE-2022-36109).
	out.Groups = slices.DeleteFunc(out.Groups, func(g uint32) bool { return g == out.GID })
	out.Groups = slices.Insert(out.Groups, 0, out.GID)
	return out, nil
}

// whose ends these messages on Kubernetes.
func whose(pod *corev1.Pod, c *corev1.Container) string {
	return fmt.Sprintf("(pod: \"%s_%s(%s)\", container: %s)", pod.Name, pod.Namespace, pod.UID, c.Name)
}

func pickID(of ...*int64) *int64 {
	for _, p := range of {
		if p != nil {
			return p
		}
	}
	return nil
}

// imageAccount reads "user", "uid", "user:group", "uid:gid" against the image's account files. named says that
// the user was given by name.
func imageAccount(rootfs, spec string) (out runtime.User, named bool, err error) {
	user, group, _ := strings.Cut(spec, ":")
	for _, id := range []string{user, group} {
		// Beyond this the kernel and others disagree what a number means, and -1 means "stay root" (CVE-2024-40635).
		if n, err := strconv.ParseUint(id, 10, 64); err == nil && n > math.MaxInt32 {
			return out, false, fmt.Errorf("user %q: %d is larger than any user or group may be", spec, n)
		}
	}
	root, err := os.OpenRoot(rootfs) // a symlink in the image cannot lead out of it
	if err != nil {
		return out, false, fmt.Errorf("open root file system: %w", err)
	}
	defer root.Close()
	name := user
	if id, perr := strconv.ParseUint(user, 10, 32); user == "" || perr == nil {
		out.UID = uint32(id)
		account(root, "etc/passwd", func(f []string) bool {
			uid, gid, ok := ids(f, 2, 3)
			if !ok || uid != out.UID {
				return false
			}
			name, out.GID = f[0], gid
			return true
		})
	} else {
		named = true
		found := account(root, "etc/passwd", func(f []string) bool {
			uid, gid, ok := ids(f, 2, 3)
			if !ok || f[0] != user {
				return false
			}
			out.UID, out.GID = uid, gid
			return true
		})
		if !found {
			return out, named, fmt.Errorf("unable to find user %s: no such user in the image's /etc/passwd", user)
		}
	}
	if group != "" {
		out.GID, err = imageGroup(root, group)
		return out, named, err
	}
	if name != "" {
		account(root, "etc/group", func(f []string) bool {
			if gid, _, ok := ids(f, 2, 2); ok && gid != out.GID && slices.Contains(strings.Split(at(f, 3), ","), name) {
				out.Groups = append(out.Groups, gid)
			}
			return false
		})
	}
	return out, named, nil
}

func imageGroup(root *os.Root, group string) (gid uint32, err error) {
	if id, perr := strconv.ParseUint(group, 10, 32); perr == nil {
		return uint32(id), nil
	}
	found := account(root, "etc/group", func(f []string) bool {
		id, _, ok := ids(f, 2, 2)
		if !ok || f[0] != group {
			return false
		}
		gid = id
		return true
	})
	if !found {
		return 0, fmt.Errorf("unable to find group %s: no such group in the image's /etc/group", group)
	}
	return gid, nil
}

func at(f []string, i int) string {
	if i < len(f) {
		return f[i]
	}
	return ""
}

// ids reads two numbers of a line. A line whose numbers cannot be read is no line: it must not mean root.
func ids(f []string, i, j int) (a, b uint32, ok bool) {
	x, xerr := strconv.ParseUint(at(f, i), 10, 31)
	y, yerr := strconv.ParseUint(at(f, j), 10, 31)
	return uint32(x), uint32(y), xerr == nil && yerr == nil
}

// account calls fn with the fields of each line until it says true.
func account(root *os.Root, name string, fn func(fields []string) bool) bool {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO would block
	if err != nil {
		return false
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return false
	}
	sc := bufio.NewScanner(io.LimitReader(f, maxAccountFile))
	for sc.Scan() {
		if fn(strings.Split(sc.Text(), ":")) {
			return true
		}
	}
	return false
}

package libct

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"ledge/runtime"
)

var validSysctl = regexp.MustCompile(`^[a-z0-9_]+([./][a-zA-Z0-9_-]+)+$`)

// sysctlKey brings both spellings (net.ipv4.x, net/ipv4/x) to slashes. In the dotted one a slash stands for a dot.
func sysctlKey(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '/' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

// checkSysctls lets through only what belongs to a namespace that the pod has of its own: anything else would
// change the board.
func checkSysctls(p runtime.Pod) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p.Sysctls)) {
		key := sysctlKey(name)
		ipc := slices.Contains([]string{"kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/sem", "kernel/shmall",
			"kernel/shmmax", "kernel/shmmni", "kernel/shm_rmid_forced"}, key) || strings.HasPrefix(key, "fs/mqueue/")
		switch {
		case !validSysctl.MatchString(name):
			errs = append(errs, fmt.Errorf("sysctl %q: not a valid name", name))
		case ipc && p.HostIPC:
			errs = append(errs, fmt.Errorf("sysctl %q: the pod uses the host's IPC namespace", name))
		case strings.HasPrefix(key, "net/") && p.HostNetwork:
			errs = append(errs, fmt.Errorf("sysctl %q: the pod uses the host's network", name))
		case !ipc && !strings.HasPrefix(key, "net/"):
			errs = append(errs, fmt.Errorf("sysctl %q: belongs to the whole board, not to a pod", name))
		}
	}
	return errors.Join(errs...)
}

// writeSysctls runs on a thread inside the pod's namespaces: /proc/sys shows the values of who opens it.
func writeSysctls(list map[string]string, users *runtime.IDRange) error {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		write := func() error { return writeSysctl(sysctlKey(name), list[name]) }
		err := write()
		if errors.Is(err, os.ErrPermission) && users != nil {
			err = as(users.Host, write)
		}
		if err != nil {
			return fmt.Errorf("sysctl %s: %w", name, err)
		}
	}
	return nil
}

func writeSysctl(key, value string) error {
	f, err := os.OpenFile("/proc/sys/"+key, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/godbus/dbus/v5"
)

// Backend is how the machine is switched off once its pods have stopped (N-5.22).
type Backend string

// The backends. None does everything but the power-off: for tests, containers and a trial.
const (
	ByLogind Backend = "logind"
	Direct   Backend = "direct"
	None     Backend = "none"
)

// ParseBackend reads the word of a flag. Empty stays empty: whoever carries it out tries logind first and then the
// direct way, which has to wait until the store is closed.
func ParseBackend(word string) (Backend, error) {
	switch b := Backend(word); b {
	case "", ByLogind, Direct, None:
		return b, nil
	}
	return "", fmt.Errorf("%q is not logind, direct or none", word)
}

// Off switches the machine off or starts it again. The direct way comes back only with an error: whatever must be on
// disk has to be there before.
func (b Backend) Off(ctx context.Context, reboot bool) error {
	switch b {
	case None:
		return nil
	case Direct:
		return offDirect(reboot)
	case ByLogind:
		return offByLogind(ctx, reboot)
	}
	return fmt.Errorf("switch the machine off: %q is no way to do it", string(b))
}

func offDirect(reboot bool) error {
	cmd := syscall.LINUX_REBOOT_CMD_POWER_OFF
	if reboot {
		cmd = syscall.LINUX_REBOOT_CMD_RESTART
	}
	syscall.Sync()
	if err := syscall.Reboot(cmd); err != nil {
		return fmt.Errorf("switch the machine off: reboot(2): %w", err)
	}
	return nil
}

// inProgress is what logind says to a second one.
const inProgress = login1Name + ".OperationInProgress"

func offByLogind(ctx context.Context, reboot bool) error {
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx), dbus.WithAuth(dbus.AuthExternal(strconv.Itoa(os.Geteuid()))))
	if err != nil {
		return fmt.Errorf("switch the machine off: connect to the system bus: %w", err)
	}
	defer conn.Close()
	method := login1Iface + ".PowerOff"
	if reboot {
		method = login1Iface + ".Reboot"
	}
	err = conn.Object(login1Name, login1Path).CallWithContext(ctx, method, 0, false).Err
	if e, ok := errors.AsType[dbus.Error](err); ok && e.Name == inProgress {
		return nil // somebody was first; the machine goes down
	}
	if err != nil {
		return fmt.Errorf("switch the machine off: ask logind: %w", err)
	}
	return nil
}

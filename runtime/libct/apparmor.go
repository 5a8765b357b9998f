package libct

import (
	"fmt"
	"os"
	"strings"
)

// apparmorProfiles is where the kernel lists the profiles it has loaded, one "name (mode)" a line.
const apparmorProfiles = "/sys/kernel/security/apparmor/profiles"

// checkAppArmor refuses a profile that is not there: the kernel would say no more than "no such file". Profiles are
// loaded by the board's own tools; ledge runs none of them.
func (r *Runner) checkAppArmor(profile string) error {
	if profile == "" {
		return nil
	}
	if !r.host.apparmor {
		return fmt.Errorf("AppArmor profile %q: AppArmor is not enabled on the host", profile)
	}
	list, err := os.ReadFile(apparmorProfiles)
	if err != nil {
		return fmt.Errorf("AppArmor profile %q: %w", profile, err)
	}
	for line := range strings.Lines(string(list)) {
		if i := strings.LastIndex(line, " ("); i > 0 && line[:i] == profile {
			return nil
		}
	}
	return fmt.Errorf("AppArmor profile %q is not loaded; load it with apparmor_parser", profile)
}

package shutdown

import (
	"bufio"
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// logindDirs are where logind reads drop-ins, the one that beats the others first.
var logindDirs = []string{"etc/systemd/logind.conf.d", "run/systemd/logind.conf.d", "usr/local/lib/systemd/logind.conf.d",
	"usr/lib/systemd/logind.conf.d"}

// DelayFile is the file whose InhibitDelayMaxSec counts, below a root; "" when none has it. Packages install such
// files (unattended-upgrades does), and a file that sorts after ledge's overrides it (N-5.44).
func DelayFile(root string) string {
	found := map[string]string{} // by name: of two directories' files of one name only the first is read
	for _, dir := range logindDirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.conf"))
		if err != nil {
			continue
		}
		for _, f := range files {
			if name := filepath.Base(f); found[name] == "" {
				found[name] = f
			}
		}
	}
	files := make([]string, 0, len(found)+1)
	for _, f := range found {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(filepath.Base(b), filepath.Base(a)) })
	for _, f := range append(files, filepath.Join(root, "etc/systemd/logind.conf")) { // the last that says something counts
		if setsDelay(f) {
			return f
		}
	}
	return ""
}

func setsDelay(path string) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	section := ""
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section = line
		}
		key, _, ok := strings.Cut(line, "=")
		if ok && section == "[Login]" && strings.TrimSpace(key) == "InhibitDelayMaxSec" {
			return true
		}
	}
	return false
}

package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ledge/host/ntp"
)

// clockKeys are the keys of the configuration file about the time; ledge's own.
type clockKeys struct {
	// NTPServers are asked for the time. Not given: those of DHCP and the public ones, where ledge is process 1, and none elsewhere,
	// where the operating system asks. An empty list: none.
	NTPServers *[]string `json:"ntpServers,omitempty"`
}

func (k clockKeys) check() error {
	if k.NTPServers == nil {
		return nil
	}
	for i, s := range *k.NTPServers {
		name, port := ntp.Split(s)
		if n, perr := strconv.ParseUint(port, 10, 16); perr != nil || n == 0 || name == "" || strings.ContainsAny(name, " /[]") {
			return fmt.Errorf("ntpServers[%d]: %q is no server; give a name or an address, with :PORT if it is not 123", i, s)
		}
	}
	return nil
}

// publicTime is asked where nobody has named a server.
const publicTime = "pool.ntp.org"

// timeGiven is where the appliance's DHCP client leaves what it was told, a server on each line.
const timeGiven = "/run/network/*.ntp"

// TimeServers are whom to ask now; nil: this is another's work.
func (k clockKeys) TimeServers(underInit bool) func() []string {
	switch {
	case k.NTPServers != nil && len(*k.NTPServers) == 0, k.NTPServers == nil && !underInit:
		return nil
	case k.NTPServers != nil:
		return func() []string { return *k.NTPServers }
	}
	return func() []string { return append(serversIn(timeGiven), publicTime) }
}

func serversIn(pattern string) (servers []string) {
	files, _ := filepath.Glob(pattern) // sorted; the pattern is right
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			slog.Debug("time servers of an interface cannot be read", "err", err)
			continue
		}
		servers = append(servers, strings.Fields(string(text))...)
	}
	return servers
}

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestUnsaid(t *testing.T) {
	well := strings.Split(`ok    kernel               Linux 6.1.0
[    3.1] random: crng init done
ok    namespaces           mnt pid net
ok    cgroups              version 2
ok    overlayfs            works in /var/lib/ledge
ok    controllers          cpu memory pids
warn  clock                not synchronised with anything
                           -> switch time synchronisation on
ok    bridge               works
ok    veth                 works
ok    nftables             works`, "\n")
	other := strings.Split("ledge v0.0.0-dev (unknown, 1970-01-01T00:00:00Z)\nlibcontainer v1.4.0\nbbolt v1.4.3\ngo1.26.5", "\n")
	for _, tc := range []struct {
		name string
		args string
		said []string
		want []string
	}{
		{"all of it", "doctor", well, nil},
		{"a line is missing", "doctor", slices.Delete(slices.Clone(well), 4, 5), []string{"overlayfs"}},
		{"not well", "doctor", strings.Split(strings.Replace(strings.Join(well, "\n"), "ok    cgroups", "warn  cgroups", 1), "\n"),
			[]string{"cgroups"}},
		{"a name without a verdict", "doctor",
			strings.Split(strings.Replace(strings.Join(well, "\n"), "veth                 works", "veth", 1), "\n"), []string{"veth"}},
		{"what another verb prints", "doctor", other, checked},
		{"nothing", "doctor", nil, checked},
		{"another verb", "version", other, nil},
		{"another verb that says nothing", "version", nil, []string{"anything"}},
	} {
		if got := unsaid([]string{tc.args}, tc.said); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

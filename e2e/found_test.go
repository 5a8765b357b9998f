package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"ledge/network/mdns"
)

// TestFound: who is on the network of boards finds those that want it, and Services by their names, with nothing but the binary; a board
// that does not want it is silent.
func TestFound(t *testing.T) {
	t.Parallel()
	s := newShed(t, "mdns: true\n")
	laptop := s.board()
	find := func() (list []mdns.Board) {
		t.Helper()
		out, err := laptop.command(t.Context(), "find", "-o", "json", "--timeout", "300ms").Output()
		if err = errors.Join(err, json.Unmarshal(out, &list)); err != nil {
			t.Fatalf("find: %v\n%s", err, out)
		}
		return list
	}
	s.plane.eventually("the board is found", func() error {
		list := find()
		if len(list) != 1 || list[0].Name != s.plane.name+".local" || !strings.Contains(fmt.Sprint(list[0].Addresses), s.plane.address(1)) ||
			list[0].Port != shedPort || list[0].State != "Ready" || !strings.HasPrefix(list[0].Version, "v") {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	s.plane.apply(`apiVersion: v1
kind: Service
metadata: {name: web, annotations: {ledge.local/mdns: ` + s.plane.name + `w}}
spec: {type: LoadBalancer, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: bad, annotations: {ledge.local/mdns: a.b}}
spec: {type: LoadBalancer, ports: [{port: 8081}]}
`)
	s.plane.eventually("the Service has its name, and the other is told why it has none", func() error {
		if err := contains(s.plane.ledge("doctor"), s.plane.name+".local, "+s.plane.name+"w.local"); err != nil {
			return err
		}
		return contains(s.plane.ledge("describe", "service", "bad"), `"a.b" is no name`)
	})
	must(t, s.plane.signal(syscall.SIGTERM))
	s.plane.launch("serve", "--listen", fmt.Sprintf("0.0.0.0:%d", shedPort), "--mdns=false")
	s.ready(s.plane.name)
	if list := find(); len(list) > 0 {
		t.Errorf("a board that does not want it is found: %+v", list)
	}
}

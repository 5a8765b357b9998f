package bridge

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTry(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	got := Try()
	if len(got) != 4 {
		t.Fatal(got)
	}
	for _, tr := range got {
		if tr.Err != nil {
			t.Errorf("%s: %v", tr.Name, tr.Err)
		}
		if tr.Name == "" || tr.Remedy == "" {
			t.Errorf("%+v says too little", tr)
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Name, "ledgetry") {
			t.Error("left on the host:", l.Name)
		}
	}
	if err := explain(unix.EOPNOTSUPP); !errors.Is(err, unix.EOPNOTSUPP) || !strings.HasPrefix(err.Error(), "this kernel lacks") {
		t.Error(err)
	}
}

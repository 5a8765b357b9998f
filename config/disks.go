package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"ledge/api"
	"ledge/api/storage"
)

// diskKeys name the disks beside the card that hold claims.
type diskKeys struct {
	Disks []Disk `json:"disks,omitempty"`
}

// Disk is one: its class, and the label of its file system.
type Disk struct {
	Name  string `json:"name"`
	Label string `json:"label"`
}

// mostDisks is more than a board has room to plug in.
const mostDisks = 16

func (k diskKeys) check() error {
	if len(k.Disks) > mostDisks {
		return fmt.Errorf("disks: %d are more than %d", len(k.Disks), mostDisks)
	}
	names, labels := map[string]bool{}, map[string]bool{}
	for i, d := range k.Disks {
		bad := func(format string, args ...any) error {
			return fmt.Errorf("disks[%d]: "+format, append([]any{i}, args...)...)
		}
		switch {
		case len(validation.IsDNS1123Label(d.Name)) > 0:
			return bad("name %q is no name of a class, such as usb", d.Name)
		case d.Name == storage.CardClass:
			return bad("name %q is the class of the card itself", d.Name)
		case d.Label == "" || len(d.Label) > 16 || strings.ContainsAny(d.Label, "/\x00\n"):
			return bad("label %q is no label of a file system: 1 to 16 bytes, as e2label or xfs_admin -L gave it", d.Label)
		case names[d.Name] || labels[d.Label]:
			return bad("name %s or label %s stands there twice", d.Name, d.Label)
		}
		names[d.Name], labels[d.Label] = true, true
	}
	return nil
}

// disks has the Node say which there are, by which the scheduler finds them.
func (s *Settings) disks() error {
	if len(s.File.Disks) == 0 {
		return nil
	}
	if s.Kubeconfig != "" {
		return fmt.Errorf("disks: a node of a Kubernetes makes no volumes: remove the key, and give pods local volumes or a driver")
	}
	if s.Reg.Labels == nil {
		s.Reg.Labels = map[string]string{}
	}
	for _, d := range s.File.Disks {
		s.Reg.Labels[api.DiskLabel+d.Name] = "true"
	}
	return nil
}

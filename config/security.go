package config

import (
	"fmt"
	"slices"
	"strings"
)

// securityKeys are the keys about who may do what, and what is written down of it.
type securityKeys struct {
	// PodSecurity is the level of namespaces that have no label of their own.
	PodSecurity string `json:"podSecurity,omitempty"`
	// Audit says where it is written down who changed what.
	Audit auditConfig `json:"audit,omitempty"`
}

func (k securityKeys) check() error {
	if levels := []string{"privileged", "baseline", "restricted"}; k.PodSecurity != "" && !slices.Contains(levels, k.PodSecurity) {
		return fmt.Errorf("podSecurity: %q must be one of %s", k.PodSecurity, strings.Join(levels, ", "))
	}
	_, err := k.Audit.Log("", "")
	return err
}

package storage

import (
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
)

// CSIDrivers say how the volumes of a driver are used. They are kept for the clients and charts that look for them: a board runs no driver.
var CSIDrivers = api.Define(api.Kind{Group: "storage.k8s.io", Version: "v1", Name: "CSIDriver", Resource: "csidrivers",
	Singular: "csidriver", Generation: true, Compared: true},
	api.Rules[*storagev1.CSIDriver]{
		New:      func() *storagev1.CSIDriver { return &storagev1.CSIDriver{} },
		NewList:  func() api.ListObject { return &storagev1.CSIDriverList{} },
		Default:  defaultDriver,
		Fresh:    func(d *storagev1.CSIDriver) { d.Generation = 0 }, // Kubernetes counts changes only
		Validate: validateDriver,
		ValidateUpdate: func(d, old *storagev1.CSIDriver, _ string) field.ErrorList {
			at := field.NewPath("spec")
			errs := append(validateDriver(d), apivalidation.ValidateImmutableField(d.Spec.AttachRequired, old.Spec.AttachRequired,
				at.Child(attachRequired))...)
			return append(errs, apivalidation.ValidateImmutableField(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes,
				at.Child("volumeLifecycleModes"))...)
		},
		Warn: driverWarnings,
		Spec: func(d *storagev1.CSIDriver) any { return &d.Spec },
		Columns: table.Columns{
			table.Name,
			table.Column("AttachRequired", "boolean", "Whether volumes are attached to a node before they are mounted."),
			table.Column("PodInfoOnMount", "boolean", "Whether the driver is told about the pod."),
			table.Column("StorageCapacity", "boolean", "Whether the driver says how much it has left."),
			table.Column("TokenRequests", "string", "The audiences of the tokens that the driver gets."),
			table.Column("RequiresRepublish", "boolean", "Whether the driver is asked again and again."),
			table.Column("Modes", "string", "What kinds of volumes the driver has."),
			table.Age,
		},
		Cells: driverCells,
	})

// attachRequired is what Kubernetes calls the field attachRequired in its errors.
const attachRequired = "attachedRequired"

func defaultDriver(d *storagev1.CSIDriver) {
	s := &d.Spec
	set := func(to **bool, value bool) {
		if *to == nil {
			*to = &value
		}
	}
	set(&s.AttachRequired, true)
	for _, to := range []**bool{&s.PodInfoOnMount, &s.StorageCapacity, &s.RequiresRepublish, &s.SELinuxMount,
		&s.PreventPodSchedulingIfMissing} {
		set(to, false)
	}
	if s.FSGroupPolicy == nil {
		policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
		s.FSGroupPolicy = &policy
	}
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// Seconds: after how many a driver may be asked again how many volumes fit on a node, and how many its tokens may last.
const (
	minUpdatePeriod = 10
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

func validateDriver(d *storagev1.CSIDriver) field.ErrorList {
	s, at := &d.Spec, field.NewPath("spec")
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		said *bool
	}{{attachRequired, s.AttachRequired}, {"podInfoOnMount", s.PodInfoOnMount}, {"storageCapacity", s.StorageCapacity},
		{"seLinuxMount", s.SELinuxMount}, {"preventPodSchedulingIfMissing", s.PreventPodSchedulingIfMissing}} {
		if f.said == nil {
			errs = append(errs, field.Required(at.Child(f.name), ""))
		}
	}
	if p := s.FSGroupPolicy; p != nil {
		all := []storagev1.FSGroupPolicy{storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}
		if !slices.Contains(all, *p) {
			errs = append(errs, field.NotSupported(at.Child("fsGroupPolicy"), *p, all))
		}
	}
	errs = append(errs, validateTokenRequests(s.TokenRequests, at.Child("tokenRequests"))...)
	all := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}
	for _, m := range s.VolumeLifecycleModes {
		if !slices.Contains(all, m) {
			errs = append(errs, field.NotSupported(at.Child("volumeLifecycleModes"), m, all))
		}
	}
	if p := s.NodeAllocatableUpdatePeriodSeconds; p != nil && *p < minUpdatePeriod {
		errs = append(errs, field.Invalid(at.Child("nodeAllocatableUpdatePeriodSeconds"), *p, "must be greater than or equal to 10 seconds"))
	}
	if in := s.ServiceAccountTokenInSecrets; in != nil && len(s.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(at.Child("serviceAccountTokenInSecrets"), *in,
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

// validateTokenRequests: one token for each audience, each of a time that can be asked for.
func validateTokenRequests(list []storagev1.TokenRequest, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, r := range list {
		at := at.Index(i)
		if seen[r.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), r.Audience))
			continue
		}
		seen[r.Audience] = true
		switch seconds, at := r.ExpirationSeconds, at.Child("expirationSeconds"); {
		case seconds == nil:
		case *seconds < minTokenSeconds:
			errs = append(errs, field.Invalid(at, *seconds, "may not specify a duration less than 10 minutes"))
		case *seconds > maxTokenSeconds:
			errs = append(errs, field.Invalid(at, *seconds, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	return errs
}

func driverWarnings(d *storagev1.CSIDriver) []string {
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of " +
		"tokens in volume attributes"}
}

func driverCells(d *storagev1.CSIDriver, l table.Look) []any {
	tokens := "<unset>"
	if d.Spec.TokenRequests != nil {
		var audiences []string
		for _, r := range d.Spec.TokenRequests {
			audiences = append(audiences, r.Audience)
		}
		tokens = strings.Join(audiences, ",")
	}
	var modes []string
	for _, m := range d.Spec.VolumeLifecycleModes {
		modes = append(modes, string(m))
	}
	shown := d.DeepCopy()
	defaultDriver(shown)
	s := &shown.Spec
	return []any{d.Name, *s.AttachRequired, *s.PodInfoOnMount, *s.StorageCapacity, tokens, *s.RequiresRepublish,
		table.OrNone(strings.Join(modes, ",")), l.AgeOf(d)}
}

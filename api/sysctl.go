package api

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const sysctlPattern = `[a-z0-9]([-_a-z0-9]*[a-z0-9])?([\./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*`

// validSysctl is made when somebody first asks: what is made before main is paid for every container.
var validSysctl = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^" + sysctlPattern + "$") })

// SysctlName brings both spellings to dots: in net/ipv4/conf/eth0.1/x a dot is part of a name, as a slash is in
// net.ipv4.conf.eth0/1.x.
func SysctlName(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

func validateSysctls(list []corev1.Sysctl, s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, x := range list {
		at, name := at.Index(i), SysctlName(x.Name)
		switch {
		case x.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case len(x.Name) > 253 || !validSysctl().MatchString(x.Name):
			errs = append(errs, field.Invalid(at.Child("name"), x.Name,
				fmt.Sprintf("must have at most 253 characters and match regex %s", "^"+sysctlPattern+"$")))
		case seen[name]:
			errs = append(errs, field.Duplicate(at.Child("name"), x.Name))
		}
		seen[name] = true
		if s.HostNetwork && strings.HasPrefix(name, "net.") {
			errs = append(errs, field.Invalid(at.Child("name"), x.Name, "may not be specified when 'hostNetwork' is true"))
		}
		ipc := name == "kernel.sem"
		for _, p := range []string{"kernel.shm", "kernel.msg", "fs.mqueue."} {
			ipc = ipc || strings.HasPrefix(name, p)
		}
		if s.HostIPC && ipc {
			errs = append(errs, field.Invalid(at.Child("name"), x.Name, "may not be specified when 'hostIPC' is true"))
		}
	}
	return errs
}

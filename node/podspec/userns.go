package podspec

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// A pod with hostUsers: false has users of its own: a block of the board's numbers that no other pod has. The engine
// remembers whose is whose, as long as the pod stands; nothing on disk carries these numbers.
const (
	usersEach  = 1 << 16
	usersFirst = 0x70000000 // above those that distributions and other managers of containers hand out
	usersLast  = 1<<31 - 2*usersEach
)

// OwnUsers says whether a pod asks for users of its own.
func OwnUsers(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

var errNoUsers = errors.New("no block of users is left for a pod with hostUsers: false")

// FreeUsers is the first block that is not taken, by its first number on the host.
func FreeUsers(taken map[uint32]bool) (runtime.IDRange, error) {
	for host := uint32(usersFirst); host <= usersLast; host += usersEach {
		if !taken[host] {
			return runtime.IDRange{Host: host, Size: usersEach}, nil
		}
	}
	return runtime.IDRange{}, errNoUsers
}

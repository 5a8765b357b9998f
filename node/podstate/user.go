package podstate

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// LabelUser is the container label that carries the user it was started as. Often only the image knows the user, so
// the label keeps it for a restarted brain to report.
const LabelUser = "ledge.user"

// UserKey is what LabelUser holds for a user.
func UserKey(u runtime.User) string {
	text, err := json.Marshal(u)
	if err != nil {
		panic("ledge bug: " + err.Error()) // three kinds of numbers
	}
	return string(text)
}

// user is the status's account of the user that a container was started as; nil when it is not on record.
func user(s *runtime.Status) *corev1.ContainerUser {
	var u runtime.User
	if err := json.Unmarshal([]byte(s.Labels[LabelUser]), &u); err != nil {
		return nil
	}
	out := &corev1.LinuxContainerUser{UID: int64(u.UID), GID: int64(u.GID)}
	for _, g := range u.Groups {
		out.SupplementalGroups = append(out.SupplementalGroups, int64(g))
	}
	return &corev1.ContainerUser{Linux: out}
}

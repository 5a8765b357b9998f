package node

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"

	"testing"
)

// TestEnvFromFile: a container waits until the file is as it should be, and starts with what an init container wrote.
func TestEnvFromFile(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		p := r.pod("p", volumeOf(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{*p.Spec.Containers[0].DeepCopy()}
			p.Spec.InitContainers[0].Name = "i"
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{
				FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: "vars", Key: "A"}}}}
		})
		r.pass(time.Second)
		file := filepath.Join(r.dir, "data/volumes", string(p.UID), "v/vars")
		if err := os.Symlink("/etc/passwd", file); err != nil {
			t.Fatal(err)
		}
		r.engine.End(containerID(p, "i", 0), runtime.Exit{})
		r.pass(time.Second)
		if w := r.waiting("p"); w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, "couldn't read env file") {
			t.Errorf("with a link out of the volume: %+v", w)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("A='from init'\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		if st := r.get("p").Status; st.Phase != corev1.PodRunning {
			t.Errorf("%s %+v", st.Phase, r.waiting("p"))
		}
		r.delete("p", nil)
		r.pass(time.Minute)
		r.nothingLeft()
	})
}

package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
	"ledge/node/podstate"
)

// bare is an agent that is not running, with directories of its own.
func bare(t *testing.T) (a *Agent, dir string) {
	t.Helper()
	dir = t.TempDir()
	cfg := idle(filepath.Join(dir, "data"), filepath.Join(dir, "run"))
	cfg.ResolvConf, cfg.HostsFile = filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a, dir
}

// TestContainerSpec is one container with everything that does not depend on anything else.
func TestContainerSpec(t *testing.T) {
	a, dir := bare(t)
	yes := true
	pod := aPod("web", func(p *corev1.Pod) {
		p.UID = "u1"
		p.Status.QOSClass = corev1.PodQOSBestEffort
		p.Spec.HostPID, p.Spec.HostIPC = true, true
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		c := &p.Spec.Containers[0]
		c.TerminationMessagePath = "/dev/termination-log"
		c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/etc/hosts/"}}
		c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: &yes}
	})
	img := images.Image{Config: images.Config{WorkingDir: "/srv", StopSignal: "SIGINT", User: "5:6"}}
	got, err := a.hands.containerSpec(t.Context(), pod, &pod.Spec.Containers[0], "u1.c.3", 3, t.TempDir(), img,
		place{ips: []string{"10.0.0.2"}})
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != "u1.c.3" || got.PodUID != "u1" || got.Name != "c" || got.Attempt != 3 || got.Cwd != "/srv" ||
		!slices.Equal(got.Args, []string{"app"}) ||
		got.User.UID != 5 || got.User.GID != 6 || !got.ReadonlyRootfs || got.Privileged || got.NoNewPrivs ||
		got.LogPath != filepath.Join(dir, "data/logs/default_web_u1/c/3.log") ||
		got.Labels[podstate.LabelStopSignal] != "SIGINT" || got.Labels[podstate.LabelImage] != image {
		t.Errorf("%+v", got)
	}
	var targets []string
	for _, m := range got.Mounts {
		targets = append(targets, m.Target)
		if !filepath.IsAbs(m.Source) {
			t.Errorf("mount of %q", m.Source)
		}
	}
	// The pod's own mount at /etc/hosts takes the place of ours.
	if want := []string{"/etc/hosts/", "/dev/termination-log", "/etc/resolv.conf", "/etc/hostname"}; !slices.Equal(targets, want) {
		t.Errorf("mounts at %q, want %q", targets, want)
	}
	st, err := os.Stat(a.hands.messageFile("u1", "u1.c.3"))
	if err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("message file %v %v", st, err)
	}
	p, err := a.board().Pod(pod, nil)
	if err != nil || p.UID != "u1" || p.Hostname != "web" || !p.HostPID || !p.HostIPC || p.HostNetwork ||
		p.Cgroup != "kubepods/besteffort/podu1" {
		t.Errorf("%+v", p)
	}

	pod.Spec.Containers[0].WorkingDir, img.Config.User = "/w", "nobody"
	if _, err := a.hands.containerSpec(t.Context(), pod, &pod.Spec.Containers[0], "u1.c.3", 3, t.TempDir(), img, place{}); err == nil {
		t.Error("a user that is not there was taken")
	}
	img.Config.User, img.Config.WorkingDir = "", ""
	if got, err = a.hands.containerSpec(t.Context(), pod, &pod.Spec.Containers[0], "u1.c.3", 3, t.TempDir(), img, place{}); err != nil ||
		got.Cwd != "/w" {
		t.Errorf("%q %v", got.Cwd, err)
	}
	pod.Spec.Containers[0].WorkingDir, pod.Spec.Containers[0].Command = "", nil
	if _, err := a.hands.containerSpec(t.Context(), pod, &pod.Spec.Containers[0], "u1.c.3", 3, t.TempDir(), img, place{}); err == nil ||
		!strings.Contains(err.Error(), "no command") {
		t.Errorf("without a command: %v", err)
	}
}

func TestHostPorts(t *testing.T) {
	pod := aPod("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 8081, Protocol: "UDP"},
			{ContainerPort: 82, HostPort: 8082, HostIP: "192.0.2.10", Protocol: "TCP"},
			{ContainerPort: 83, HostPort: 8083, HostIP: "0.0.0.0", Protocol: "TCP"}}
	})
	got := hostPorts(pod)
	if len(got) != 3 || got[0].HostIP.IsValid() || got[0].Protocol != "UDP" || got[0].HostPort != 8081 || got[0].ContainerPort != 81 ||
		got[1].HostIP.String() != "192.0.2.10" || got[2].HostIP.IsValid() {
		t.Errorf("%+v", got)
	}
}

func TestNewNeeds(t *testing.T) {
	if _, err := New(Config{Name: "n"}); err == nil {
		t.Error("an agent of nothing")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(idle(file, t.TempDir())); err == nil {
		t.Error("a data directory that is a file was taken")
	}
}

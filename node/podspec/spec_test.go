package podspec

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"ledge/api"
	"ledge/images"
	"ledge/node/devices"
	"ledge/node/podlog"
	"ledge/node/volume"
	"ledge/runtime"
)

var update = flag.Bool("update", false, "write the golden files again")

const image = "example.com/app:v1"

func aPod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.NodeName = "n"
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: image, Command: []string{"app"}}}
	for _, f := range edit {
		f(p)
	}
	return p
}

// played is what a spec needs, from maps.
type played struct {
	configMaps, secrets map[string]map[string]string
	files               map[string]string // by "volume/path"
	services            []*corev1.Service
	devices             []devices.Given
	blocks              []volume.Block
	plugged             Plugged
	mounts              []runtime.Mount // beside the usual one
}

func (p played) Devices() ([]devices.Given, error) { return p.devices, nil }
func (p played) Blocks() ([]volume.Block, error)   { return p.blocks, nil }

func (p played) Plugged(context.Context) (Plugged, error) { return p.plugged, nil }

func (p played) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if data, ok := p.configMaps[name]; ok {
		return &corev1.ConfigMap{Data: data}, nil
	}
	return nil, errors.New("no such ConfigMap")
}

func (p played) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	data, ok := p.secrets[name]
	if !ok {
		return nil, errors.New("no such Secret")
	}
	out := &corev1.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		out.Data[k] = []byte(v)
	}
	return out, nil
}

func (p played) File(volume, path string) ([]byte, error) {
	if text, ok := p.files[volume+"/"+path]; ok {
		return []byte(text), nil
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

func (p played) SeccompProfile(name string) ([]byte, error) { return []byte("profile " + name), nil }

func (p played) Services(context.Context, string) ([]*corev1.Service, error) { return p.services, nil }

func (p played) Mounts(ctx context.Context, expand func(string) (string, error)) ([]runtime.Mount, error) {
	target, err := expand("/data/$(WHO)")
	return append([]runtime.Mount{{Source: "/volumes/v", Target: target}}, p.mounts...), err
}

// TestSpecs compares what becomes of the pods in testdata with the text beside each. They run on one board, from one image.
func TestSpecs(t *testing.T) {
	board := Board{Node: "n", Hostname: "board", IPs: []string{"192.0.2.10"}, APIServer: netip.MustParseAddrPort("0.0.0.0:6443"),
		ClusterDNS: []string{"10.96.0.10"}, Allocatable: corev1.ResourceList{"memory": resource.MustParse("3Gi")},
		Logs: podlog.Config{MaxBytes: 1 << 20, MaxFiles: 3},
		Limits: Limits{CgroupV2: true, MemoryTotal: 4 << 30, SwapTotal: 1 << 30, Allocatable: 3 << 30, PIDMax: 32768,
			ForPods: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("3Gi")}}}
	img := images.Image{Config: images.Config{Entrypoint: []string{"/entry"}, Cmd: []string{"cmd"}, Env: []string{"PATH=/bin", "FROM=image"},
		User: "web", StopSignal: "SIGQUIT"}}
	root := rootfs(t, map[string]string{"passwd": passwd, "group": group})
	needs := played{configMaps: map[string]map[string]string{"settings": {"COLOUR": "red"}},
		secrets: map[string]map[string]string{"key": {"token": "s3"}}}
	pods, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(pods) == 0 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	for _, file := range pods {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got := specs(t, file, board, img, root, needs)
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || string(got) != string(want) {
				t.Errorf("%v: see what -update changes; got\n%s", err, got)
			}
		})
	}
}

// specs is the spec of a pod and of each of its containers without what is nothing; a container that cannot run is the reason why.
func specs(t *testing.T, file string, board Board, img images.Image, root string, needs Needs) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(text, pod); err != nil {
		t.Fatal(err)
	}
	pod.UID, pod.Namespace = "u1", "default"
	api.Pods.Default(pod)
	if err := api.Pods.Validate(pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.QOSClass = api.QOSClass(pod)
	var out []any
	p, err := board.Pod(pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	out = append(out, p)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		at := Attempt{Pod: pod, Container: c, ID: "u1." + c.Name + ".0", Image: img, Rootfs: root, PodIPs: []string{"10.0.0.2"},
			LogPath: "/logs/" + c.Name, LogRoot: "/logs"}
		spec, err := board.Container(t.Context(), at, needs)
		if again, _ := board.Container(t.Context(), at, needs); !reflect.DeepEqual(again, spec) {
			t.Errorf("a second time: %+v", again)
		}
		if spec.Rootfs = "/rootfs"; err != nil {
			out = append(out, err.Error())
			continue
		}
		out = append(out, spec)
	}
	data, err := json.Marshal(out)
	var plain any
	if err == nil {
		err = json.Unmarshal(data, &plain)
	}
	if err == nil {
		data, err = yaml.Marshal(bare(plain))
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// bare leaves out what is nothing.
func bare(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = bare(v[i])
		}
	case map[string]any:
		for key, x := range v {
			x = bare(x)
			if m, ok := x.(map[string]any); x == nil || x == false || x == "" || x == 0.0 || ok && len(m) == 0 {
				delete(v, key)
			} else {
				v[key] = x
			}
		}
	}
	return v
}

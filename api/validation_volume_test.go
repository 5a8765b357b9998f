package api

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

func vol(s corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: s}} }
}

func projected(s ...corev1.VolumeProjection) func(*corev1.Pod) {
	return vol(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: s}})
}

func downwardFiles(items ...corev1.DownwardAPIVolumeFile) func(*corev1.Pod) {
	return vol(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}})
}

func fieldRef(path string) *corev1.ObjectFieldSelector {
	return &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}
}

// TestVolumeRules: volumes made of objects, as Kubernetes checks them.
func TestVolumeRules(t *testing.T) {
	const v = "spec.volumes[0]."
	config := func(items ...corev1.KeyToPath) func(*corev1.Pod) {
		return vol(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: locally("c"), Items: items}})
	}
	for _, c := range []struct {
		name        string
		change      func(*corev1.Pod)
		field, text string
	}{
		{"config", config(corev1.KeyToPath{Key: "k", Path: "a/b/..c", Mode: ptr(int32(0o400))}), "", ""},
		{"config without a name", vol(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}), v + "configMap.name", "Required"},
		{"secret", vol(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}), "", ""},
		{"secret without a name", vol(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}), v + "secret.secretName", "Required"},
		{"mode", vol(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: ptr(int32(0o1000))}}),
			v + "secret.defaultMode", "0777 (octal)"},
		{"mode of a key", config(corev1.KeyToPath{Key: "k", Path: "p", Mode: ptr(int32(-1))}), v + "configMap.items[0].mode", "0777 (octal)"},
		{"no key", config(corev1.KeyToPath{Path: "p"}), v + "configMap.items[0].key", "Required"},
		{"no path", config(corev1.KeyToPath{Key: "k"}), v + "configMap.items[0].path", "Required"},
		{"absolute", config(corev1.KeyToPath{Key: "k", Path: "/p"}), v + "configMap.items[0].path", "must be a relative path"},
		{"climbs", config(corev1.KeyToPath{Key: "k", Path: "a/../../p"}), v + "configMap.items[0].path", "must not contain '..'"},
		{"own name", config(corev1.KeyToPath{Key: "k", Path: "..data"}), v + "configMap.items[0].path", "must not start with '..'"},
		{"two kinds", vol(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x", Type: ptr(corev1.HostPathUnset)},
			Secret: &corev1.SecretVolumeSource{SecretName: "s"}}), v + "secret", "more than 1 volume type"},
		{"mode", vol(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Mode: ptr(int32(0o1777))}}), "", ""},
		{"mode of a program", vol(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Mode: ptr(int32(0o4755))}}), v + "emptyDir.mode",
			"01777"},
		{"negative mode", vol(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Mode: ptr(int32(-1))}}), v + "emptyDir.mode", "01777"},
		{"negative size", vol(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr(resource.MustParse("-1"))}}),
			v + "emptyDir.sizeLimit", "valid resource quantity"},

		{"labels", downwardFiles(corev1.DownwardAPIVolumeFile{Path: "l", FieldRef: fieldRef("metadata.labels")},
			corev1.DownwardAPIVolumeFile{Path: "a", FieldRef: fieldRef("metadata.annotations['x/y']")}), "", ""},
		{"no pod IP in files", downwardFiles(corev1.DownwardAPIVolumeFile{Path: "l", FieldRef: fieldRef("status.podIP")}),
			v + "downwardAPI.items[0].fieldRef.fieldPath", "Unsupported"},
		{"no field", downwardFiles(corev1.DownwardAPIVolumeFile{Path: "l", FieldRef: fieldRef("")}),
			v + "downwardAPI.items[0].fieldRef.fieldPath", "Required"},
		{"other subscript", downwardFiles(corev1.DownwardAPIVolumeFile{Path: "l", FieldRef: fieldRef("metadata.name['x']")}),
			v + "downwardAPI.items[0].fieldRef.fieldPath", "Unsupported"},
		{"limit", downwardFiles(corev1.DownwardAPIVolumeFile{Path: "l",
			ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"}}), "", ""},
		{"limit of nobody", downwardFiles(corev1.DownwardAPIVolumeFile{Path: "l",
			ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}),
			v + "downwardAPI.items[0].resourceFieldRef.containerName", "Required"},
		{"both", downwardFiles(corev1.DownwardAPIVolumeFile{Path: "l", FieldRef: fieldRef("metadata.name"),
			ResourceFieldRef: &corev1.ResourceFieldSelector{}}),
			v + "downwardAPI.items[0]", "simultaneously"},
		{"neither", downwardFiles(corev1.DownwardAPIVolumeFile{Path: "l"}), v + "downwardAPI.items[0].fieldRef", "Required"},

		{"projected", projected(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: locally("c")}},
			corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: locally("s")}},
			corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "n",
				FieldRef: fieldRef("metadata.name")}}}}), "", ""},
		{"projected nothing", projected(corev1.VolumeProjection{}), v + "projected.sources[0]", "Required"},
		{"projected two", projected(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: locally("c")},
			Secret: &corev1.SecretProjection{LocalObjectReference: locally("s")}}), v + "projected.sources[0].configMap", "more than 1 volume type"},
		{"one path twice", projected(
			corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: locally("c"),
				Items: []corev1.KeyToPath{{Key: "k", Path: "p"}}}},
			corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: locally("s"),
				Items: []corev1.KeyToPath{{Key: "k", Path: "p"}}}}),
			v + "projected.sources[1].secret.items[0].path", "conflicting duplicate paths"},

		{"image", vol(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "a:1", PullPolicy: corev1.PullNever}}), "", ""},
		{"image of nothing", vol(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{PullPolicy: corev1.PullNever}}), v + "image.reference",
			"Required"},
		{"image policy", vol(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "a:1", PullPolicy: "x"}}), v + "image.pullPolicy",
			"Unsupported"},

		{"groups", func(p *corev1.Pod) {
			p.Spec.SecurityContext.FSGroup, p.Spec.SecurityContext.FSGroupChangePolicy = ptr(int64(7)), ptr(corev1.FSGroupChangeOnRootMismatch)
			p.Spec.SecurityContext.SupplementalGroupsPolicy = ptr(corev1.SupplementalGroupsPolicyStrict)
		}, "", ""},
		{"bad group", func(p *corev1.Pod) { p.Spec.SecurityContext.FSGroup = ptr(int64(-1)) }, "spec.securityContext.fsGroup", ""},
		{"bad change policy", func(p *corev1.Pod) {
			p.Spec.SecurityContext.FSGroupChangePolicy = ptr(corev1.PodFSGroupChangePolicy("x"))
		}, "spec.securityContext.fsGroupChangePolicy", ""},
		{"bad groups policy", func(p *corev1.Pod) {
			p.Spec.SecurityContext.SupplementalGroupsPolicy = ptr(corev1.SupplementalGroupsPolicy("x"))
		}, "spec.securityContext.supplementalGroupsPolicy", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := validPod()
			c.change(p)
			wants(t, validate(p), c.field, c.text)
		})
	}
}

// TestVolumeDefaults: files are 0644 and tokens good for an hour unless the pod says otherwise.
func TestVolumeDefaults(t *testing.T) {
	p := &corev1.Pod{}
	p.Spec.Volumes = []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{DefaultMode: ptr(int32(0o400))}}},
		{VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{FieldRef: &corev1.ObjectFieldSelector{}}}}}},
		{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{FieldRef: &corev1.ObjectFieldSelector{}}}}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}}},
	}
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "a:1"}}},
		corev1.Volume{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "a"}}})
	fill(p)
	vs := p.Spec.Volumes
	if vs[4].Image.PullPolicy != corev1.PullIfNotPresent || vs[5].Image.PullPolicy != corev1.PullAlways {
		t.Errorf("image volumes: %+v", vs[4:])
	}
	pr := vs[3].Projected
	if *vs[0].ConfigMap.DefaultMode != 0o644 || *vs[1].Secret.DefaultMode != 0o400 || *vs[2].DownwardAPI.DefaultMode != 0o644 ||
		*pr.DefaultMode != 0o644 ||
		vs[2].DownwardAPI.Items[0].FieldRef.APIVersion != "v1" || pr.Sources[0].DownwardAPI.Items[0].FieldRef.APIVersion != "v1" ||
		*pr.Sources[1].ServiceAccountToken.ExpirationSeconds != 3600 {
		t.Errorf("%+v", p.Spec.Volumes)
	}
	again := p.DeepCopy()
	if fill(again); !apiequality.Semantic.DeepEqual(p, again) {
		t.Error("defaults applied twice differ")
	}
}

// TestMountRules: parts of volumes, and mounts that pass between the board and a container.
func TestMountRules(t *testing.T) {
	const m = c0 + "volumeMounts[0]."
	with := func(mnt corev1.VolumeMount, privileged ...bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			mnt.Name, mnt.MountPath = "v", "/v"
			mount(p, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, mnt)
			for i := range privileged {
				security(p).Privileged = &privileged[i]
			}
		}
	}
	for _, c := range []struct {
		name        string
		change      func(*corev1.Pod)
		field, text string
	}{
		{"part", with(corev1.VolumeMount{SubPath: "a/..b/c"}), "", ""},
		{"absolute part", with(corev1.VolumeMount{SubPath: "/a"}), m + "subPath", "must be a relative path"},
		{"part that climbs", with(corev1.VolumeMount{SubPath: "a/../b"}), m + "subPath", "must not contain '..'"},
		{"made part", with(corev1.VolumeMount{SubPathExpr: "$(A)/b"}), "", ""},
		{"made part that climbs", with(corev1.VolumeMount{SubPathExpr: "../$(A)"}), m + "subPathExpr", "must not contain '..'"},
		{"both parts", with(corev1.VolumeMount{SubPath: "a", SubPathExpr: "b"}), m + "subPathExpr", "mutually exclusive"},
		{"propagation", with(corev1.VolumeMount{MountPropagation: ptr(corev1.MountPropagationHostToContainer)}), "", ""},
		{"unknown propagation", with(corev1.VolumeMount{MountPropagation: ptr(corev1.MountPropagationMode("x"))}), m + "mountPropagation",
			"Unsupported"},
		{"both ways", with(corev1.VolumeMount{MountPropagation: ptr(corev1.MountPropagationBidirectional)}), m + "mountPropagation",
			"only to privileged"},
		{"both ways, not privileged", with(corev1.VolumeMount{MountPropagation: ptr(corev1.MountPropagationBidirectional)}, false),
			m + "mountPropagation", "only to privileged"},
		{"both ways, privileged", with(corev1.VolumeMount{MountPropagation: ptr(corev1.MountPropagationBidirectional)}, true), "", ""},
		{"read-only below", with(corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyEnabled),
			MountPropagation: ptr(corev1.MountPropagationNone)}), "", ""},
		{"read-only below only", with(corev1.VolumeMount{RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyIfPossible)}), m + "recursiveReadOnly",
			"when readOnly is true"},
		{"not read-only below", with(corev1.VolumeMount{RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyDisabled)}), "", ""},
		{"read-only below and propagation", with(corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyEnabled),
			MountPropagation: ptr(corev1.MountPropagationHostToContainer)}), m + "recursiveReadOnly", "mountPropagation is None"},
		{"unknown below", with(corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyMode("x"))}),
			m + "recursiveReadOnly", "Unsupported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := validPod()
			c.change(p)
			wants(t, validate(p), c.field, c.text)
		})
	}
}

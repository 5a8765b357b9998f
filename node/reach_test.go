package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
	"ledge/node/poster"
)

// aims is a term of a node affinity.
func aims(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

func aimsAtName(op corev1.NodeSelectorOperator, name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: op, Values: []string{name}}}}
}

// bound makes a claim with a volume at a directory of boards, bound to each other.
func (r *rig) bound(name, path string, terms ...corev1.NodeSelectorTerm) {
	r.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, VolumeName: name,
		Resources: corev1.VolumeResourceRequirements{Requests: size}}}
	c.Namespace, c.Name = "default", name
	c, err := api.Create(r.Context(), r.Client, api.PersistentVolumeClaims, c)
	if err != nil {
		r.Fatal(err)
	}
	c.Status.Phase = corev1.ClaimBound
	if _, err := api.UpdateStatus(r.Context(), r.Client, api.PersistentVolumeClaims, c); err != nil {
		r.Fatal(err)
	}
	v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{Capacity: size, AccessModes: modes,
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
		NodeAffinity:           &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}},
		ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: name, UID: c.UID}}}
	v.Name = name
	if _, err := api.Create(r.Context(), r.Client, api.PersistentVolumes, v); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

// TestVolumesOfOthers: a pod that came past the scheduler gets no directory of this board that its volume does not mean, in whatever way
// the volume says so.
func TestVolumesOfOthers(t *testing.T) {
	needsRoot(t)
	const in, notIn = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn
	const host, zone = corev1.LabelHostname, corev1.LabelTopologyZone
	with(t, nil, func(r *rig) {
		r.cfg.Registration = poster.Registration{Labels: map[string]string{zone: "here"}}
		r.begin()
		r.pass(time.Second)
		data := filepath.Join(r.dir, "mnt")
		if err := os.Mkdir(data, 0o755); err != nil {
			t.Fatal(err)
		}
		var told []string
		for i, test := range []struct {
			what  string
			ok    bool
			terms []corev1.NodeSelectorTerm
		}{
			{"this board", true, []corev1.NodeSelectorTerm{aims(host, in, "n")}},
			{"another", false, []corev1.NodeSelectorTerm{aims(host, in, "a")}},
			{"two others", false, []corev1.NodeSelectorTerm{aims(host, in, "a", "b")}},
			{"two, this one too", true, []corev1.NodeSelectorTerm{aims(host, in, "a", "n")}},
			{"two terms", false, []corev1.NodeSelectorTerm{aims(host, in, "a"), aims(host, in, "b")}},
			{"two terms, this one too", true, []corev1.NodeSelectorTerm{aims(host, in, "a"), aims(host, in, "n")}},
			{"another zone", false, []corev1.NodeSelectorTerm{aims(zone, in, "there")}},
			{"this zone", true, []corev1.NodeSelectorTerm{aims(zone, in, "here")}},
			{"all but this board", false, []corev1.NodeSelectorTerm{aims(host, notIn, "n")}},
			{"all but another", true, []corev1.NodeSelectorTerm{aims(host, notIn, "a")}},
			{"another by name", false, []corev1.NodeSelectorTerm{aimsAtName(in, "a")}},
			{"this one by name", true, []corev1.NodeSelectorTerm{aimsAtName(in, "n")}},
			{"all but this name", false, []corev1.NodeSelectorTerm{aimsAtName(notIn, "n")}},
			{"this board in another zone", false, []corev1.NodeSelectorTerm{{MatchExpressions: append(
				aims(host, in, "n").MatchExpressions, aims(zone, in, "there").MatchExpressions...)}}},
		} {
			name := fmt.Sprintf("p%d", i)
			r.bound(name, data, test.terms...)
			r.pod(name, volumeOf(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}))
			r.pass(5 * time.Second)
			if got := r.get(name).Status.Phase == corev1.PodRunning; got != test.ok {
				t.Errorf("%s: the pod runs: %v", test.what, got)
			}
			if !test.ok {
				told = append(told, fmt.Sprintf(`Warning FailedMount %s: MountVolume.SetUp failed for volume "v" : `+
					`MountVolume.NodeAffinity check failed for volume %q : no matching NodeSelectorTerms`, name, name))
			}
			r.want(test.what, r.events.of("FailedMount"), told...)
			r.delete(name, new(int64))
			r.pass(time.Minute)
		}
		// Where the board does not know its Node yet, only a volume that can be used anywhere is there.
		v, err := api.Get[*corev1.PersistentVolume](r.Context(), r.Client, api.PersistentVolumes, "", "p0")
		if err != nil {
			t.Fatal(err)
		}
		lost := &Agent{cfg: Config{Name: "n"}, self: api.NewView[*corev1.Node](r.Client, api.Nodes, api.Selection{})}
		if err := lost.reaches(v); err == nil || err.Error() != `error retrieving node: node "n" not found` {
			t.Error(err)
		}
		v.Spec.NodeAffinity = nil
		if err := lost.reaches(v); err != nil {
			t.Error(err)
		}
		r.nothingLeft()
	})
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const claimsPath = "/api/v1/namespaces/default/persistentvolumeclaims"

// claims measures what lasts: a pod with a claim of its own, writing to it, and quotas on the way of each write.
func (n *node) claims(ctx context.Context) error {
	return errors.Join(n.claimAndPod(ctx), n.byHelperPods(ctx), n.writeSpeed(ctx), n.besideQuotas(ctx))
}

func claimObject(name, size string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"accessModes": []string{"ReadWriteOnce"},
			"resources": map[string]any{"requests": map[string]any{"storage": size}}}}
}

func withClaim(name string) map[string]any {
	pod := podObject(name, false)
	spec := pod["spec"].(map[string]any)
	spec["volumes"] = []any{map[string]any{"name": "v", "persistentVolumeClaim": map[string]any{"claimName": name}}}
	spec["containers"].([]any)[0].(map[string]any)["volumeMounts"] = []any{map[string]any{"name": "v", "mountPath": "/v"}}
	return pod
}

// claimAndPod is the way of a claim and its pod: scheduled, a directory made and synced, volume, binding, mount, container.
func (n *node) claimAndPod(ctx context.Context) error {
	ms, err := median(n.b.runs, func(i int) (time.Duration, error) {
		name := fmt.Sprintf("lasts-%d", i)
		took, err := n.runObject(ctx, name, withClaim(name), func() error {
			_, err := n.call(ctx, "POST", claimsPath, claimObject(name, "64Mi"))
			return err
		})
		return took, errors.Join(err, n.deletePod(ctx, name), n.deleteClaim(ctx, name))
	})
	if err != nil {
		return err
	}
	n.b.add("claim and pod, request to running", "ledge", ms, "ms", "a new claim of the card's class each time; "+n.held())
	return nil
}

// byHelperPods plays the way of provisioners that make a directory by a helper pod, such as local-path, on ledge itself: the same claims
// and pods of a class of such a provisioner, which is played here. It hears at once which board was chosen (asked each millisecond), has a
// helper pod on that board make the directory, asks once a second whether that has ended, deletes it and makes the volume, as
// local-path's sources do. Its image is there already, and its program a static one that does nothing else.
func (n *node) byHelperPods(ctx context.Context) error {
	const class = "helped"
	if _, err := n.call(ctx, "POST", "/apis/storage.k8s.io/v1/storageclasses", map[string]any{"apiVersion": "storage.k8s.io/v1",
		"kind": "StorageClass", "metadata": map[string]any{"name": class}, "provisioner": "played.example/helper-pod",
		"volumeBindingMode": "WaitForFirstConsumer"}); err != nil {
		return err
	}
	dir := filepath.Join(n.data, "helped")
	ms, err := median(n.b.runs, func(i int) (time.Duration, error) {
		name := fmt.Sprintf("helped-%d", i)
		made := make(chan error, 1)
		took, err := n.runObject(ctx, name, withClaim(name), func() error {
			claim := claimObject(name, "64Mi")
			claim["spec"].(map[string]any)["storageClassName"] = class
			_, err := n.call(ctx, "POST", claimsPath, claim)
			if err == nil {
				go func() { made <- n.help(ctx, class, name, dir) }()
			} else {
				made <- nil
			}
			return err
		})
		err = errors.Join(err, <-made, n.deletePod(ctx, name), n.deleteClaim(ctx, name))
		_, gone := n.call(ctx, "DELETE", "/api/v1/persistentvolumes/"+name, nil)
		return took, errors.Join(err, gone, os.RemoveAll(filepath.Join(dir, name)))
	})
	if err != nil {
		return err
	}
	n.b.add("claim and pod, request to running", "local-path's way, played on ledge", ms, "ms",
		"a helper pod for each claim, asked after once a second")
	return nil
}

// help is one claim's provisioning.
func (n *node) help(ctx context.Context, class, name, dir string) error {
	board := ""
	if err := wait(ctx, time.Minute, func() error {
		text, err := n.call(ctx, "GET", claimsPath+"/"+name, nil)
		var c struct {
			Metadata struct{ Annotations map[string]string }
		}
		if err = errors.Join(err, json.Unmarshal(text, &c)); err != nil {
			return err
		}
		if board = c.Metadata.Annotations["volume.kubernetes.io/selected-node"]; board == "" {
			return fmt.Errorf("claim %s: no board is chosen", name)
		}
		return nil
	}); err != nil {
		return err
	}
	helper := podObject("helper-"+name, false)
	spec := helper["spec"].(map[string]any)
	spec["nodeName"], spec["restartPolicy"] = board, "Never"
	spec["volumes"] = []any{map[string]any{"name": "data", "hostPath": map[string]any{"path": dir, "type": "DirectoryOrCreate"}}}
	c := spec["containers"].([]any)[0].(map[string]any)
	c["args"] = []string{"mkdir", "/data/" + name}
	c["volumeMounts"] = []any{map[string]any{"name": "data", "mountPath": "/data"}}
	if _, err := n.call(ctx, "POST", podsPath, helper); err != nil {
		return err
	}
	for phase := ""; phase != "Succeeded"; {
		text, err := n.call(ctx, "GET", podsPath+"/helper-"+name, nil)
		var p struct{ Status struct{ Phase string } }
		if err = errors.Join(err, json.Unmarshal(text, &p)); err != nil {
			return err
		}
		if phase = p.Status.Phase; phase == "Failed" {
			return fmt.Errorf("the helper of %s has failed: %s", name, text)
		}
		if phase != "Succeeded" {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
			}
		}
	}
	if _, err := n.call(ctx, "DELETE", podsPath+"/helper-"+name, nil); err != nil {
		return err
	}
	_, err := n.call(ctx, "POST", "/api/v1/persistentvolumes", map[string]any{"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"capacity": map[string]any{"storage": "64Mi"},
			"accessModes": []string{"ReadWriteOnce"}, "storageClassName": class, "persistentVolumeReclaimPolicy": "Delete",
			"hostPath": map[string]any{"path": filepath.Join(dir, name), "type": "DirectoryOrCreate"},
			"claimRef": map[string]any{"namespace": "default", "name": name},
			"nodeAffinity": map[string]any{"required": map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{
				map[string]any{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{board}}}}}}}}})
	return err
}

// held says in a note whether the claims of this run are bound.
func (n *node) held() string {
	if n.quotas {
		return "held to its size by a project quota"
	}
	return "no project quotas in this kernel"
}

func (n *node) deleteClaim(ctx context.Context, name string) error {
	if _, err := n.call(ctx, "DELETE", claimsPath+"/"+name, nil); err != nil {
		return err
	}
	return wait(ctx, 30*time.Second, func() error {
		if _, err := n.call(ctx, "GET", claimsPath+"/"+name, nil); err == nil {
			return fmt.Errorf("claim %s is still there", name)
		}
		return nil
	})
}

// written is how much is written for the speed of a claim, each time into a new file.
const written = 24 << 20

// writeSpeed writes to a claim and beside it, in turns: the machine may do something else meanwhile.
func (n *node) writeSpeed(ctx context.Context) (err error) {
	const name = "speed"
	_, err = n.runObject(ctx, name, withClaim(name), func() error {
		_, err := n.call(ctx, "POST", claimsPath, claimObject(name, "300Mi"))
		return err
	})
	defer func() { err = errors.Join(err, n.deletePod(ctx, name), n.deleteClaim(ctx, name)) }()
	if err != nil {
		return err
	}
	text, err := n.call(ctx, "GET", claimsPath+"/"+name, nil)
	var claim struct{ Spec struct{ VolumeName string } }
	if err = errors.Join(err, json.Unmarshal(text, &claim)); err != nil {
		return err
	}
	places := []string{filepath.Join(n.data, "claims", claim.Spec.VolumeName), n.mount}
	took := map[string][]time.Duration{}
	var ratios []float64
	for round := range 61 {
		for i := range places {
			at := places[(i+round)%2]
			d, err := writeTo(filepath.Join(at, "speed"))
			if err != nil {
				return err
			}
			if round > 0 { // in the first one the image's file has no blocks yet
				took[at] = append(took[at], d)
			}
		}
		if round > 0 {
			ratios = append(ratios, took[places[1]][round-1].Seconds()/took[places[0]][round-1].Seconds())
		}
	}
	for i, what := range []string{"ledge, in a claim", "the bare file system"} {
		all := took[places[i]]
		slices.Sort(all)
		n.b.add("write speed", what, written/1e6/all[len(all)/2].Seconds(), "MB/s", "24 MiB and a sync, the median of 60, in turns; "+n.held())
	}
	slices.Sort(ratios)
	n.b.add("write speed in a claim, of the bare file system's", "ledge", 100*ratios[len(ratios)/2], "%",
		fmt.Sprintf("the median of 60 pairs; half of them are between %.0f and %.0f %%", 100*ratios[len(ratios)/4], 100*ratios[len(ratios)*3/4]))
	return nil
}

func writeTo(path string) (took time.Duration, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	block, begin := make([]byte, 1<<20), time.Now()
	for range written / len(block) {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
	}
	err = f.Sync()
	return time.Since(begin), err
}

// besideQuotas creates pods one after the other in a namespace without quotas and in one with ten that are about all that a pod takes, in
// turns.
func (n *node) besideQuotas(ctx context.Context) error {
	const each, quotas = 300, 10
	names := []string{"free", "bound"}
	for _, name := range names {
		if _, err := n.call(ctx, "POST", "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": name}}); err != nil {
			return err
		}
	}
	for i := range quotas {
		hard := map[string]any{"pods": "100000", "requests.cpu": "100000", "requests.memory": "100000Gi", "count/pods": "100000"}
		if _, err := n.call(ctx, "POST", "/api/v1/namespaces/bound/resourcequotas", map[string]any{"apiVersion": "v1", "kind": "ResourceQuota",
			"metadata": map[string]any{"name": fmt.Sprintf("q%d", i)}, "spec": map[string]any{"hard": hard}}); err != nil {
			return err
		}
	}
	took := map[string][]time.Duration{}
	for i := range each {
		for _, ns := range names {
			pod := podObject(fmt.Sprintf("q-%d", i), false)
			spec := pod["spec"].(map[string]any)
			spec["schedulerName"] = "nobody"
			spec["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"requests": map[string]any{"cpu": "1m", "memory": "1Mi"}}
			begin := time.Now()
			if _, err := n.call(ctx, "POST", strings.Replace(podsPath, "default", ns, 1), pod); err != nil {
				return err
			}
			took[ns] = append(took[ns], time.Since(begin))
		}
	}
	for i, what := range []string{"ledge, no quota", "ledge, ten quotas about all it takes"} {
		all := took[names[i]]
		slices.Sort(all)
		n.b.add("a pod's create", what, float64(all[len(all)/2].Microseconds())/1000, "ms", fmt.Sprintf("the median of %d; on disk before the answer", each))
	}
	var errs []error
	for _, name := range names {
		_, err := n.call(ctx, "DELETE", "/api/v1/namespaces/"+name, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

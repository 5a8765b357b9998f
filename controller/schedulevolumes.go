package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/controller/claims"
	"ledge/scheduler"
)

// lookAtVolumes is what the claims of pods are looked up in.
func (s *Schedule) lookAtVolumes() scheduler.Volumes {
	volumes := s.volumes.List()
	saw := see(s.claims.List()...) + see(volumes...) + see(s.classes.List()...)
	if saw != s.hope.saw {
		s.hope.saw = saw
		s.hope.bonds++
	}
	return scheduler.Volumes{
		Claim: func(namespace, name string) *corev1.PersistentVolumeClaim {
			c, _ := s.claims.Get(namespace, name)
			return c
		},
		Class: func(name string) *storagev1.StorageClass {
			c, _ := s.classes.Get("", name)
			return c
		},
		Volumes: volumes,
	}
}

// choose writes which volumes the claims of a pod are to have, or on which node they are to be made, and keeps the pod's room there. The
// pod is bound when they are. False: it has to be tried again. What is another one by now will be heard of.
func (s *Schedule) choose(ctx context.Context, cluster *scheduler.Cluster, pod *corev1.Pod, node string, list []scheduler.Choice) bool {
	for _, c := range list {
		var err error
		if c.Volume != nil {
			_, err = s.w.Client.Update(ctx, api.PersistentVolumes, claims.Bind(c.Volume, c.Claim), api.WriteOptions{})
		} else {
			class, _ := s.classes.Get("", api.ClassOfClaim(c.Claim))
			_, err = s.w.Client.Update(ctx, api.PersistentVolumeClaims, claims.Select(c.Claim, node, class), api.WriteOptions{})
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			s.grumble.about(ctx, "cannot choose the volume of a pod", err, "pod", api.Key(pod).String())
			return false
		}
	}
	cluster.Nominate(pod, node)
	_, _, err := amend(ctx, s.w.Client, api.Pods, pod, api.StatusSub, func(p *corev1.Pod) bool {
		if p.Spec.NodeName != "" || p.Status.NominatedNodeName == node {
			return false
		}
		p.Status.NominatedNodeName = node
		return true
	})
	s.grumble.about(ctx, "cannot keep the room of a pod", err, "pod", api.Key(pod).String())
	return err == nil
}

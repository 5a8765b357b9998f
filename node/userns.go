package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/images"
	"ledge/node/podspec"
	"ledge/runtime"
)

// usersOf returns the pod's block of user IDs: the one it has, or the first free one.
func (h *hands) usersOf(pod *corev1.Pod) (*runtime.IDRange, error) {
	if !podspec.OwnUsers(pod) {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if st, ok := h.a.engine.pod(pod.UID); ok && st.Pod.Users != nil {
		return st.Pod.Users, nil
	}
	if r, ok := h.blocks[pod.UID]; ok {
		return &r, nil
	}
	taken := map[uint32]bool{}
	for _, st := range h.a.engine.all() {
		if st.Pod.Users != nil {
			taken[st.Pod.Users.Host] = true
		}
	}
	for _, r := range h.blocks {
		taken[r.Host] = true
	}
	r, err := podspec.FreeUsers(taken)
	if err != nil {
		return nil, err
	}
	h.blocks[pod.UID] = r // until the engine has it
	return &r, nil
}

// freeUsers gives a block back.
func (h *hands) freeUsers(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.blocks, uid)
}

// mountRoot makes the root file system of a container, for the users of its pod.
func (h *hands) mountRoot(ctx context.Context, pod *corev1.Pod, imageID, key string) (string, error) {
	users, err := h.usersOf(pod)
	if err != nil {
		return "", err
	}
	if users == nil {
		return h.a.cfg.Images.Mount(ctx, imageID, key)
	}
	store, ok := h.a.cfg.Images.(images.UserStore)
	if !ok {
		return "", fmt.Errorf("ledge bug: the image store %T cannot mount for a user namespace", h.a.cfg.Images)
	}
	return store.MountFor(ctx, imageID, key, users.Host, users.Size)
}

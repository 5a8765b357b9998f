package httpd

import (
	"slices"
	"strings"
	"testing"

	"ledge/api"
	"ledge/api/board"
	"ledge/api/kinds"
)

// TestPageRights: the page may look at what it shows, and never at Secrets or into containers; it may change what it has buttons for, where
// these are switched on, and nothing else.
func TestPageRights(t *testing.T) {
	looks := strings.Fields(`nodes pods pods/log events services persistentvolumeclaims persistentvolumes deployments statefulsets daemonsets jobs
		cronjobs ingresses`)
	acts := map[string]string{"pods": "delete", "pods/eviction": "create", "nodes": "patch", "deployments": "patch", "statefulsets": "patch",
		"daemonsets": "patch"}
	for _, mayAct := range []bool{false, true} {
		u := api.User{Name: api.PageUser, Groups: []string{api.AuthenticatedGroup}}
		if mayAct {
			u.Groups = append(u.Groups, api.PageActs)
		}
		for _, k := range kinds.All.Kept {
			for _, sub := range append(subsOf(k), "", "exec", "attach", "proxy", "log") {
				name := k.Resource
				if sub != "" {
					name += "/" + sub
				}
				for _, verb := range allVerbs {
					want := slices.Contains(looks, name) && slices.Contains([]string{"get", "list", "watch"}, verb) && k.Group != "events.k8s.io" ||
						mayAct && acts[name] == verb
					if k.View != nil && slices.Contains(looks, name) { // events in their other form
						continue
					}
					if got := allowed(u, question(verb, k, sub, true)); got != want {
						t.Errorf("acts %v: %s %s of %q: %v, want %v", mayAct, verb, name, k.Group, got, want)
					}
				}
			}
		}
		for _, r := range board.Requests {
			want := r.Method == "GET" && slices.Contains([]string{board.StatusPath, board.HistoryPath, board.ShutdownPath, board.ImagesPath}, r.Path) ||
				mayAct && r.Path == board.ShutdownPath
			if got := allowed(u, attributes{verb: strings.ToLower(r.Method), path: r.Path}); got != want {
				t.Errorf("acts %v: %s %s: %v, want %v", mayAct, r.Method, r.Path, got, want)
			}
		}
	}
}

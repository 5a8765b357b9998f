package httpd

import (
	"net/http"
	"slices"
	"strings"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/batch"
	"ledge/api/board"
	"ledge/api/networking"
)

// pageKinds are what the board's page looks at. Nobody can widen that by a role, or take it away: who has the password of a page is told
// in the manual what he sees.
var pageKinds = []*api.Kind{api.Nodes, api.Pods, api.Events, api.Services, api.PersistentVolumeClaims, api.PersistentVolumes,
	apps.Deployments, apps.StatefulSets, apps.DaemonSets, batch.Jobs, batch.CronJobs, networking.Ingresses}

// pagePaths are what it asks its board.
var pagePaths = []string{board.StatusPath, board.HistoryPath, board.ShutdownPath, board.ImagesPath}

// pageRules are what it does besides where it may act.
var pageRules = []rule{
	{api.Pods, "", []string{"delete"}, anywhere},
	{api.Pods, "eviction", []string{"create"}, anywhere},
	{api.Nodes, "", []string{"patch"}, anywhere},
	{apps.Deployments, "", []string{"patch"}, anywhere},
	{apps.StatefulSets, "", []string{"patch"}, anywhere},
	{apps.DaemonSets, "", []string{"patch"}, anywhere},
}

// isPage says that a user is the page: nobody has a certificate or a token of that name.
func isPage(u api.User) bool { return u.Name == api.PageUser }

// pageMay says what the page may do.
func pageMay(u api.User, a attributes) bool {
	acts := slices.Contains(u.Groups, api.PageActs)
	if a.resource == "" {
		return a.verb == verbRead && slices.Contains(pagePaths, a.path) ||
			acts && a.path == board.ShutdownPath && (a.verb == strings.ToLower(http.MethodPost) || a.verb == "delete")
	}
	reads := slices.Contains([]string{"get", "list", "watch"}, a.verb) && slices.ContainsFunc(pageKinds, func(k *api.Kind) bool {
		return k.Group == a.group && k.Resource == a.resource && (a.sub == "" || k == api.Pods && a.sub == "log")
	})
	return reads || acts && slices.ContainsFunc(pageRules, func(r rule) bool { return r.allows("", a) })
}

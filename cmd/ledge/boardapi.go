package main

import (
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/images"
	"ledge/node"
	"ledge/storage"
)

// boardAPI answers /ledge/v1: what a board can do that Kubernetes has no word for. Only admins get here.
type boardAPI struct {
	images *images.Disk
	agent  *node.Agent
	store  *storage.Store
	power  powerControl
	writes *writesMeter
	plane  *plane // nil: it is elsewhere
}

const backupPath = "/ledge/v1/backup"

// Handler is the table of requests.
func (b *boardAPI) Handler() http.Handler {
	mux := http.NewServeMux()
	routes := map[string]func(http.ResponseWriter, *http.Request) error{
		"GET " + imagesPath:    b.listImages,
		"POST " + imagesPath:   b.importImages,
		"DELETE " + imagesPath: b.removeImage,
		"POST " + pullPath:     b.pullImage,
		"GET " + exportPath:    b.exportImages,
		"POST " + verifyPath:   b.verifyImages,
		"POST " + prunePath:    b.pruneImages,
		"GET " + backupPath:    b.backup,
		"GET " + pressurePath:  b.showPressure,
		"GET " + statusPath:    b.showStatus,

		"GET " + safeModePath:    b.showSafeMode,
		"DELETE " + safeModePath: b.endSafeMode,

		"GET " + shutdownPath:    b.showShutdown,
		"POST " + shutdownPath:   b.askShutdown,
		"DELETE " + shutdownPath: b.cancelShutdown,

		"POST " + upgradePath: b.renew,

		"GET " + tokensPath:    b.noPlane,
		"POST " + tokensPath:   b.noPlane,
		"DELETE " + tokensPath: b.noPlane,
		"GET " + boardsPath:    b.noPlane,
		"DELETE " + boardsPath: b.noPlane,
	}
	if p := b.plane; p != nil {
		routes["GET "+tokensPath], routes["POST "+tokensPath], routes["DELETE "+tokensPath] = p.listTokens, p.createToken, p.deleteToken
		routes["GET "+boardsPath], routes["DELETE "+boardsPath] = p.listBoards, p.revokeBoard
	}
	for pattern, fn := range routes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := fn(w, r); err != nil {
				writeStatus(w, err)
			}
		})
	}
	return mux
}

// noPlane answers what only a control plane can do.
func (b *boardAPI) noPlane(http.ResponseWriter, *http.Request) error {
	return apierrors.NewBadRequest("this board has joined another: ask the board where 'ledge serve' runs")
}

func (b *boardAPI) backup(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := b.store.Backup(w); err != nil {
		panic(http.ErrAbortHandler) // headers are out: cut the connection, so that the file is not taken for whole
	}
	return nil
}

// answer is 200 with v as JSON.
func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

func writeStatus(w http.ResponseWriter, err error) {
	var st apierrors.APIStatus
	if !errors.As(err, &st) {
		st = apierrors.NewInternalError(err)
	}
	body := st.Status()
	body.Kind, body.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(body.Code))
	if err := json.NewEncoder(w).Encode(body); err != nil {
		return // the client has gone
	}
}

package main

import (
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/images"
	"ledge/node"
	"ledge/storage"
)

// boardAPI answers /ledge/v1: what a board can do that Kubernetes has no word for. Only admins get here.
type boardAPI struct {
	images images.Store
	agent  *node.Agent
	store  *storage.Store
}

const backupPath = "/ledge/v1/backup"

// Handler is the table of requests.
func (b *boardAPI) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, fn := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET " + imagesPath:    b.listImages,
		"POST " + imagesPath:   b.importImages,
		"DELETE " + imagesPath: b.removeImage,
		"GET " + backupPath:    b.backup,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := fn(w, r); err != nil {
				writeStatus(w, err)
			}
		})
	}
	return mux
}

func (b *boardAPI) listImages(w http.ResponseWriter, r *http.Request) error {
	list, err := b.images.List(r.Context())
	if err != nil {
		return err
	}
	return writeImages(w, list)
}

func (b *boardAPI) importImages(w http.ResponseWriter, r *http.Request) error {
	list, err := b.images.Import(r.Context(), r.Body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	b.agent.ImagesChanged()
	return writeImages(w, list)
}

func (b *boardAPI) removeImage(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("name")
	err := b.images.Remove(r.Context(), name)
	gr := schema.GroupResource{Resource: "images"}
	switch {
	case errors.Is(err, images.ErrNotFound):
		return apierrors.NewNotFound(gr, name)
	case errors.Is(err, images.ErrBuiltIn):
		return apierrors.NewForbidden(gr, name, err)
	case errors.Is(err, images.ErrInUse):
		return apierrors.NewConflict(gr, name, err)
	case errors.Is(err, images.ErrInvalidName):
		return apierrors.NewBadRequest(err.Error())
	case err != nil:
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (b *boardAPI) backup(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := b.store.Backup(w); err != nil {
		panic(http.ErrAbortHandler) // headers are out: cut the connection, so that the file is not taken for whole
	}
	return nil
}

func writeImages(w http.ResponseWriter, list []images.Image) error {
	rows := make([]imageRow, 0, len(list))
	for _, i := range list {
		rows = append(rows, imageRow{ID: i.ID, Names: i.Names, Size: i.Size, Pinned: i.Pinned})
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(rows)
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

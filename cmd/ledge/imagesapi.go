package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/images"
)

const (
	imagesPath = "/ledge/v1/images"
	pullPath   = imagesPath + "/pull"
)

// imageList is the answer of GET /ledge/v1/images.
type imageList struct {
	Images []imageRow          `json:"images"`
	Pulls  []images.PullStatus `json:"pulls,omitempty"` // going on
}

// imageRow is one image of it.
type imageRow struct {
	ID     string   `json:"id"`
	Names  []string `json:"names"`
	Size   int64    `json:"size"`
	Pinned bool     `json:"pinned"`
}

// pullNews is a line of the answer of POST /ledge/v1/images/pull. The last one has an image or an error.
type pullNews struct {
	Status  *images.PullStatus `json:"status,omitempty"`
	Image   *imageRow          `json:"image,omitempty"`
	Bytes   int64              `json:"bytes,omitempty"` // downloaded
	Took    time.Duration      `json:"tookNanoseconds,omitempty"`
	Present bool               `json:"present,omitempty"`
	Error   string             `json:"error,omitempty"`
}

func imageRows(list []images.Image) []imageRow {
	rows := make([]imageRow, 0, len(list))
	for _, i := range list {
		rows = append(rows, rowOf(i))
	}
	return rows
}

func rowOf(i images.Image) imageRow {
	return imageRow{ID: i.ID, Names: i.Names, Size: i.Size, Pinned: i.Pinned}
}

func (b *boardAPI) listImages(w http.ResponseWriter, r *http.Request) error {
	list, err := b.images.List(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(imageList{Images: imageRows(list), Pulls: b.images.Pulls()})
}

func (b *boardAPI) importImages(w http.ResponseWriter, r *http.Request) error {
	list, err := b.images.Import(r.Context(), r.Body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	b.agent.ImagesChanged()
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(imageList{Images: imageRows(list)})
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

// pullImage tells how a pull goes while it goes, a line of JSON each time.
func (b *boardAPI) pullImage(w http.ResponseWriter, r *http.Request) error {
	ref, err := images.ParseReference(r.URL.Query().Get("name"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	type result struct {
		images.Pulled
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := b.images.Pull(ctx, images.PullRequest{Ref: ref.String()})
		done <- result{out, err}
	}()
	w.Header().Set("Content-Type", "application/jsonl")
	enc, flush := json.NewEncoder(w), http.NewResponseController(w)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		var news pullNews
		select {
		case res := <-done:
			if news = (pullNews{Bytes: res.Bytes, Took: res.Took, Present: res.Present}); res.err != nil {
				news.Error = res.err.Error()
			} else {
				row := rowOf(res.Image)
				news.Image = &row
				b.agent.ImagesChanged()
			}
			_ = enc.Encode(news) // who asked may have gone, and an answer that has begun cannot be taken back
			return nil
		case <-tick.C:
			if news.Status = b.pullOf(ref.String()); news.Status == nil {
				continue
			}
		}
		if err := errors.Join(enc.Encode(news), flush.Flush()); err != nil {
			stop() // the other side has gone, and with it the wish; what has come so far is kept
			<-done
			return nil
		}
	}
}

func (b *boardAPI) pullOf(ref string) *images.PullStatus {
	for _, p := range b.images.Pulls() {
		if p.Ref == ref {
			return &p
		}
	}
	return nil
}

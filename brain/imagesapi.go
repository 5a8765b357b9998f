package brain

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api/board"
	"ledge/images"
)

func (b *boardAPI) imageRows(list []images.Image) []board.Image {
	pods := map[string]string{}
	for _, p := range b.agent.Pods() {
		pods[string(p.UID)] = p.Namespace + "/" + p.Name
	}
	rows := make([]board.Image, 0, len(list))
	for _, i := range list {
		rows = append(rows, rowOf(i, pods))
	}
	return rows
}

// rowOf names the pods by the keys of their root file systems, which begin with the pod's UID.
func rowOf(i images.Image, pods map[string]string) board.Image {
	row := board.Image{ID: i.ID, Names: i.Names, Digests: i.Digests, Size: i.Size, Shared: i.Shared, Pinned: i.Pinned, Kept: i.Kept}
	for _, key := range i.UsedBy {
		uid, _, _ := strings.Cut(key, ".")
		if name := pods[uid]; name != "" {
			row.InUse = append(row.InUse, name)
		} else {
			row.InUse = append(row.InUse, key) // what is left of a pod that has just gone
		}
	}
	slices.Sort(row.InUse)
	row.InUse = slices.Compact(row.InUse)
	return row
}

func (b *boardAPI) listImages(w http.ResponseWriter, r *http.Request) error {
	list, err := b.images.List(r.Context())
	if err != nil {
		return err
	}
	return answer(w, board.Images{Images: b.imageRows(list), Pulls: b.images.Pulls(), Collected: b.images.Counts().Collected})
}

func (b *boardAPI) importImages(w http.ResponseWriter, r *http.Request) error {
	list, err := b.images.Import(r.Context(), r.Body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	b.agent.ImagesChanged()
	return answer(w, board.Images{Images: b.imageRows(list)})
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
		out, err := b.images.Pull(ctx, images.PullRequest{Ref: ref.String(), Pin: r.URL.Query().Get("pin") == "true"})
		done <- result{out, err}
	}()
	w.Header().Set("Content-Type", "application/jsonl")
	enc, flush := json.NewEncoder(w), http.NewResponseController(w)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		var news board.PullNews
		select {
		case res := <-done:
			if news = (board.PullNews{Bytes: res.Bytes, Took: res.Took, Present: res.Present}); res.err != nil {
				news.Error = res.err.Error()
			} else {
				row := rowOf(res.Image, nil)
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

func (b *boardAPI) exportImages(w http.ResponseWriter, r *http.Request) error {
	names := r.URL.Query()["name"]
	begun := &firstWrite{ResponseWriter: w}
	err := b.images.Export(r.Context(), begun, names)
	switch {
	case err == nil:
		return nil
	case begun.done:
		panic(http.ErrAbortHandler) // headers are out: cut the connection, so that the file is not taken for whole
	case errors.Is(err, images.ErrNotFound):
		return apierrors.NewNotFound(schema.GroupResource{Resource: "images"}, strings.Join(names, ", "))
	case errors.Is(err, images.ErrNotKept), errors.Is(err, images.ErrBuiltIn), errors.Is(err, images.ErrInvalidName):
		return apierrors.NewBadRequest(err.Error())
	}
	return err
}

// firstWrite sets the type of an archive when it begins, and not of an error.
type firstWrite struct {
	http.ResponseWriter
	done bool
}

func (f *firstWrite) Write(p []byte) (int, error) {
	if !f.done {
		f.done = true
		f.Header().Set("Content-Type", "application/x-tar")
	}
	return f.ResponseWriter.Write(p)
}

// verifyImages reads every layer. What cannot be repaired here is pulled again.
func (b *boardAPI) verifyImages(w http.ResponseWriter, r *http.Request) error {
	check := b.images.Check
	if r.URL.Query().Get("repair") == "true" {
		check = b.images.Verify
	}
	rep, err := check(r.Context())
	if err != nil {
		return err
	}
	out := board.Verified{Report: rep}
	for _, name := range rep.Names {
		if _, err := b.images.Pull(r.Context(), images.PullRequest{Ref: name, IfMissing: true}); err != nil {
			out.Failed = append(out.Failed, err.Error())
		} else {
			out.Pulled = append(out.Pulled, name)
		}
	}
	b.agent.ImagesChanged()
	return answer(w, out)
}

func (b *boardAPI) pruneImages(w http.ResponseWriter, r *http.Request) error {
	out, err := b.images.Collect(r.Context(), true)
	if err != nil {
		return err
	}
	return answer(w, out)
}

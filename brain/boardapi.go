package brain

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api/board"
	"ledge/node"
	"ledge/node/claims"
	"ledge/node/devices"
	"ledge/storage"
)

// boardAPI answers /ledge/v1: what a board can do that Kubernetes has no word for. Only admins get here.
type boardAPI struct {
	images  Images
	agent   *node.Agent
	store   *storage.Store
	power   *power
	guard   *guard
	writes  *writesMeter
	plane   *plane       // nil: it is elsewhere
	claims  *claims.Loop // nil: this board makes no volumes
	devices *devices.Board
	found   *found // nil: it is not found by name
	machine func() board.Machine
}

// Handler answers the requests of package board.
func (b *boardAPI) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, fn := range b.answers() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := fn(w, r); err != nil {
				writeStatus(w, err)
			}
		})
	}
	return mux
}

type answerFunc func(http.ResponseWriter, *http.Request) error

// answers has one for every request.
func (b *boardAPI) answers() map[string]answerFunc {
	out := map[string]answerFunc{
		"GET " + board.ImagesPath:    b.listImages,
		"POST " + board.ImagesPath:   b.importImages,
		"DELETE " + board.ImagesPath: b.removeImage,
		"POST " + board.PullPath:     b.pullImage,
		"GET " + board.ExportPath:    b.exportImages,
		"POST " + board.VerifyPath:   b.verifyImages,
		"POST " + board.PrunePath:    b.pruneImages,
		"GET " + board.BackupPath:    b.backup,
		"GET " + board.PressurePath:  b.showPressure,
		"GET " + board.HistoryPath:   b.showHistory,
		"GET " + board.StatusPath:    b.showStatus,

		"GET " + board.SafeModePath:    b.showSafeMode,
		"DELETE " + board.SafeModePath: b.endSafeMode,

		"GET " + board.ShutdownPath:    b.showShutdown,
		"POST " + board.ShutdownPath:   b.askShutdown,
		"DELETE " + board.ShutdownPath: b.cancelShutdown,

		"POST " + board.UpgradePath: b.renew,
	}
	p := b.plane
	if p == nil {
		for _, r := range board.Requests {
			if r.Plane {
				out[r.Pattern()] = b.noPlane
			}
		}
		return out
	}
	maps.Copy(out, map[string]answerFunc{
		"GET " + board.TokensPath:    p.listTokens,
		"POST " + board.TokensPath:   p.createToken,
		"DELETE " + board.TokensPath: p.deleteToken,
		"GET " + board.BoardsPath:    p.listBoards,
		"DELETE " + board.BoardsPath: p.revokeBoard,
	})
	return out
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

// listClaims are those whose volumes lie here, as far as the control plane has told.
func (b *boardAPI) listClaims() []board.Claim {
	if b.claims == nil {
		return nil
	}
	var out []board.Claim
	written := b.writes.claimWrites()
	for _, v := range b.claims.Volumes() {
		c := board.Claim{Volume: v.Name, Size: v.Spec.Capacity.Storage().Value()}
		if r := v.Spec.ClaimRef; r != nil {
			c.Namespace, c.Name = r.Namespace, r.Name
		}
		if u, ok := b.claims.Use(v); ok {
			c.Used, c.Files = &u.Bytes, u.Inodes
		}
		if n, ok := written[v.Name]; ok {
			c.Written = &n
		}
		out = append(out, c)
	}
	return out
}

// listDisks are those of the configuration.
func (b *boardAPI) listDisks() (out []board.Disk) {
	if b.claims == nil {
		return nil
	}
	for _, d := range b.claims.Disks() {
		o := board.Disk{Name: d.Name, Label: d.Label, Device: d.Device}
		if d.Err != nil {
			o.Trouble = d.Err.Error()
		} else if d.Unsized != nil {
			o.Unsized = d.Unsized.Error()
		}
		out = append(out, o)
	}
	return out
}

// listDevices are those that are plugged in and that pods may have.
func (b *boardAPI) listDevices() (out []board.Device) {
	for _, d := range b.devices.States() {
		out = append(out, board.Device{Class: d.Class, Path: d.Path, ID: d.ID, Share: d.Share, Pods: d.Pods})
	}
	return out
}

func (b *boardAPI) showHistory(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, b.agent.Pressure().History())
}

func (b *boardAPI) showPressure(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, b.agent.Pressure().Report())
}

// Package board has the words of /ledge/v1: what a board can be asked that Kubernetes has no word for, and what it answers.
// The brain serves the table below, the CLI and the programs beside it ask by it, and the reference is written from it.
package board

import (
	"net/http"

	"ledge/images"
	"ledge/node/pressure"
	"ledge/pki"
)

// Where a board is asked.
const (
	ImagesPath   = "/ledge/v1/images"
	PullPath     = ImagesPath + "/pull"
	ExportPath   = ImagesPath + "/export"
	VerifyPath   = ImagesPath + "/verify"
	PrunePath    = ImagesPath + "/prune"
	BackupPath   = "/ledge/v1/backup"
	PressurePath = "/ledge/v1/pressure"
	HistoryPath  = "/ledge/v1/history"
	StatusPath   = "/ledge/v1/status"
	SafeModePath = "/ledge/v1/safemode"
	ShutdownPath = "/ledge/v1/shutdown"
	UpgradePath  = "/ledge/v1/upgrade"
	TokensPath   = "/ledge/v1/tokens"
	BoardsPath   = "/ledge/v1/boards"
)

// Request is one thing that a board can be asked.
type Request struct {
	Method, Path string
	Does         string
	Query        []Param
	Body         string // what is sent; "": nothing
	Code         int    // of the answer
	Answer       any    // a zero value of what its JSON holds; nil: there is none
	Stream       string // what the answer is where it is not one JSON value; with Answer set, that is a line of it
	Plane        bool   // only a board with a control plane answers
}

// Pattern is the request as http.ServeMux writes it.
func (r Request) Pattern() string { return r.Method + " " + r.Path }

// Param is a part of the query.
type Param struct{ Name, Means string }

// Requests are all that a board can be asked.
var Requests = []Request{
	{Method: http.MethodGet, Path: ImagesPath, Does: "lists the images on this board, and the pulls that are going on", Code: http.StatusOK,
		Answer: Images{}},
	{Method: http.MethodPost, Path: ImagesPath, Does: "imports an image archive; the answer has what was in it",
		Body: "the archive of 'docker save', or an OCI layout as a tar; gzip and zstd are seen", Code: http.StatusOK, Answer: Images{}},
	{Method: http.MethodDelete, Path: ImagesPath, Does: "removes an image that no pod uses",
		Query: []Param{{"name", "the image"}}, Code: http.StatusNoContent},
	{Method: http.MethodPost, Path: PullPath, Does: "pulls an image and says how far it is; the last line has the image, or the error",
		Query: []Param{{"name", "the image"}, {"pin", "true: keep it for good, and its compressed layers"}},
		Code:  http.StatusOK, Answer: PullNews{}, Stream: "lines of JSON (application/jsonl), about four a second"},
	{Method: http.MethodGet, Path: ExportPath, Does: "writes an archive of images whose compressed layers are kept",
		Query: []Param{{"name", "an image; may be given more than once"}}, Code: http.StatusOK,
		Stream: "an OCI layout as a tar (application/x-tar)"},
	{Method: http.MethodPost, Path: VerifyPath, Does: "reads every layer and compares it with what was unpacked; lost images are pulled again",
		Query: []Param{{"repair", "true: mend what is damaged from what is kept here"}}, Code: http.StatusOK, Answer: Verified{}},
	{Method: http.MethodPost, Path: PrunePath, Does: "removes the images that no pod uses and nobody pinned", Code: http.StatusOK,
		Answer: images.Collected{}},
	{Method: http.MethodGet, Path: BackupPath, Does: "writes a copy of the store, as it is at one moment",
		Code: http.StatusOK, Stream: "a bbolt file (application/octet-stream)"},
	{Method: http.MethodGet, Path: PressurePath, Does: "says what the board is short of, and how far from that it is", Code: http.StatusOK,
		Answer: pressure.Report{}},
	{Method: http.MethodGet, Path: HistoryPath, Does: "says how much there was in the last hour of what the board can be short of",
		Code: http.StatusOK, Answer: pressure.History{}},
	{Method: http.MethodGet, Path: StatusPath, Does: "says what the board is short of, and who has written how much to the disk", Code: http.StatusOK,
		Answer: Status{}},
	{Method: http.MethodGet, Path: SafeModePath, Does: "says whether pods are held because the node keeps dying", Code: http.StatusOK,
		Answer: SafeMode{}},
	{Method: http.MethodDelete, Path: SafeModePath, Does: "leaves safe mode: the pods are looked after again", Code: http.StatusAccepted},
	{Method: http.MethodGet, Path: ShutdownPath, Does: "says how a shutdown stands, what hears of one, and who would stop when",
		Code: http.StatusOK, Answer: Shutdown{}},
	{Method: http.MethodPost, Path: ShutdownPath, Does: "has the pods stopped in order, and the machine switched off",
		Query: []Param{{"in", "how long to wait first, such as 0s or 5m"}, {"reboot", "true: start the machine again afterwards"}},
		Code:  http.StatusAccepted},
	{Method: http.MethodDelete, Path: ShutdownPath, Does: "takes back a shutdown that was asked for here, also one that has begun",
		Code: http.StatusAccepted},
	{Method: http.MethodPost, Path: UpgradePath, Does: "starts the node anew as the version that an upgrade has chosen; the pods run on",
		Code: http.StatusAccepted},
	{Method: http.MethodGet, Path: TokensPath, Does: "lists what boards can join with, without the secrets", Code: http.StatusOK,
		Answer: []pki.TokenInfo{}, Plane: true},
	{Method: http.MethodPost, Path: TokensPath, Does: "makes a token that boards join with",
		Query: []Param{{"ttl", "how long it is good for, such as 1h"}, {"uses", "how many boards may join with it"},
			{"node", "the only board that may; empty: any"}},
		Code: http.StatusOK, Answer: NewToken{}, Plane: true},
	{Method: http.MethodDelete, Path: TokensPath, Does: "deletes a token",
		Query: []Param{{"id", "the first part of the token, as the list has it"}}, Code: http.StatusNoContent, Plane: true},
	{Method: http.MethodGet, Path: BoardsPath, Does: "lists the boards that have joined", Code: http.StatusOK, Answer: []pki.BoardInfo{},
		Plane: true},
	{Method: http.MethodDelete, Path: BoardsPath, Does: "turns out a board that was stolen: its key opens nothing any more",
		Query: []Param{{"name", "the board"}}, Code: http.StatusOK, Answer: Revoked{}, Plane: true},
}

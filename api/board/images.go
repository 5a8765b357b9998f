package board

import (
	"time"

	"ledge/images"
)

// Images is the answer of GET /ledge/v1/images.
type Images struct {
	Images []Image             `json:"images"`
	Pulls  []images.PullStatus `json:"pulls,omitempty"` // going on
	// Collected is what has been removed as unused since the start.
	Collected images.Collected `json:"collected,omitzero"`
}

// Image is one image of it.
type Image struct {
	ID      string   `json:"id"`
	Names   []string `json:"names"`
	Digests []string `json:"digests,omitempty"`
	Size    int64    `json:"size"`             // on disk, unpacked
	Shared  int64    `json:"shared,omitempty"` // of size, with other images
	Pinned  bool     `json:"pinned"`
	Kept    bool     `json:"kept,omitempty"`  // its compressed layers are here too
	InUse   []string `json:"inUse,omitempty"` // by these pods
}

// PullNews is a line of the answer of POST /ledge/v1/images/pull. The last one has an image or an error.
type PullNews struct {
	Status  *images.PullStatus `json:"status,omitempty"`
	Image   *Image             `json:"image,omitempty"`
	Bytes   int64              `json:"bytes,omitempty"` // downloaded
	Took    time.Duration      `json:"tookNanoseconds,omitempty"`
	Present bool               `json:"present,omitempty"`
	Error   string             `json:"error,omitempty"`
}

// Verified is the answer of POST /ledge/v1/images/verify.
type Verified struct {
	images.Report
	Pulled []string // names of lost images that are here again
	Failed []string // why others are not
}

package shutdown

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"ledge/internal/durable"
)

// RecordName is the file beside the store that keeps the Record (N-5.34).
const RecordName = "graceful_node_shutdown_state"

// Record is when the last orderly shutdown began and when it ended; the zero time is never. The rest is ledge's own: what a
// process that is started anew while the machine is still up needs to go on with it.
type Record struct {
	Begun time.Time `json:"startTime"`
	Ended time.Time `json:"endTime"`

	BootID string `json:"bootID,omitempty"`
	Source string `json:"source,omitempty"`
	After  After  `json:"after,omitempty"`
	Tries  int    `json:"tries,omitempty"` // processes that took it up and did not end it
}

// mostTries bounds how often a shutdown that processes die of is taken up: pods that run on are better than neither.
const mostTries = 3

// resumes says that the shutdown is to be taken up by a process that begins now.
func (r Record) resumes(bootID string) bool {
	return r.Unfinished() && r.After != "" && bootID != "" && r.BootID == bootID && r.Tries < mostTries
}

// Unfinished says that a shutdown began and the power went before it was through (N-5.35).
func (r Record) Unfinished() bool { return !r.Begun.IsZero() && r.Ended.IsZero() }

// LoadRecord reads the record of the last shutdown. There is none on a new board.
func LoadRecord(path string) (Record, error) {
	var r Record
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return Record{}, fmt.Errorf("read the record of the last shutdown: %w", err)
	}
	return r, nil
}

// save replaces the file whole or not at all: the moment it is written is the moment power goes.
func (r Record) save(path string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	err = durable.Replace(path, data, 0o644)
	if err != nil {
		return fmt.Errorf("record the shutdown: %w", err)
	}
	return nil
}

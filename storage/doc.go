// Package storage keeps objects in one bbolt file, under one revision counter, and publishes every change to a
// ring that watchers read. It may import only package api.
//
//	DIR/state.db        meta: schema, id, ceiling, tally
//	                    one bucket per kind: "<namespace>/<name>" -> version, CRC-32C, JSON
//	                    "table.<name>": raw rows (Table), framed the same way
//	DIR/provisioned     the store has existed: a missing or empty state.db is damage, never a new node
//	DIR/ceiling         no revision above it was ever handed out
//	DIR/line            a name that changes when acknowledged writes may have been lost
//	DIR/clean           the last shutdown was in order
//	DIR/lock            held while a ledge has the store open
//	DIR/snapshots/      the two newest verified copies
//	DIR/redo/           what was committed since these: files of frames (redo.go)
//	DIR/ballast/        space that is let go a piece at a time when the disk is full (ballast.go)
//	DIR/damaged/        the last two files that failed their check, kept as evidence
//
// Invariants: a change is committed, then published. Revisions never go back, over crash, restore and repair. Every value has a checksum
// over its key and content, since bbolt pages have none. A tally over all values shows what a checksum cannot: an entry that is gone, a
// page that is an older one. The file is checked in a process of its own before this one maps it, since a damaged page can kill the
// process that walks it. A file is replaced only after a check that found damage, never after a check that could not be made.
//
// What is found is answered by how much is lost: single values are put back from a snapshot or the log that has exactly
// them, or left out (Health.Quarantined); anything else brings back the newest sound snapshot (Health.Restored), and the
// log everything after it (Health.Complete). A transaction is committed, then logged, then acknowledged. The log also
// shows what no checksum can: a whole file that is an older one, because the disk forgot what it had acknowledged.
package storage

package storage

import (
	"errors"
	"fmt"
)

// Table is a small durable table of raw rows, for rooms that keep their own records (the image store).
type Table struct {
	s      *Store
	bucket []byte
}

const tablePrefix = "table." // of the buckets of tables

// Table opens a table by name; it exists from its first row on.
func (s *Store) Table(name string) *Table { return &Table{s: s, bucket: []byte(tablePrefix + name)} }

// Put writes a row; it is on disk when Put returns.
func (t *Table) Put(key string, value []byte) error {
	return t.write(&stagedWrite{bucket: t.bucket, key: []byte(key), raw: seal(t.bucket, []byte(key), value)})
}

// PutAll writes rows, and removes those that are nil: all of it or nothing.
func (t *Table) PutAll(rows map[string][]byte) error {
	return t.s.Update(func(tx *Tx) error {
		tx.durable = true
		for key, value := range rows {
			w := &stagedWrite{bucket: t.bucket, key: []byte(key)}
			if value != nil {
				w.raw = seal(t.bucket, []byte(key), value)
			}
			tx.stage(w)
		}
		return nil
	})
}

// Delete removes a row; one that is not there is not an error.
func (t *Table) Delete(key string) error {
	return t.write(&stagedWrite{bucket: t.bucket, key: []byte(key)})
}

func (t *Table) write(w *stagedWrite) error {
	return t.s.Update(func(tx *Tx) error {
		tx.durable = true
		tx.stage(w)
		return nil
	})
}

// All reads every row. Rows whose checksum does not hold are left out and named.
func (t *Table) All() (rows map[string][]byte, damaged []string, err error) {
	rows = map[string][]byte{}
	err = t.s.View(func(tx *Tx) (err error) {
		defer t.s.condition.guard(&err)()
		b := tx.b.Bucket(t.bucket)
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			payload, err := unseal(t.bucket, k, v)
			if errors.Is(err, ErrDamaged) {
				damaged = append(damaged, string(k))
				t.s.condition.quarantine(string(t.bucket) + "\x00" + string(k))
				return nil
			}
			rows[string(k)] = append([]byte{}, payload...)
			return err
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", t.bucket, err)
	}
	return rows, damaged, nil
}

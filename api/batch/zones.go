package batch

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"
)

// packedZones are the time zones of the toolchain's own file, for boards that have no files of zones (decision 107): for each its
// name and what time.LoadLocationFromTZData reads, each after its length, a byte and two. Zones that are the same under several
// names stand beside each other, so that they take next to nothing. TestZones writes the file.
//
//go:embed zones.gz
var packedZones []byte

// zones keeps those that were unpacked: CronJobs ask for theirs again and again, and to look for one takes milliseconds.
var zones struct {
	sync.Mutex
	known map[string]*time.Location
}

// maxZones bounds what is kept of the names that strangers may ask for.
const maxZones = 32

// loadZone finds a time zone in the files of the board, which may be newer, or else among those that ledge brings.
func loadZone(name string) (*time.Location, error) {
	zone, unknown := time.LoadLocation(name)
	if unknown == nil {
		return zone, nil
	}
	if zone, err := packedZone(name); zone != nil || err != nil {
		return zone, err
	}
	return nil, unknown
}

// packedZone is one of those that ledge brings; nil: there is none of that name.
func packedZone(name string) (*time.Location, error) {
	zones.Lock()
	defer zones.Unlock()
	if zone := zones.known[name]; zone != nil {
		return zone, nil
	}
	data, err := unpackZone(name)
	if err != nil {
		return nil, fmt.Errorf("unpack time zone %s: %w", name, err)
	}
	if data == nil {
		return nil, nil
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("read time zone %s: %w", name, err)
	}
	if zones.known == nil || len(zones.known) == maxZones {
		zones.known = map[string]*time.Location{}
	}
	zones.known[name] = zone
	return zone, nil
}

// unpackZone is what is packed under a name; nil: nothing.
func unpackZone(name string) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packedZones))
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(z)
	var buf [255 + 2]byte // a name, and a length
	for {
		n, err := r.ReadByte()
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		head := buf[:int(n)+2]
		if _, err := io.ReadFull(r, head); err != nil {
			return nil, err
		}
		size := int(binary.BigEndian.Uint16(head[n:]))
		if string(head[:n]) == name {
			data := make([]byte, size)
			_, err := io.ReadFull(r, data)
			return data, err
		}
		if _, err := r.Discard(size); err != nil {
			return nil, err
		}
	}
}

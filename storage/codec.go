package storage

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"ledge/api"
)

// Of the meta bucket, schema, and the frame around it, every future version must stay readable for this one, so that
// it can tell a newer store from a damaged one.
//
// A value is a version byte, a CRC-32C over bucket, key and payload, and the payload. bbolt's pages carry no
// checksum: without this a flipped bit is read as truth.
const (
	valueVersion = 1
	valueHeader  = 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var between = []byte{0}

func checksum(bucket, key, payload []byte) uint32 {
	c := crc32.Update(0, castagnoli, bucket)
	c = crc32.Update(c, castagnoli, between)
	c = crc32.Update(c, castagnoli, key)
	c = crc32.Update(c, castagnoli, between)
	return crc32.Update(c, castagnoli, payload)
}

// seal frames a payload for its place.
func seal(bucket, key, payload []byte) []byte {
	out := make([]byte, valueHeader, valueHeader+len(payload))
	out[0] = valueVersion
	binary.BigEndian.PutUint32(out[1:], checksum(bucket, key, payload))
	return append(out, payload...)
}

// unseal gives the payload back, or ErrDamaged. The result aliases raw.
func unseal(bucket, key, raw []byte) ([]byte, error) {
	if len(raw) < valueHeader {
		return nil, fmt.Errorf("%w: it is cut short", ErrDamaged)
	}
	if raw[0] != valueVersion {
		return nil, fmt.Errorf("%w: its format %d is not known", ErrDamaged, raw[0])
	}
	payload := raw[valueHeader:]
	if binary.BigEndian.Uint32(raw[1:]) != checksum(bucket, key, payload) {
		return nil, fmt.Errorf("%w: its checksum does not hold", ErrDamaged)
	}
	return payload, nil
}

// encodeObject is what an object is on disk.
func encodeObject(kind *api.Kind, key []byte, obj api.Object) ([]byte, error) {
	payload, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", kind.Singular, key, err)
	}
	return seal(bucketName(kind), key, payload), nil
}

// decodeObject makes an object of its payload.
func decodeObject(kind *api.Kind, payload []byte) (api.Object, error) {
	obj := kind.New()
	if err := json.Unmarshal(payload, obj); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	kind.Stamp(obj)
	return obj, nil
}

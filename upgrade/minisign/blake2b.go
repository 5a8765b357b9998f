package minisign

import (
	"encoding/binary"
	"math/bits"
)

// digestSize is that of BLAKE2b-512, unkeyed (RFC 7693): the hash whose result minisign signs.
const digestSize = 64

const blockSize = 128

var iv = [8]uint64{
	0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
	0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
}

// sigma is the order in which each round takes the words of a block; rounds 10 and 11 are 0 and 1 again.
var sigma = [10][16]byte{
	{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	{14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
	{11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
	{7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
	{9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
	{2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
	{12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
	{13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
	{6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
	{10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
}

// Digest takes a file in pieces. It is an io.Writer.
type Digest struct {
	h    [8]uint64
	read uint64 // bytes that are in h; a file of 2^64 is not expected
	buf  [blockSize]byte
	n    int // of buf; the last block waits here until it is known to be the last
}

// NewDigest begins with an empty file.
func NewDigest() *Digest {
	d := &Digest{h: iv}
	d.h[0] ^= 0x01010000 | digestSize
	return d
}

// Write never fails.
func (d *Digest) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		if d.n == blockSize {
			d.read += blockSize
			d.compress(false)
			d.n = 0
		}
		n := copy(d.buf[d.n:], p)
		d.n, p = d.n+n, p[n:]
	}
	return total, nil
}

// Sum ends the file; the digest takes nothing more.
func (d *Digest) Sum() (out [digestSize]byte) {
	d.read += uint64(d.n)
	clear(d.buf[d.n:])
	d.compress(true)
	for i, v := range d.h {
		binary.LittleEndian.PutUint64(out[8*i:], v)
	}
	return out
}

func (d *Digest) compress(last bool) {
	var m, v [16]uint64
	for i := range m {
		m[i] = binary.LittleEndian.Uint64(d.buf[8*i:])
	}
	copy(v[:8], d.h[:])
	copy(v[8:], iv[:])
	v[12] ^= d.read
	if last {
		v[14] = ^v[14]
	}
	mix := func(a, b, c, d int, x, y uint64) {
		v[a] += v[b] + x
		v[d] = bits.RotateLeft64(v[d]^v[a], -32)
		v[c] += v[d]
		v[b] = bits.RotateLeft64(v[b]^v[c], -24)
		v[a] += v[b] + y
		v[d] = bits.RotateLeft64(v[d]^v[a], -16)
		v[c] += v[d]
		v[b] = bits.RotateLeft64(v[b]^v[c], -63)
	}
	for round := range 12 {
		s := &sigma[round%10]
		for i := range 4 { // the columns
			mix(i, 4+i, 8+i, 12+i, m[s[2*i]], m[s[2*i+1]])
		}
		for i := range 4 { // and the diagonals
			mix(i, 4+(i+1)%4, 8+(i+2)%4, 12+(i+3)%4, m[s[8+2*i]], m[s[9+2*i]])
		}
	}
	for i := range d.h {
		d.h[i] ^= v[i] ^ v[i+8]
	}
}

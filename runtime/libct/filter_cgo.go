//go:build cgo && seccomp

package libct

/*
#cgo pkg-config: libseccomp
#cgo LDFLAGS: -Wl,--wrap=seccomp_rule_add_array -Wl,--wrap=seccomp_export_bpf
void ledge_use_filter(int fd);
*/
import "C"

const canLend = true

// useFilter has libseccomp take the filter from a file that the keeper lent, or put it there. Anything else than such a
// file is left alone.
func useFilter(fd int) { C.ledge_use_filter(C.int(fd)) }

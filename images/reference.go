package images

import (
	"fmt"
	"strings"
)

const (
	defaultDomain = "docker.io"
	defaultTag    = "latest"
	maxNameLen    = 255 // domain and path together
	maxTagLen     = 128
)

// Reference is a parsed image name. Domain and Path are never empty; Tag and Digest are not both empty.
type Reference struct {
	Domain string // "docker.io", "registry.local:5000"
	Path   string // "library/busybox"
	Tag    string // "1.37"; empty when only a digest was given
	Digest string // "sha256:..." or empty
}

// ParseReference reads an image name the way Docker and Kubernetes do: no domain means docker.io, one word there
// means library/, neither tag nor digest means the tag latest. The error wraps ErrInvalidName.
func ParseReference(s string) (Reference, error) {
	ref, why := parseReference(s)
	if why != "" {
		if len(s) > 300 {
			s = s[:300] + "..."
		}
		return Reference{}, fmt.Errorf("%w %q: %s", ErrInvalidName, s, why)
	}
	return ref, nil
}

// Name is the reference without tag and digest.
func (r Reference) Name() string { return r.Domain + "/" + r.Path }

// String is the full canonical form, which parses to the same reference again.
func (r Reference) String() string {
	s := r.Name()
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// Tagged is the canonical name with its tag, the form kept in Image.Names; empty for a digest alone.
func (r Reference) Tagged() string {
	if r.Tag == "" {
		return ""
	}
	return r.Name() + ":" + r.Tag
}

func parseReference(s string) (ref Reference, why string) {
	rest, digest, hasDigest := strings.Cut(s, "@")
	if hasDigest {
		if !ValidDigest(digest) {
			return ref, "the digest is not sha256 with 64 hexadecimal digits"
		}
		ref.Digest = digest
	}
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		ref.Tag = rest[i+1:]
		rest = rest[:i]
		if !validTag(ref.Tag) {
			return ref, "the tag is not valid"
		}
	}
	ref.Domain, ref.Path = splitDomain(rest)
	switch {
	case rest == "":
		return ref, "the name is empty"
	case len(ref.Name()) > maxNameLen:
		return ref, "the name is longer than 255 characters"
	case !validDomain(ref.Domain):
		return ref, "the registry host is not valid"
	case strings.ToLower(ref.Path) != ref.Path:
		return ref, "the repository must be lower case"
	case !validPath(ref.Path):
		return ref, "the repository is not valid"
	case !strings.Contains(rest, "/") && isHex(rest, 64):
		return ref, "a name of 64 hexadecimal digits would look like an image ID"
	}
	if ref.Tag == "" && ref.Digest == "" {
		ref.Tag = defaultTag
	}
	return ref, ""
}

// splitDomain tells a registry host from the first part of a repository: it has a dot, a port or capitals, or is
// localhost.
func splitDomain(s string) (domain, path string) {
	first, rest, ok := strings.Cut(s, "/")
	host := ok && (strings.ContainsAny(first, ".:") || first == "localhost" || strings.ToLower(first) != first)
	if !host {
		domain, path = defaultDomain, s
	} else {
		domain, path = first, rest
	}
	if domain == "index.docker.io" {
		domain = defaultDomain
	}
	if domain == defaultDomain && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	return domain, path
}

func validDomain(s string) bool {
	host, port := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 || !validIPv6(s[1:end]) {
			return false
		}
		host, port = "", s[end+1:]
		if port != "" && port[0] != ':' {
			return false
		}
		port = strings.TrimPrefix(port, ":")
		if s[end+1:] == ":" {
			return false
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		host, port = s[:i], s[i+1:]
		if port == "" {
			return false
		}
	}
	if port != "" && (len(port) > 5 || strings.Trim(port, "0123456789") != "") {
		return false
	}
	if host == "" {
		return strings.HasPrefix(s, "[")
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; c != '-' && !isLower(c) && !isDigit(c) && (c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	return true
}

func validIPv6(s string) bool {
	return len(s) >= 2 && len(s) <= 45 && strings.Contains(s, ":") && strings.Trim(s, "0123456789abcdefABCDEF:.") == ""
}

// validPath: components of lower-case letters and digits, joined inside by ".", "_", "__" or any number of "-".
func validPath(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if !validComponent(part) {
			return false
		}
	}
	return true
}

func validComponent(s string) bool {
	for i := 0; i < len(s); {
		start := i
		for i < len(s) && (isLower(s[i]) || isDigit(s[i])) {
			i++
		}
		if i == start {
			return false
		}
		if i == len(s) {
			return true
		}
		sep := i
		for i < len(s) && !isLower(s[i]) && !isDigit(s[i]) {
			i++
		}
		if !validSeparator(s[sep:i]) {
			return false
		}
	}
	return false
}

func validSeparator(s string) bool {
	return s == "." || s == "_" || s == "__" || strings.Trim(s, "-") == ""
}

func validTag(s string) bool {
	if s == "" || len(s) > maxTagLen || s[0] == '.' || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !isLower(c) && !isDigit(c) && (c < 'A' || c > 'Z') && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

// ValidDigest says whether s is a digest this store can keep: sha256, lower case. Every digest that becomes
// a file name has passed it.
func ValidDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && isHex(hex, 64)
}

func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isDigit(c) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

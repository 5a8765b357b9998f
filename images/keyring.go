package images

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"sort"
	"strings"
)

// Credential opens a registry.
type Credential struct {
	Username, Password string
	Token              string // identity token, used instead of the password where it is given
}

// String keeps credentials out of logs and messages.
func (Credential) String() string { return "(credential)" }

// GoString keeps them out of %#v too.
func (Credential) GoString() string { return "(credential)" }

// Keyring holds credentials by where they are good for.
type Keyring []Key

// Key is a credential and where it is good for.
type Key struct {
	// Host may have * inside its labels ("*.example.com"); Path is a prefix of whole parts; both as in Kubernetes.
	Host, Port, Path string
	Credential       Credential
}

// For gives the credentials for a repository of a registry, the most specific first.
func (k Keyring) For(host, repository string) []Credential {
	name, port := splitPort(hubAlias(host))
	var fits []Key
	for _, key := range k {
		if key.Port == port && globHost(key.Host, name) && withinPath(key.Path, repository) {
			fits = append(fits, key)
		}
	}
	sort.SliceStable(fits, func(i, j int) bool {
		a, b := fits[i], fits[j]
		return cmp.Or(cmp.Compare(len(b.Path), len(a.Path)), cmp.Compare(strings.Count(a.Host, "*"), strings.Count(b.Host, "*"))) < 0
	})
	var out []Credential
	for _, key := range fits {
		if !slices.Contains(out, key.Credential) {
			out = append(out, key.Credential)
		}
	}
	return out
}

// hubAlias: Docker Hub has been written in many ways in credential files.
func hubAlias(host string) string {
	switch host {
	case "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com":
		return defaultDomain
	}
	return host
}

func splitPort(host string) (name, port string) {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host[:i], host[i+1:]
	}
	return host, ""
}

// globHost compares label by label: a * does not reach over a dot.
func globHost(pattern, host string) bool {
	ps, hs := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(ps) != len(hs) {
		return false
	}
	for i := range ps {
		if ok, err := path.Match(ps[i], hs[i]); ps[i] != hs[i] && (err != nil || !ok) {
			return false
		}
	}
	return true
}

func withinPath(prefix, repository string) bool {
	return prefix == "" || repository == prefix || strings.HasPrefix(repository, prefix+"/")
}

// dockerAuth is one entry of a Docker configuration.
type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"` // base64 of username:password
	IdentityToken string `json:"identitytoken"`
}

// ParseKeyring reads a Docker configuration (.dockerconfigjson, config.json) or, with legacy, the older .dockercfg,
// which is the inner part of it. Errors do not quote what they could not read.
func ParseKeyring(data []byte, legacy bool) (Keyring, error) {
	var auths map[string]dockerAuth
	if legacy {
		if json.Unmarshal(data, &auths) != nil {
			return nil, errors.New("credentials are not a .dockercfg file")
		}
	} else {
		var file struct {
			Auths map[string]dockerAuth `json:"auths"`
		}
		if json.Unmarshal(data, &file) != nil {
			return nil, errors.New("credentials are not a Docker configuration file")
		}
		auths = file.Auths
	}
	var ring Keyring
	for where, a := range auths {
		key, err := parseKey(where)
		if err != nil {
			return nil, err
		}
		if key.Credential, err = a.credential(); err != nil {
			return nil, fmt.Errorf("credential for %.100q: %w", where, err)
		}
		ring = append(ring, key)
	}
	sort.Slice(ring, func(i, j int) bool {
		a, b := ring[i], ring[j]
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Path, b.Path)) < 0
	})
	return ring, nil
}

func parseKey(where string) (Key, error) {
	s := where
	if !strings.Contains(s, "://") {
		s = "https://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return Key{}, fmt.Errorf("%.100q is not a registry", where)
	}
	p := strings.Trim(u.Path, "/")
	if p == "v1" || p == "v2" { // an address of the API, not a repository
		p = ""
	}
	host, port := splitPort(hubAlias(u.Host))
	return Key{Host: host, Port: port, Path: p}, nil
}

func (a dockerAuth) credential() (Credential, error) {
	c := Credential{Username: a.Username, Password: a.Password, Token: a.IdentityToken}
	if a.Auth != "" && c.Username == "" {
		plain, err := base64.StdEncoding.DecodeString(a.Auth)
		if err != nil {
			if plain, err = base64.RawStdEncoding.DecodeString(a.Auth); err != nil {
				return c, errors.New(`"auth" is not base64`)
			}
		}
		var ok bool
		if c.Username, c.Password, ok = strings.Cut(string(plain), ":"); !ok {
			return c, errors.New(`"auth" has no colon`)
		}
		c.Password = strings.TrimRight(c.Password, "\x00")
	}
	return c, nil
}

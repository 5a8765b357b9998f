package api

import (
	"strings"
)

// AuthenticatedGroup has every caller in it whose name is known, UnauthenticatedGroup the others.
const (
	AuthenticatedGroup   = "system:authenticated"
	UnauthenticatedGroup = "system:unauthenticated"
)

const accountUserPrefix = "system:serviceaccount:"

// AccountUser is who a service account is.
func AccountUser(namespace, name string) User {
	const group = "system:serviceaccounts"
	return User{Name: accountUserPrefix + namespace + ":" + name, Groups: []string{group, group + ":" + namespace, AuthenticatedGroup}}
}

// AccountOf is the service account that a user is, if it is one.
func AccountOf(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, accountUserPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}

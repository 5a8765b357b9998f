// Package httpd serves any api.Client over HTTP in the way kubectl and client libraries expect of a Kubernetes
// API server: paths, discovery, tables, watches, patches and Status errors.
//
// The way of a request, in this order:
//
//	who is asking (authn.go) -> which route (routes.go) -> may they (authz.go) -> is there room (limits.go, by share.go)
//	-> read and decode the body (body.go, decode.go) -> the Client -> encode (respond.go, table.go)
//
// Nothing is decoded for a caller who may not do what is asked. Who shows nothing to be known by reads /livez, /readyz and /version. There
// is no way to serve plain HTTP on a network: a Server listens on a unix socket, where the kernel names the caller, or with TLS
// and verified client certificates.
//
// The package imports nothing of ledge but api.
package httpd

#!/bin/sh
# lean.sh: print the flags of the compiler that ledge is built with. Not inlining in packages that are mostly generated, or run once for each
# container, saves more than a megabyte (docs/decisions/0029). Tests take the same flags, so that nothing is compiled twice.
set -eu
for p in k8s.io go.yaml.in crypto/x509 encoding/asn1 debug \
	github.com/cilium github.com/containerd github.com/coreos github.com/cyphar github.com/davecgh github.com/fxamacker \
	github.com/go-logr github.com/godbus github.com/google github.com/mdlayher github.com/moby github.com/opencontainers \
	github.com/seccomp github.com/shirou github.com/sirupsen github.com/vishvananda gopkg.in sigs.k8s.io/yaml \
	ledge/api/board ledge/api/httpd/auditlog ledge/api/manifest ledge/boot ledge/brain ledge/cli ledge/cmd ledge/config \
	ledge/controller/machines ledge/firstboot ledge/host ledge/images/archives ledge/network ledge/pki ledge/runtime/libct \
	ledge/shutdown ledge/upgrade; do
	printf ' %s' "-gcflags=$p/...=-l"
done

#!/bin/sh
# lean.sh: print the flags of the compiler that ledge is built with, quoted as GOFLAGS wants them. Tests take the same, so that nothing is
# compiled twice (docs/decisions/0029, 0132).
#   -l                       do not inline: packages that are generated, or run once for a container, a pod, a file or a start
#   -d=wrapglobalmapctl=2    set up each global map in a function of its own, which the linker drops with a map that nothing reads:
#                            Kubernetes' types have some hundred maps of documentation
set -eu
for p in k8s.io go.yaml.in crypto/x509 encoding/asn1 debug archive mime log golang.org/x \
	github.com/cilium github.com/containerd github.com/coreos github.com/cyphar github.com/davecgh github.com/fxamacker \
	github.com/go-logr github.com/godbus github.com/google github.com/mdlayher github.com/moby github.com/opencontainers \
	github.com/seccomp github.com/shirou github.com/sirupsen github.com/vishvananda gopkg.in sigs.k8s.io/yaml \
	ledge/api/board ledge/api/httpd/auditlog ledge/api/manifest ledge/boot ledge/brain ledge/cli ledge/cmd ledge/config \
	ledge/console ledge/controller/machines ledge/firstboot ledge/host ledge/images ledge/network ledge/node ledge/page ledge/pki \
	ledge/runtime/libct ledge/shutdown ledge/upgrade; do
	printf " '-gcflags=%s/...=-l -d=wrapglobalmapctl=2'" "$p"
done

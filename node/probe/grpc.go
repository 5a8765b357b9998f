package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/node/grpc"
)

// The health protocol of gRPC is one call with one string and one number.

const healthCheck = "/grpc.health.v1.Health/Check"

// servingStatus names grpc.health.v1.HealthCheckResponse.ServingStatus.
var servingStatus = map[uint64]string{0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

func (p *Prober) grpc(ctx context.Context, g *corev1.GRPCAction, ip string, limit time.Duration) Outcome {
	addr := net.JoinHostPort(ip, strconv.Itoa(int(g.Port)))
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	switch {
	case err != nil && ctx.Err() != nil:
		return failed("timeout: failed to connect service %q within %s: %v", addr, limit, err)
	case err != nil:
		return failed("error: failed to connect service at %q: %v", addr, err)
	}
	defer conn.Close()
	service := ""
	if g.Service != nil {
		service = *g.Service
	}
	status, err := askHealth(ctx, conn, addr, service, "kube-probe/"+p.version)
	var e grpc.Error
	switch {
	case errors.As(err, &e) && e.Code == grpc.Unimplemented:
		return failed("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", e.Message)
	case err != nil && ctx.Err() != nil:
		return failed("timeout: health rpc did not complete within %s", limit)
	case err != nil:
		return failed("error: health rpc probe failed: %v", err)
	case status != "SERVING":
		return failed("service unhealthy (responded with %q)", status)
	}
	return Outcome{Result: Success, Output: "service healthy"}
}

// askHealth makes the call over conn, which is used for nothing else.
func askHealth(ctx context.Context, conn net.Conn, addr, service, agent string) (string, error) {
	client := grpc.NewClient(grpc.Client{Authority: addr, Agent: agent, Most: most},
		func(context.Context) (net.Conn, error) { return conn, nil })
	defer client.Close()
	answer, err := client.Call(ctx, healthCheck, healthRequest(service))
	if err != nil {
		return "", err
	}
	return healthResponse(answer)
}

// healthRequest is HealthCheckRequest{service = 1}.
func healthRequest(service string) []byte {
	if service == "" {
		return nil
	}
	return grpc.AppendBytes(nil, 1, service)
}

// healthResponse reads HealthCheckResponse{status = 1}; other fields are passed over.
func healthResponse(b []byte) (string, error) {
	var status uint64
	err := grpc.Fields(b, func(f grpc.Field) error {
		if f.Number == 1 && f.Data == nil {
			status = f.Varint
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("the answer is not a HealthCheckResponse: %w", err)
	}
	if name, ok := servingStatus[status]; ok {
		return name, nil
	}
	return strconv.FormatUint(status, 10), nil
}

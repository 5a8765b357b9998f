package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The health protocol of gRPC is one call with one string and one number, over HTTP/2 without TLS. Saying it by hand
// takes this page; linking google.golang.org/grpc for it would take megabytes.

const (
	healthCheck   = "/grpc.health.v1.Health/Check"
	unimplemented = 12
)

// servingStatus names grpc.health.v1.HealthCheckResponse.ServingStatus.
var servingStatus = map[uint64]string{0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

// codes names the status codes of gRPC.
var codes = []string{"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
	"PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal",
	"Unavailable", "DataLoss", "Unauthenticated"}

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
	var e grpcError
	switch {
	case errors.As(err, &e) && e.code == unimplemented:
		return failed("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", e.message)
	case err != nil && ctx.Err() != nil:
		return failed("timeout: health rpc did not complete within %s", limit)
	case err != nil:
		return failed("error: health rpc probe failed: %v", err)
	case status != "SERVING":
		return failed("service unhealthy (responded with %q)", status)
	}
	return Outcome{Result: Success, Output: "service healthy"}
}

// grpcError is a status of gRPC that is not OK.
type grpcError struct {
	code    int
	message string
}

func (e grpcError) Error() string {
	name := strconv.Itoa(e.code)
	if e.code < len(codes) {
		name = codes[e.code]
	}
	return fmt.Sprintf("rpc error: code = %s desc = %s", name, e.message)
}

// askHealth makes the call over conn, which is used for nothing else.
func askHealth(ctx context.Context, conn net.Conn, addr, service, agent string) (string, error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{Protocols: protocols, MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+healthCheck, bytes.NewReader(healthRequest(service)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", agent)
	resp, err := t.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return "", err
	}
	end := resp.Trailer
	if resp.Header.Get("Grpc-Status") != "" { // an answer of headers alone
		end = resp.Header
	}
	switch code, err := strconv.Atoi(end.Get("Grpc-Status")); {
	case err != nil:
		return "", fmt.Errorf("HTTP status %d and no status of gRPC", resp.StatusCode)
	case code != 0:
		message, _ := url.PathUnescape(end.Get("Grpc-Message"))
		return "", grpcError{code, message}
	}
	return healthResponse(body)
}

// frame puts gRPC's prefix before a message: not compressed, its length.
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// healthRequest is HealthCheckRequest{service = 1}.
func healthRequest(service string) []byte {
	var m []byte
	if service != "" {
		m = append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(service))), service...)
	}
	return frame(m)
}

var errMessage = errors.New("the answer is not a HealthCheckResponse")

// healthResponse reads HealthCheckResponse{status = 1}; other fields are passed over.
func healthResponse(b []byte) (string, error) {
	if len(b) < 5 || b[0] != 0 || int(binary.BigEndian.Uint32(b[1:])) != len(b)-5 {
		return "", errMessage
	}
	var status uint64
	for b = b[5:]; len(b) > 0; {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return "", errMessage
		}
		b = b[n:]
		var skip int
		switch v, n := binary.Uvarint(b); key & 7 {
		case 0:
			if skip = n; key>>3 == 1 {
				status = v
			}
		case 1:
			skip = 8
		case 2:
			if skip = n + int(v); v > uint64(len(b)) {
				return "", errMessage
			}
		case 5:
			skip = 4
		}
		if skip <= 0 || skip > len(b) {
			return "", errMessage
		}
		b = b[skip:]
	}
	if name, ok := servingStatus[status]; ok {
		return name, nil
	}
	return strconv.FormatUint(status, 10), nil
}

// Package door is the pod that takes requests of HTTP in: what network/ingress decides, carried out with net/http and its ReverseProxy.
//
//	follow   the API: Ingresses, classes, Services, slices, and the Secrets that an Ingress names -> the present table, pools, certificates
//	serve    the two ports: HTTP/1.1 and HTTP/2, TLS by the name that a client asks for; how much a stranger may hold
//	proxy    one request to one endpoint, or to the next where nobody listens
//
// It runs with the rights of its service account, faces strangers, and holds nothing that outlives it. When the API is away it goes on
// with what it heard last.
package door

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"ledge/api"
	"ledge/api/rest"
)

// Ports that the pod listens on; the board's 80 and 443 lead to the first two.
const (
	PlainPort  = 8080
	TLSPort    = 8443
	HealthPort = 8081
)

// Main is the program of the pod, until it is told to end.
func Main(args []string) error {
	f := flag.NewFlagSet("ingress", flag.ContinueOnError)
	node := f.String("node", "", "name of the `board`, for events")
	connections := f.Int("connections", 1024, "the most `connections` of clients at one time; half as many requests are led on")
	log := f.Bool("access-log", false, "one line of the log for each request, 100 in a second at most")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 || *connections < 2 {
		return fmt.Errorf("usage: ledge applet ingress [-node NAME] [-connections N] [-access-log]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	client, err := rest.FromPod()
	if err != nil {
		return err
	}
	events := api.NewRecorder(client, "ledge-ingress", *node)
	d := newFollower(client, events)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return events.Run(ctx) })
	g.Go(func() error { return d.Run(ctx) })
	g.Go(func() error { return serve(ctx, d, *connections, newTally(*log)) })
	g.Go(func() error { return giveBack(ctx, time.Minute) })
	slog.Info("taking requests in", "node", *node, "connections", *connections)
	return g.Wait()
}

// giveBack returns now and then what many requests took: while they come, garbage may be twice what is alive (GOGC of the pod), so that
// collecting it is cheap. At rest it need not stay.
func giveBack(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			debug.FreeOSMemory()
		}
	}
}

package httpd

import (
	"context"
	"errors"
	"net"
	"sync"
)

// streams are the places for streams to other boards, a pool for each: a board bears boardStreams at once, whoever wants them.
type streams struct {
	mu  sync.Mutex
	now map[string]*pool // of boards to which there is a stream
}

// boardStreams are at once to one board.
const boardStreams = 64

// newStreams: nobody's is cut for another's, so one party has no more than it leaves to others.
func newStreams() *pool {
	t := [ranks]terms{
		serviceAccounts: {least: 8, half: true},
		users:           {least: 4, half: true},
		administrators:  {least: 8, half: true},
		root:            {least: 4}, // and what the control plane asks for itself
	}
	common := boardStreams
	for _, t := range t {
		common -= t.least
	}
	return newPool("streams to this board", common, t)
}

// dialer is a way to the ports of boards that keeps within the places.
func (s *streams) dialer(dial func(ctx context.Context, node string) (net.Conn, error)) func(ctx context.Context, node string) (net.Conn,
	error) {
	if dial == nil {
		return nil
	}
	return func(ctx context.Context, node string) (net.Conn, error) {
		leave, err := s.enter(partyIn(ctx), node)
		if err != nil {
			return nil, err
		}
		conn, err := dial(ctx, node)
		if err != nil {
			leave()
			return nil, err
		}
		return &stream{conn, leave}, nil
	}
}

func (s *streams) enter(who party, node string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.now[node]
	if p == nil {
		p = newStreams()
	}
	pl, err := p.enter(who, nil)
	if err != nil {
		return nil, err
	}
	if s.now == nil {
		s.now = map[string]*pool{}
	}
	s.now[node] = p
	return func() { s.leave(node, pl) }, nil
}

func (s *streams) leave(node string, pl *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pl.leave(); s.now[node] == pl.of && len(pl.of.held) == 0 {
		delete(s.now, node)
	}
}

// stream is a connection to a board that has a place.
type stream struct {
	net.Conn
	leave func()
}

func (c *stream) Close() error {
	c.leave()
	return c.Conn.Close()
}

// CloseWrite says that no more will be written, where that can be said.
func (c *stream) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

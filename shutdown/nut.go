package shutdown

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NUT asks a UPS through upsd, the server of Network UPS Tools, on this machine or another.
type NUT struct {
	Address string // host:port
	UPS     string // its name there
	// User and Password make this board known to upsd, so that the machine in charge of the UPS waits for it.
	User, Password string

	conn net.Conn
	in   *bufio.Reader
}

// ParseUPS reads ups@host[:port], as upsmon writes it.
func ParseUPS(text string) (NUT, error) {
	name, host, ok := strings.Cut(text, "@")
	if name == "" || strings.ContainsAny(text, " \t\"\n") || ok && host == "" {
		return NUT{}, fmt.Errorf("%q is not a UPS: write ups@host or ups@host:port", text)
	}
	if !ok {
		host = "localhost"
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(host, "3493")
	}
	return NUT{Address: host, UPS: name}, nil
}

// nutPatience is how long one question may take.
const nutPatience = 5 * time.Second

// errNotSaid: the UPS is there but has no such figure.
var errNotSaid = errors.New("not supported")

// Read asks for status, charge and runtime over a connection that is kept.
func (n *NUT) Read(ctx context.Context) (Supply, error) {
	s, err := n.read(ctx)
	if err != nil {
		n.hangUp()
		return Supply{}, fmt.Errorf("ask upsd at %s for %s: %w", n.Address, n.UPS, err)
	}
	return s, nil
}

func (n *NUT) read(ctx context.Context) (Supply, error) {
	if err := n.connect(ctx); err != nil {
		return Supply{}, err
	}
	status, err := n.get("ups.status")
	if err != nil {
		return Supply{}, err
	}
	words := strings.Fields(status)
	s := Supply{Charge: -1, OnBattery: slices.Contains(words, "OB"), Low: slices.Contains(words, "LB"), Forced: slices.Contains(words, "FSD")}
	charge, err := n.number("battery.charge")
	if err == nil {
		s.Charge = int(charge)
	} else if !errors.Is(err, errNotSaid) {
		return Supply{}, err
	}
	left, err := n.number("battery.runtime")
	if err == nil {
		s.Runtime = time.Duration(left * float64(time.Second))
	} else if !errors.Is(err, errNotSaid) {
		return Supply{}, err
	}
	return s, nil
}

func (n *NUT) connect(ctx context.Context) error {
	if n.conn != nil {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: nutPatience}).DialContext(ctx, "tcp", n.Address)
	if err != nil {
		return err
	}
	n.conn, n.in = conn, bufio.NewReaderSize(conn, 1024)
	if n.User == "" {
		return nil
	}
	for _, line := range []string{"USERNAME " + n.User, "PASSWORD " + n.Password, "LOGIN " + n.UPS} {
		if answer, err := n.ask(line); err != nil {
			return err
		} else if !strings.HasPrefix(answer, "OK") {
			return fmt.Errorf("%s: %s", strings.Fields(line)[0], answer)
		}
	}
	return nil
}

func (n *NUT) hangUp() {
	if n.conn != nil {
		_ = n.conn.Close()
		n.conn = nil
	}
}

// ask sends a line and reads one.
func (n *NUT) ask(line string) (string, error) {
	if err := n.conn.SetDeadline(time.Now().Add(nutPatience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(n.conn, "%s\n", line); err != nil {
		return "", err
	}
	answer, err := n.in.ReadSlice('\n') // bounded by the reader's buffer
	return strings.TrimSpace(string(answer)), err
}

// get reads a variable: VAR ups name "value".
func (n *NUT) get(name string) (string, error) {
	answer, err := n.ask("GET VAR " + n.UPS + " " + name)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(answer, "ERR VAR-NOT-SUPPORTED") {
		return "", fmt.Errorf("%s: %w", name, errNotSaid)
	}
	quoted, ok := strings.CutPrefix(answer, "VAR "+n.UPS+" "+name+" ")
	if !ok {
		return "", fmt.Errorf("%s: %s", name, answer)
	}
	return strings.Trim(quoted, `"`), nil
}

func (n *NUT) number(name string) (float64, error) {
	text, err := n.get(name)
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %q", name, errNotSaid, text)
	}
	return f, nil
}

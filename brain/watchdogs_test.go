package brain

import (
	"context"
	"testing"
	"time"

	"ledge/host/alive"
	"ledge/storage"
)

// TestStoreSign: a commit that hangs keeps the store from being alive; one that ends does not.
func TestStoreSign(t *testing.T) {
	s, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	signs := []alive.Sign{commits(s)}
	held, let, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- s.Update(func(*storage.Tx) error {
			close(held)
			<-let
			return nil
		})
	}()
	<-held
	hung, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if alive.Missing(hung, signs) == nil {
		t.Error("alive while a commit hangs")
	}
	close(let)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := alive.Missing(t.Context(), signs); err != nil {
		t.Error("not alive after it:", err)
	}
	if n := s.Health().Commits; n != 0 {
		t.Errorf("it cost %d commits", n)
	}
}

package testrun

import (
	goruntime "runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// HeapGrowth is by how much the heap has grown at most while f ran, with what nobody has collected yet.
func HeapGrowth(f func()) uint64 {
	return growth(func() uint64 {
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}, f)
}

// LiveGrowth is the same of what each collection has found in use.
func LiveGrowth(f func()) uint64 {
	return growth(func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}, f)
}

func growth(held func() uint64, f func()) uint64 {
	goruntime.GC()
	before := held()
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			if now := held(); now > before {
				peak.Store(max(peak.Load(), now-before))
			}
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	return peak.Load()
}

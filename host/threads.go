package host

import (
	"runtime"
	"sync"
)

// SpareThreads has the Go runtime keep n threads for later. At the kernel's limit of processes and threads nobody gets another one, and a
// program in Go that is refused a thread ends; busy with the disk or with a slow processor it needs some more than at rest.
func SpareThreads(n int) {
	var have, gone sync.WaitGroup
	have.Add(n)
	for range n {
		gone.Go(func() {
			runtime.LockOSThread() // each goroutine has a thread to itself until all have one
			defer runtime.UnlockOSThread()
			have.Done()
			have.Wait()
		})
	}
	gone.Wait()
}

// Clocks, random deadlines, and how callbacks count.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// processorTime is what all threads of this process have used, the collector's too.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// random is splitmix64.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func (r *random) below(n int) int { return int((r.next() >> 32) * uint64(n) >> 32) }

// within is a time from 0 to length, in steps of 16 ns.
func (r *random) within(length time.Duration) time.Duration {
	return time.Duration(r.below(int(length>>4)) << 4)
}

// delay is the deadline of most workloads: uniform in 1 to 61 s.
func (r *random) delay() time.Duration { return time.Second + r.within(time.Minute) }

var fired int64

func count() { atomic.AddInt64(&fired, 1) }

// standStill stops the whole process for that long: what becomes due meanwhile is overdue when it
// continues. A child does it, as a stopped process cannot wake itself.
func standStill(d time.Duration) error {
	me := os.Getpid()
	script := fmt.Sprintf("kill -STOP %d; sleep %f; kill -CONT %d", me, d.Seconds(), me)
	return exec.Command("sh", "-c", script).Run()
}

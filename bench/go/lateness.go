// How late timers are: the workloads that take samples. A sample is the time at which something
// happened minus the time at which it should have.
package main

import (
	"sync"
	"sync/atomic"
	"time"
)

func sleepLateness(p parameters) figures {
	late := make([]int64, p.samples)
	for i := range late {
		due := time.Now().Add(p.sleep)
		time.Sleep(p.sleep)
		late[i] = int64(time.Since(due))
	}
	return figures{LateNs: late}
}

// work keeps a processor busy.
func work(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

// warmUp makes sure that there is a running thread for every processor.
func warmUp(processors int) {
	var all sync.WaitGroup
	all.Add(processors)
	for i := 0; i < processors; i++ {
		go func() {
			work(time.Millisecond)
			all.Done()
		}()
	}
	all.Wait()
}

// parallelTimerLatency keeps one processor spinning and has a timer for each of the others, which must
// all wake up at the same time: each callback spins until all of them run.
func parallelTimerLatency(p parameters) figures {
	const delay = time.Millisecond
	timers := p.processors - 1
	if timers < 1 {
		return figures{Error: "ParallelTimerLatency needs two processors"}
	}
	late := make([]int64, timers*p.samples)
	warmUp(p.processors)
	work(30 * time.Millisecond)
	for i := 0; i < p.samples; i++ {
		var fired int32
		var all sync.WaitGroup
		all.Add(timers)
		for j := 0; j < timers; j++ {
			sample := &late[i*timers+j]
			due := time.Now().Add(delay)
			time.AfterFunc(delay, func() {
				*sample = int64(time.Since(due))
				atomic.AddInt32(&fired, 1)
				for atomic.LoadInt32(&fired) < int32(timers) {
				}
				all.Done()
			})
		}
		for atomic.LoadInt32(&fired) < int32(timers) {
		}
		all.Wait()
		work(time.Millisecond) // lets the other threads go idle
	}
	return figures{LateNs: late}
}

// staggeredTickerLatency has tickers spread over their period, each of which has work to do per tick.
func staggeredTickerLatency(p parameters) figures {
	const period, workPerTick = 3 * time.Millisecond, 300 * time.Microsecond
	tickers := p.processors * p.tickers
	late := make([]int64, tickers*p.samples)
	warmUp(p.processors)
	work(30 * time.Millisecond)
	var all sync.WaitGroup
	all.Add(tickers)
	for j := 0; j < tickers; j++ {
		work(period / time.Duration(p.processors))
		due := time.Now().Add(period)
		t := time.NewTicker(period)
		mine := late[j*p.samples : (j+1)*p.samples]
		go func() {
			defer all.Done()
			defer t.Stop()
			for i := range mine {
				<-t.C
				mine[i] = int64(time.Since(due))
				due = due.Add(period)
				work(workPerTick)
			}
		}()
	}
	all.Wait()
	return figures{LateNs: late}
}

// What timers cost: the workloads that count operations.
//
// One operation is one timer, or one tick, or one switch, never a batch of them, except in
// AdjustTimers10000 where it is the round of ten thousand.
package main

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const batchSize = 1000

// parallel runs batches on every processor at once, for the time given, over timers that are there
// already but far away: what a busy server's timers look like.
func parallel(p parameters, operationsPerBatch int64, batch func()) figures {
	background := startBackground(p)
	defer stopBackground(background)
	runBatches(p.processors, p.duration/10, batch) // memory and caches warm, threads started
	batches, took := runBatches(p.processors, p.duration, batch)
	operations := batches * operationsPerBatch
	return figures{Operations: operations, NsPerOperation: float64(took) / float64(operations)}
}

func runBatches(processors int, d time.Duration, batch func()) (batches int64, took time.Duration) {
	start := time.Now()
	var all sync.WaitGroup
	all.Add(processors)
	for i := 0; i < processors; i++ {
		go func() {
			defer all.Done()
			mine := int64(0)
			for mine == 0 || time.Since(start) < d {
				batch()
				mine++
			}
			atomic.AddInt64(&batches, mine)
		}()
	}
	all.Wait()
	return batches, time.Since(start)
}

func startBackground(p parameters) [][]*time.Timer {
	background := make([][]*time.Timer, p.processors)
	var all sync.WaitGroup
	all.Add(p.processors)
	for i := range background {
		go func(i int) {
			defer all.Done()
			background[i] = make([]*time.Timer, p.background)
			for j := range background[i] {
				background[i][j] = time.AfterFunc(time.Hour, nil)
			}
		}(i)
	}
	all.Wait()
	return background
}

func stopBackground(background [][]*time.Timer) {
	for _, timers := range background {
		for _, t := range timers {
			t.Stop()
		}
	}
}

// afterFunc is a chain: each callback starts the next timer, which is due at once.
func afterFunc(p parameters) figures {
	return parallel(p, batchSize, func() {
		done := make(chan bool)
		left := batchSize
		var next func()
		next = func() {
			left--
			if left > 0 {
				time.AfterFunc(0, next)
			} else {
				done <- true
			}
		}
		time.AfterFunc(0, next)
		<-done
	})
}

func after(p parameters) figures {
	return parallel(p, batchSize, func() {
		for i := 0; i < batchSize; i++ {
			<-time.After(1)
		}
	})
}

func stop(p parameters) figures {
	return parallel(p, batchSize, func() {
		for i := 0; i < batchSize; i++ {
			time.NewTimer(time.Second).Stop()
		}
	})
}

func simultaneousAfterFunc(p parameters) figures {
	return parallel(p, batchSize, func() {
		var all sync.WaitGroup
		all.Add(batchSize)
		for i := 0; i < batchSize; i++ {
			time.AfterFunc(0, all.Done)
		}
		all.Wait()
	})
}

func startStop(p parameters) figures {
	return parallel(p, batchSize, func() {
		timers := make([]*time.Timer, batchSize)
		for i := range timers {
			timers[i] = time.AfterFunc(time.Hour, nil)
		}
		for _, t := range timers {
			t.Stop()
		}
	})
}

func reset(p parameters) figures {
	return parallel(p, batchSize, func() {
		t := time.NewTimer(time.Hour)
		for i := 0; i < batchSize; i++ {
			t.Reset(time.Hour)
		}
		t.Stop()
	})
}

// sleep starts many tasks that each sleep for the shortest time there is.
func sleep(p parameters) figures {
	return parallel(p, batchSize, func() {
		var all sync.WaitGroup
		all.Add(batchSize)
		for i := 0; i < batchSize; i++ {
			go func() {
				time.Sleep(time.Nanosecond)
				all.Done()
			}()
		}
		all.Wait()
	})
}

func ticker(p parameters) figures {
	return parallel(p, batchSize, func() {
		t := time.NewTicker(1)
		for i := 0; i < batchSize; i++ {
			<-t.C
		}
		t.Stop()
	})
}

func tickerReset(p parameters) figures {
	return parallel(p, batchSize, func() {
		t := time.NewTicker(time.Nanosecond)
		for i := 0; i < batchSize; i++ {
			t.Reset(2 * time.Nanosecond)
		}
		t.Stop()
	})
}

// adjustTimers10000 moves the last of ten thousand timers to the front and lets it fire.
func adjustTimers10000(p parameters) figures {
	const n = 10000
	return parallel(p, 1, func() {
		timers := make([]*time.Timer, n)
		for i := range timers {
			timers[i] = time.AfterFunc(time.Hour, func() {})
		}
		timers[n-1].Reset(time.Nanosecond)
		time.Sleep(time.Microsecond)
		for _, t := range timers {
			t.Stop()
		}
	})
}

// contextTimeout has live contexts, not timers, in the background.
func contextTimeout(p parameters) figures {
	return overContexts(p, context.Background())
}

// contextChild is the same with all of them derived from one that can be cancelled.
func contextChild(p parameters) figures {
	parent, cancel := context.WithCancel(context.Background())
	defer cancel()
	return overContexts(p, parent)
}

func overContexts(p parameters, parent context.Context) figures {
	cancels := make([]context.CancelFunc, p.processors*p.background)
	for i := range cancels {
		_, cancels[i] = context.WithTimeout(parent, time.Hour)
	}
	defer func() {
		for _, cancel := range cancels {
			cancel()
		}
	}()
	p.background = 0
	return parallel(p, batchSize, func() {
		for i := 0; i < batchSize; i++ {
			_, cancel := context.WithTimeout(parent, time.Hour)
			cancel()
		}
	})
}

// yield is two tasks per processor that yield to each other.
func yield(p parameters) figures {
	p.background = 0
	return parallel(p, 2*batchSize, func() {
		var both sync.WaitGroup
		both.Add(2)
		for t := 0; t < 2; t++ {
			go func() {
				for i := 0; i < batchSize; i++ {
					runtime.Gosched()
				}
				both.Done()
			}()
		}
		both.Wait()
	})
}

// chanHandover is ping-pong over two unbuffered channels: two hand-overs a turn.
func chanHandover(p parameters) figures {
	p.background = 0
	return parallel(p, 2*batchSize, func() {
		ping, pong := make(chan int), make(chan int)
		go func() {
			for v := range ping {
				pong <- v
			}
			close(pong)
		}()
		for i := 0; i < batchSize; i++ {
			ping <- i
			<-pong
		}
		close(ping)
		<-pong
	})
}

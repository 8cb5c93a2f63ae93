package main

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

var workloads = map[string]func(request) (answer, error){
	"start_stop":       func(r request) (answer, error) { return throughput(r, startStop), nil },
	"reset_later":      func(r request) (answer, error) { return throughput(r, resetLater), nil },
	"reset_back_forth": func(r request) (answer, error) { return throughput(r, resetBackForth), nil },
	"fill":             fill,
	"fire":             fire,
	"memory":           memory,
	"two_threads":      twoThreads,
	"idle_connections": idleConnections,
	"rpc_deadlines":    rpcDeadlines,
	"dense_10k":        dense,
	"dense_100k":       dense,
	"lateness_idle":    func(r request) (answer, error) { return lateness(r, 0), nil },
	"lateness_busy":    func(r request) (answer, error) { return lateness(r, 0), nil },
	"lateness_100k":    func(r request) (answer, error) { return lateness(r, r.timers), nil },
}

// lane is the state of one goroutine: its own timers.
type lane struct {
	random random
	timers []*time.Timer
}

func newLane(r request, i int) *lane {
	return &lane{random(r.seed + uint64(i)), make([]*time.Timer, r.timers)}
}

func (l *lane) any() **time.Timer { return &l.timers[l.random.below(len(l.timers))] }

func (l *lane) fill() {
	for i := range l.timers {
		l.timers[i] = time.AfterFunc(l.random.delay(), count)
	}
}

func startStop(l *lane) {
	t := l.any()
	fresh := time.AfterFunc(l.random.delay(), count)
	(*t).Stop()
	*t = fresh
}
func resetLater(l *lane)     { (*l.any()).Reset(61 * time.Second) }
func resetBackForth(l *lane) { (*l.any()).Reset(l.random.delay()) }

// work does at least so many operations, and for the time that was asked for.
func work(r request, operation func(), atLeast int) int {
	const turn = 1024
	end := time.Now().Add(time.Duration(r.milliseconds) * time.Millisecond)
	done := 0
	for done < atLeast || time.Now().Before(end) {
		for i := 0; i < turn; i++ {
			operation()
		}
		done += turn
	}
	return done
}

func longestOf(operation func(), operations int) int64 {
	longest := time.Duration(0)
	before := time.Now()
	for i := 0; i < operations; i++ {
		operation()
		after := time.Now()
		if took := after.Sub(before); took > longest {
			longest = took
		}
		before = after
	}
	return int64(longest)
}

func measured(r request, operation func()) answer {
	begin := processorTime()
	done := work(r, operation, r.timers)
	took := processorTime() - begin
	passes := r.timers
	if passes < 100_000 {
		passes = 100_000
	}
	return answer{"ns_per_op": float64(took) / float64(done), "longest_ns": longestOf(operation, passes)}
}

func throughput(r request, operation func(*lane)) answer {
	l := newLane(r, 0)
	l.fill()
	one := func() { operation(l) }
	for i := 0; i < r.timers; i++ {
		one()
	}
	return measured(r, one)
}

func idleConnections(r request) (answer, error) {
	const idle = 500 * time.Millisecond
	l := newLane(r, 0)
	for i := range l.timers {
		l.timers[i] = time.AfterFunc(idle, count)
	}
	return measured(r, func() { (*l.any()).Reset(idle) }), nil
}

// rpcDeadlines keeps the calls under way in a ring; one in a hundred is let go, and fires.
func rpcDeadlines(r request) (answer, error) {
	const deadline, lost = 50 * time.Millisecond, 100
	l := newLane(r, 0)
	for i := range l.timers {
		l.timers[i] = time.AfterFunc(deadline, count)
	}
	calls := 0
	return measured(r, func() {
		oldest := &l.timers[calls%len(l.timers)]
		calls++
		if calls%lost != 0 {
			(*oldest).Stop()
		}
		*oldest = time.AfterFunc(deadline, count)
	}), nil
}

func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func fill(r request) (answer, error) {
	l := newLane(r, 0)
	before := heapBytes()
	begin := processorTime()
	l.fill()
	took := processorTime() - begin
	grown := heapBytes() - before
	runtime.KeepAlive(l)
	return answer{"ns_per_op": float64(took) / float64(r.timers),
		"bytes_per_timer": float64(grown) / float64(r.timers)}, nil
}

func memory(r request) (answer, error) {
	l := newLane(r, 0)
	before := heapBytes()
	l.fill()
	for i := 0; i < 4*r.timers; i++ {
		startStop(l)
	}
	grown := heapBytes() - before
	runtime.KeepAlive(l)
	return answer{"bytes_per_timer": float64(grown) / float64(r.timers)}, nil
}

func fire(r request) (answer, error) {
	l := newLane(r, 0)
	before := atomic.LoadInt64(&fired)
	first := time.Now().Add(time.Duration(r.timers)*3*time.Microsecond + 100*time.Millisecond)
	for i := range l.timers {
		l.timers[i] = time.AfterFunc(time.Until(first.Add(l.random.within(time.Second))), count)
	}
	if atomic.LoadInt64(&fired) != before {
		return nil, errors.New("starting the timers took so long that some have fired already")
	}
	begin := processorTime()
	if err := standStill(time.Until(first.Add(time.Second + 5*time.Millisecond))); err != nil {
		return nil, err
	}
	for atomic.LoadInt64(&fired) < before+int64(r.timers) {
		time.Sleep(time.Millisecond)
	}
	return answer{"ns_per_op": float64(processorTime()-begin) / float64(r.timers)}, nil
}

func dense(r request) (answer, error) {
	n := r.timers * r.milliseconds / 1000
	l := newLane(request{timers: n, seed: r.seed}, 0)
	apart := time.Second / time.Duration(r.timers)
	before := atomic.LoadInt64(&fired)
	first := time.Now().Add(time.Duration(n)*3*time.Microsecond + 100*time.Millisecond)
	for i := range l.timers {
		due := first.Add(time.Duration(i)*apart + l.random.within(apart))
		l.timers[i] = time.AfterFunc(time.Until(due), count)
	}
	if atomic.LoadInt64(&fired) != before {
		return nil, errors.New("starting the timers took so long that some have fired already")
	}
	time.Sleep(time.Until(first.Add(-time.Millisecond)))
	begin := processorTime()
	for atomic.LoadInt64(&fired) < before+int64(n) {
		time.Sleep(20 * time.Millisecond)
	}
	return answer{"ns_per_op": float64(processorTime()-begin) / float64(n)}, nil
}

func twoThreads(r request) (answer, error) {
	if runtime.GOMAXPROCS(0) < r.threads {
		runtime.GOMAXPROCS(r.threads)
	}
	rates := make([]float64, r.threads)
	var ready, done sync.WaitGroup
	ready.Add(r.threads)
	done.Add(r.threads)
	for i := 0; i < r.threads; i++ {
		go func(i int) {
			defer done.Done()
			l := newLane(r, i)
			l.fill()
			ready.Done()
			ready.Wait()
			for k := 0; k < r.timers; k++ {
				startStop(l)
			}
			begin := time.Now()
			pairs := work(r, func() { startStop(l) }, r.timers)
			rates[i] = float64(pairs) / time.Since(begin).Seconds()
		}(i)
	}
	done.Wait()
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	return answer{"ops_per_s": sum}, nil
}

func lateness(r request, others int) answer {
	live := newLane(request{timers: others, seed: r.seed}, 0)
	for i := range live.timers {
		live.timers[i] = time.AfterFunc(30*time.Second+live.random.within(31*time.Second), count)
	}
	n := r.milliseconds
	random := random(r.seed + 1)
	late := make([]int64, n)
	var all sync.WaitGroup
	all.Add(n)
	first := time.Now().Add(100 * time.Millisecond)
	for i := range late {
		sample := &late[i]
		due := first.Add(time.Duration(i)*time.Millisecond + random.within(time.Millisecond))
		time.AfterFunc(time.Until(due), func() {
			*sample = int64(time.Since(due))
			all.Done()
		})
	}
	all.Wait()
	runtime.KeepAlive(live)
	return answer{"late_ns": late}
}

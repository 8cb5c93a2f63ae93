// Go's side of the comparison of verge with Go (../go_compare.cc).
//
// The workloads have the shapes of the benchmarks of Go's own time package, rewritten so that they
// run on request: the C++ side alternates between its own rounds and ours, as the two share a
// machine whose speed drifts. It sends a line per round,
//
//	StartStop processors=2 background=32768 milliseconds=200
//
// and gets a line of JSON:
//
//	{"operations":2898000,"ns_per_operation":69.1}
//
// or, from a workload that measures how late things are, the samples: {"late_ns":[1033121,...]}. An
// error is {"error":"..."}. The end of the input ends the program, and between two requests it is
// blocked in a read and takes no processor time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// parameters of one round.
type parameters struct {
	processors  int           // GOMAXPROCS
	background  int           // hour-long timers per processor that are there before it starts
	duration    time.Duration // how long to run, for workloads that count operations
	samples     int           // how many to take, for workloads that measure lateness
	sleep       time.Duration // what to sleep, for SleepLateness
	tickers     int           // per processor, for StaggeredTickerLatency
	connections int           // for Echo
}

// figures of one round: operations and their cost, or samples.
type figures struct {
	Operations     int64   `json:"operations,omitempty"`
	NsPerOperation float64 `json:"ns_per_operation,omitempty"`
	LateNs         []int64 `json:"late_ns,omitempty"`
	Version        string  `json:"version,omitempty"`
	Error          string  `json:"error,omitempty"`
}

var workloads = map[string]func(parameters) figures{
	"Version": func(parameters) figures { return figures{Version: runtime.Version()} },

	"AfterFunc":             afterFunc,
	"After":                 after,
	"Stop":                  stop,
	"SimultaneousAfterFunc": simultaneousAfterFunc,
	"StartStop":             startStop,
	"Reset":                 reset,
	"Sleep":                 sleep,
	"Ticker":                ticker,
	"TickerReset":           tickerReset,
	"AdjustTimers10000":     adjustTimers10000,
	"ContextTimeout":        contextTimeout,
	"ContextChild":          contextChild,

	"SetReadDeadline": setReadDeadline,
	"Echo":            echo,

	"Yield":        yield,
	"ChanHandover": chanHandover,

	"SleepLateness":          sleepLateness,
	"ParallelTimerLatency":   parallelTimerLatency,
	"StaggeredTickerLatency": staggeredTickerLatency,
}

func main() {
	requests := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for requests.Scan() {
		if err := answers.Encode(answer(requests.Text())); err != nil {
			os.Exit(1) // the caller has ended
		}
	}
}

func answer(request string) figures {
	words := strings.Fields(request)
	if len(words) == 0 {
		return figures{Error: "an empty request; send: WORKLOAD [NAME=NUMBER ...]"}
	}
	run, known := workloads[words[0]]
	if !known {
		return figures{Error: "there is no workload " + words[0]}
	}
	p, err := parse(words[1:])
	if err != nil {
		return figures{Error: err.Error()}
	}
	if runtime.GOMAXPROCS(0) != p.processors {
		runtime.GOMAXPROCS(p.processors)
	}
	runtime.GC() // what an earlier round left behind is not this one's cost
	return run(p)
}

func parse(words []string) (parameters, error) {
	p := parameters{processors: 2, background: 1 << 15, duration: 200 * time.Millisecond,
		samples: 100, sleep: time.Millisecond, tickers: 1, connections: 64}
	for _, word := range words {
		name, text, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return p, fmt.Errorf("%q is not NAME=NUMBER", word)
		}
		switch name {
		case "processors":
			p.processors = int(n)
		case "background":
			p.background = int(n)
		case "milliseconds":
			p.duration = time.Duration(n) * time.Millisecond
		case "samples":
			p.samples = int(n)
		case "sleep_us":
			p.sleep = time.Duration(n) * time.Microsecond
		case "tickers":
			p.tickers = int(n)
		case "connections":
			p.connections = int(n)
		default:
			return p, fmt.Errorf("there is no parameter %q", name)
		}
	}
	return p, nil
}

// Go's timers as a peer of `verge bench`: time.AfterFunc, Stop and Reset, with everything else as Go has
// it by default. ../peer.h describes the lines that come and go, ../../workloads.md the workloads.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

type request struct {
	workload     string
	timers       int
	threads      int
	milliseconds int
	seed         uint64
}

// answer is what becomes a line of JSON: metrics by name, or samples.
type answer map[string]any

func main() {
	requests := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for requests.Scan() {
		a, err := reply(requests.Text())
		if err != nil {
			a = answer{"error": err.Error()}
		}
		if answers.Encode(a) != nil {
			os.Exit(1) // the caller has ended
		}
	}
}

func reply(line string) (answer, error) {
	if line == "version" {
		return answer{"version": strings.TrimPrefix(runtime.Version(), "go")}, nil
	}
	r, err := parse(line)
	if err != nil {
		return nil, err
	}
	run, known := workloads[r.workload]
	if !known {
		return nil, fmt.Errorf("there is no workload %q", r.workload)
	}
	return run(r)
}

func parse(line string) (request, error) {
	r := request{timers: 1000, threads: 1, milliseconds: 200, seed: 1}
	words := strings.Fields(line)
	if len(words) == 0 {
		return r, errors.New("an empty request; send: WORKLOAD [NAME=NUMBER ...]")
	}
	r.workload = words[0]
	for _, word := range words[1:] {
		name, text, _ := strings.Cut(word, "=")
		n, err := strconv.ParseUint(text, 10, 62)
		if err != nil {
			return r, fmt.Errorf("%q is not NAME=NUMBER", word)
		}
		switch name {
		case "timers":
			r.timers = int(n)
		case "threads":
			r.threads = int(n)
		case "milliseconds":
			r.milliseconds = int(n)
		case "seed":
			r.seed = n
		default:
			return r, fmt.Errorf("there is no parameter %q", name)
		}
	}
	return r, nil
}

// A worker in Go: a select over work, a ticker and a context.
package main

import (
	"context"
	"fmt"
	"time"
)

// [code]
func worker(ctx context.Context, jobs <-chan int) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case job, ok := <-jobs:
			if !ok {
				return nil
			}
			fmt.Println("job", job)
		case <-ticker.C:
			// flush
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// [/code]

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	jobs := make(chan int, 1)
	jobs <- 1
	fmt.Println(worker(ctx, jobs))
}

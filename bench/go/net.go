// Sockets: the cost of a postponed deadline, and round trips of small messages.
package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// setReadDeadline postpones the deadline of a connection, as a server does with every request.
func setReadDeadline(p parameters) figures {
	const calls = 100000
	return parallel(p, calls, func() {
		near, far := connected()
		defer near.Close()
		defer far.Close()
		when := time.Now().Add(time.Hour)
		for i := 0; i < calls; i++ {
			when = when.Add(time.Microsecond)
			near.SetReadDeadline(when)
		}
	})
}

// echo has connections on which messages of 64 bytes go to and fro, one at a time on each. An operation
// is a round trip.
func echo(p parameters) figures {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return figures{Error: err.Error()}
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerAll(conn)
		}
	}()

	clients := make([]net.Conn, p.connections)
	for i := range clients {
		if clients[i], err = net.Dial("tcp", listener.Addr().String()); err != nil {
			return figures{Error: err.Error()}
		}
		defer clients[i].Close()
	}
	roundTrips(clients, p.duration/10)
	operations, took := roundTrips(clients, p.duration)
	return figures{Operations: operations, NsPerOperation: float64(took) / float64(operations)}
}

func answerAll(conn net.Conn) {
	defer conn.Close()
	message := make([]byte, 64)
	for {
		conn.SetDeadline(time.Now().Add(time.Minute))
		n, err := conn.Read(message)
		if err != nil {
			return
		}
		if _, err = conn.Write(message[:n]); err != nil {
			return
		}
	}
}

func roundTrips(clients []net.Conn, d time.Duration) (operations int64, took time.Duration) {
	start := time.Now()
	var all sync.WaitGroup
	all.Add(len(clients))
	for _, conn := range clients {
		go func(conn net.Conn) {
			defer all.Done()
			message := make([]byte, 64)
			mine := int64(0)
			for mine == 0 || time.Since(start) < d {
				conn.Write(message)
				io.ReadFull(conn, message)
				mine++
			}
			atomic.AddInt64(&operations, mine)
		}(conn)
	}
	all.Wait()
	return operations, time.Since(start)
}

// connected gives both ends of a connection within this machine.
func connected() (near, far net.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		panic(err)
	}
	if far, err = listener.Accept(); err != nil {
		panic(err)
	}
	return near, far
}

// Sends the requests of ../requests.txt to Go's net/http and to nginx, and prints the file anew with
// what they answered. `measure` starts it.
//
//	others REQUESTS NGINX_ADDRESS [ADDRESS_OF_OURS]
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// How long a server that says nothing more is listened to.
const patience = 500 * time.Millisecond

// The server that answers as most of them are written: what is wrong with the body is a 400.
func startGo() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				w.Header().Set("Connection", "close")
				w.WriteHeader(400)
				return
			}
			io.WriteString(w, "Hello, World!")
		}),
	}
	go server.Serve(listener)
	return listener.Addr().String()
}

func unescape(text string) []byte {
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out = append(out, text[i])
			continue
		}
		i++
		switch text[i] {
		case 'r':
			out = append(out, '\r')
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case '0':
			out = append(out, 0)
		case 'x':
			n, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
			if err != nil {
				log.Fatal(err)
			}
			out = append(out, byte(n))
			i += 2
		default:
			log.Fatalf("no such escape: %s", text)
		}
	}
	return out
}

// The status of each response; "waits" if there is none, "body" if there is but without a status,
// "closes" if the connection ends without one.
func ask(address string, request []byte) string {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	conn.Write(request)
	var said bytes.Buffer
	for err == nil {
		conn.SetReadDeadline(time.Now().Add(patience))
		_, err = io.CopyN(&said, conn, 1)
	}
	var all []string
	for in := bufio.NewReader(bytes.NewReader(said.Bytes())); ; {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			break
		}
		io.Copy(io.Discard, response.Body)
		if response.StatusCode >= 200 {
			all = append(all, strconv.Itoa(response.StatusCode))
		}
	}
	if len(all) > 0 {
		return strings.Join(all, " ")
	}
	if said.Len() > 0 {
		return "body"
	}
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		return "waits"
	}
	return "closes"
}

func main() {
	file, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	goAddress := startGo()
	for _, line := range strings.SplitAfter(string(file), "\n") {
		columns := strings.SplitN(strings.TrimSuffix(line, "\n"), " | ", 5)
		if strings.HasPrefix(line, "#") || len(columns) != 5 {
			fmt.Print(line)
			continue
		}
		request := unescape(columns[4])
		ours := columns[0]
		if len(os.Args) > 3 {
			ours = ask(os.Args[3], request)
		}
		fmt.Printf("%s | %s | %s | %s | %s\n", ours, ask(goAddress, request),
			ask(os.Args[2], request), columns[3], columns[4])
	}
}

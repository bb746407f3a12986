// Command service plays a Service and its kube-proxy for servers outside the cluster: it takes TCP connections and
// hands each to one of the endpoints that answer /readyz, as the kubelet's probe would decide.
//
// service -listen 127.0.0.1:6443 127.0.0.1:7001 127.0.0.1:7002
//
// Promises: bytes pass untouched; an endpoint that is not ready gets no new connection and keeps those it has; one that
// refuses a connection is passed over for the next.
package main

import (
	"crypto/tls"
	"flag"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	probeEvery  = 250 * time.Millisecond
	probeWithin = 3 * time.Second
	dialWithin  = time.Second
)

type endpoint struct {
	address string
	ready   atomic.Bool
}

func (e *endpoint) follow() {
	client := http.Client{
		Timeout: probeWithin,
		// A probe, as the kubelet's; the connection is kept, since handshakes would show in what is measured.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	for ; ; time.Sleep(probeEvery) {
		answer, err := client.Get("https://" + e.address + "/readyz")
		if err == nil {
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		ready := err == nil && answer.StatusCode == http.StatusOK
		if e.ready.Swap(ready) != ready {
			log.Printf("%s ready=%v", e.address, ready)
		}
	}
}

func dial(endpoints []*endpoint) net.Conn {
	for _, n := range rand.Perm(len(endpoints)) {
		if !endpoints[n].ready.Load() {
			continue
		}
		if found, err := net.DialTimeout("tcp", endpoints[n].address, dialWithin); err == nil {
			return found
		}
	}
	return nil
}

func relay(taken net.Conn, endpoints []*endpoint) {
	defer taken.Close()
	found := dial(endpoints)
	if found == nil {
		taken.(*net.TCPConn).SetLinger(0) // a reset: what a Service without endpoints gives
		return
	}
	defer found.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{taken, found}, {found, taken}} {
		both.Go(func() {
			if _, err := io.Copy(way[0], way[1]); err != nil {
				taken.(*net.TCPConn).SetLinger(0)
				taken.Close()
				found.Close()
				return
			}
			way[0].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	flag.Parse()
	var endpoints []*endpoint
	for _, address := range flag.Args() {
		known := &endpoint{address: address}
		endpoints = append(endpoints, known)
		go known.follow()
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %s", listener.Addr())
	for {
		taken, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go relay(taken, endpoints)
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const sequence = `"bench/sequence":"`

// since returns the version a watch of the collection can start from.
func since(a *api, path string) string {
	code, body := a.ask("GET", path+"?limit=1", "", nil)
	var found struct {
		Metadata struct{ ResourceVersion string }
	}
	if code != http.StatusOK || json.Unmarshal(body, &found) != nil {
		log.Fatalf("GET %s: %d %s", path, code, body)
	}
	return found.Metadata.ResourceVersion
}

func sequenceOf(line []byte) int {
	at := bytes.Index(line, []byte(sequence))
	if at < 0 {
		return -1
	}
	rest := line[at+len(sequence):]
	number, err := strconv.Atoi(string(rest[:bytes.IndexByte(rest, '"')]))
	must(err)
	return number
}

// watch opens `clients` watches, waits for a line of standard input, changes one object `rate` times a second through
// `direct`, and checks that every watch tells every change once and in order.
func watch(a *api, path, direct, name string, clients int, rate float64, length time.Duration) map[string]any {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	changes := int(rate * length.Seconds())
	sent := make([]atomic.Int64, changes)
	delays := make([][]float64, clients)
	faults := atomic.Int64{}
	var opened, done sync.WaitGroup
	from := since(a, path)
	for n := range clients {
		opened.Add(1)
		done.Go(func() {
			answer, err := a.open(ctx, "GET", path+"?watch=true&resourceVersion="+from, "application/json", "", nil)
			opened.Done()
			if err != nil || answer.StatusCode != http.StatusOK {
				log.Printf("watch %d: %v %v", n, answer, err)
				faults.Add(int64(changes))
				return
			}
			defer answer.Body.Close()
			lines := bufio.NewReaderSize(answer.Body, 8192)
			for want := 0; want < changes; {
				line, err := lines.ReadBytes('\n')
				if err != nil {
					log.Printf("watch %d ended at %d of %d: %v", n, want, changes, err)
					faults.Add(int64(changes - want))
					return
				}
				got := sequenceOf(line)
				if got < 0 {
					continue
				}
				if got != want {
					faults.Add(1)
				}
				delays[n] = append(delays[n], float64(time.Now().UnixMicro()-sent[got].Load())/1000)
				want = got + 1
			}
		})
	}
	opened.Wait()
	fmt.Println(`{"open":true}`)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil && err != io.EOF {
		log.Fatal(err)
	}
	began := time.Now()
	for n := range changes {
		time.Sleep(time.Until(began.Add(time.Duration(float64(n) / rate * float64(time.Second)))))
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%s%d"}}}`, sequence, n)
		sent[n].Store(time.Now().UnixMicro())
		if code, body := a.ask("PATCH", direct+"/"+name, "application/merge-patch+json", []byte(patch)); code != http.StatusOK {
			log.Fatalf("PATCH %s: %d %s", name, code, body)
		}
	}
	timer := time.AfterFunc(30*time.Second, cancel)
	done.Wait()
	timer.Stop()
	var all []float64
	for _, some := range delays {
		all = append(all, some...)
	}
	return map[string]any{
		"events": len(all), "wanted": clients * changes, "faults": faults.Load(),
		"p50": quantile(all, 0.5), "p99": quantile(all, 0.99),
		"rate": float64(changes) / time.Since(began).Seconds(),
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const retryAfter = time.Second

type counts struct {
	requests, retried, failed, missed, resumed atomic.Int64
}

// patient sends a request, and once more a second later when there was no answer or one that says try again.
func (c *counts) patient(a *api, s step, also int) bool {
	c.requests.Add(1)
	code, body := a.ask(s.method, s.path, s.contentType, s.body)
	if code == s.want {
		return true
	}
	c.retried.Add(1)
	log.Printf("%s: to be repeated: %s %s: %d %.200s", time.Now().Format("15:04:05.000"), s.method, s.path, code, body)
	time.Sleep(retryAfter)
	code, body = a.ask(s.method, s.path, s.contentType, s.body)
	// The first attempt may have been carried out without its answer coming through.
	if code == s.want || code == also {
		return true
	}
	c.failed.Add(1)
	log.Printf("failed: %s %s: %d %.200s", s.method, s.path, code, body)
	return false
}

// churn counts up an annotation of `clients` objects, reads and replaces others, while `watchers` follow. Every
// acknowledged count must be stored at the end, and every watcher must have seen every count of every object in order.
func churn(a *api, path, direct, template string, clients, watchers int, rate float64, length time.Duration) map[string]any {
	var count counts
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	acknowledged := make([]atomic.Int64, clients)
	made := strings.ReplaceAll(template, apiVersion(path), apiVersion(direct))
	for n := range clients {
		name := churned(n)
		a.ask("DELETE", direct+"/"+name, "", nil) // of an earlier run
		if code, body := a.ask("POST", direct, "application/json", []byte(strings.ReplaceAll(made, "NAME", name))); code != 201 {
			log.Fatalf("POST %s: %d %s", name, code, body)
		}
	}
	from := since(a, direct)
	seen := make([]map[string]int, watchers)
	var following, writing sync.WaitGroup
	for n := range watchers {
		seen[n] = map[string]int{}
		following.Go(func() { follow(ctx, a, path, from, seen[n], &count) })
	}
	until := time.Now().Add(length)
	for n := range clients {
		writing.Go(func() { churnOne(a, path, template, n, clients, rate, until, &acknowledged[n], &count) })
	}
	writing.Wait()
	lost := lostWrites(a, direct, acknowledged)
	caughtUp := waitUntilSeen(seen, acknowledged)
	cancel()
	following.Wait()
	return map[string]any{
		"requests": count.requests.Load(), "retried": count.retried.Load(), "failed": count.failed.Load(),
		"lost": lost, "missed": count.missed.Load(), "behind": watchers - caughtUp, "resumed": count.resumed.Load(),
	}
}

func churned(n int) string { return fmt.Sprintf("churn-%d", n) }

func churnOne(a *api, path, template string, n, clients int, rate float64, until time.Time, acknowledged *atomic.Int64, count *counts) {
	pause := time.Duration(float64(clients) / rate * float64(time.Second))
	for turn := 1; time.Now().Before(until); turn++ {
		due := time.Now().Add(pause)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%s%d"}}}`, sequence, turn)
		if count.patient(a, step{"PATCH", path + "/" + churned(n), "application/merge-patch+json", []byte(patch), 200}, 200) {
			acknowledged.Store(int64(turn))
		}
		if turn%5 == 0 {
			count.patient(a, step{"GET", path + "/" + churned(n), "", nil, 200}, 200)
		}
		if turn%10 == 0 {
			name := fmt.Sprintf("passing-%d-%d", n, turn)
			steps := cycle(path, name, template, turn)
			for at, also := range []int{409, 200, 200, 404} {
				count.patient(a, steps[at], also)
			}
		}
		time.Sleep(time.Until(due))
	}
}

// follow watches until ctx ends and goes on at the last version after every end.
func follow(ctx context.Context, a *api, path, from string, seen map[string]int, count *counts) {
	for ctx.Err() == nil {
		answer, err := a.open(ctx, "GET", path+"?watch=true&allowWatchBookmarks=true&resourceVersion="+from, "application/json", "", nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			if err == nil {
				answer.Body.Close()
			}
			if ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
			}
			continue
		}
		from = take(answer, from, seen, count)
		count.resumed.Add(1)
	}
}

var seenLock sync.Mutex

func take(answer *http.Response, from string, seen map[string]int, count *counts) string {
	defer answer.Body.Close()
	lines := bufio.NewReaderSize(answer.Body, 8192)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return from
		}
		var event struct {
			Type   string
			Object struct {
				Metadata struct{ Name, ResourceVersion string }
			}
		}
		if json.Unmarshal(line, &event) != nil || event.Type == "ERROR" {
			log.Printf("watch: %.300s", line)
			count.missed.Add(1)
			return from
		}
		from = event.Object.Metadata.ResourceVersion
		if event.Type != "MODIFIED" || !bytes.Contains(line, []byte(sequence)) {
			continue
		}
		name, got := event.Object.Metadata.Name, sequenceOf(line)
		seenLock.Lock()
		if got != seen[name]+1 {
			count.missed.Add(1)
			log.Printf("watch: %s jumps from %d to %d", name, seen[name], got)
		}
		seen[name] = got
		seenLock.Unlock()
	}
}

func lostWrites(a *api, direct string, acknowledged []atomic.Int64) int {
	lost := 0
	for n := range acknowledged {
		code, body := a.ask("GET", direct+"/"+churned(n), "", nil)
		if code != 200 || int64(sequenceOf(body)) < acknowledged[n].Load() {
			lost++
		}
	}
	return lost
}

// waitUntilSeen returns how many watchers have come to the last count of every object, within ten seconds.
func waitUntilSeen(seen []map[string]int, acknowledged []atomic.Int64) int {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		complete := 0
		seenLock.Lock()
		for _, one := range seen {
			behind := false
			for n := range acknowledged {
				behind = behind || int64(one[churned(n)]) < acknowledged[n].Load()
			}
			if !behind {
				complete++
			}
		}
		seenLock.Unlock()
		if complete == len(seen) || time.Now().After(deadline) {
			return complete
		}
	}
}

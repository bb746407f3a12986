package main

import (
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const applied = `{"apiVersion":"%s","kind":"Instance","metadata":{"name":"%s","labels":{"bench/applied":"%d"}}}`

// apiVersion returns the group version of a collection's path, such as worker.gpustack.ai/v1.
func apiVersion(path string) string {
	parts := strings.Split(path, "/")
	return parts[2] + "/" + parts[3]
}

// write creates, patches, applies to and deletes objects, `rate` requests a second in all.
func write(a *api, path, template string, clients int, rate float64, length time.Duration) map[string]any {
	tokens := make(chan struct{}, clients)
	began := time.Now()
	go func() {
		for n := 0; time.Since(began) < length; n++ {
			time.Sleep(time.Until(began.Add(time.Duration(float64(n) / rate * float64(time.Second)))))
			tokens <- struct{}{}
		}
		close(tokens)
	}()
	var writers sync.WaitGroup
	var failed atomic.Int64
	took := make([][]float64, clients)
	for n := range clients {
		writers.Go(func() {
			for turn := 0; ; turn++ {
				name := fmt.Sprintf("write-%s-%d-%d", strings.ReplaceAll(apiVersion(path), "/", "-"), n, turn)
				for _, step := range cycle(path, name, template, turn) {
					if _, more := <-tokens; !more {
						return
					}
					sent := time.Now()
					code, body := a.ask(step.method, step.path, step.contentType, step.body)
					took[n] = append(took[n], ms(time.Since(sent)))
					if code != step.want {
						failed.Add(1)
						log.Printf("%s %s: %d %s", step.method, step.path, code, body)
					}
				}
			}
		})
	}
	writers.Wait()
	seconds := time.Since(began).Seconds()
	var all []float64
	for _, some := range took {
		all = append(all, some...)
	}
	return map[string]any{
		"requests": len(all), "failed": failed.Load(), "rate": float64(len(all)) / seconds,
		"p50": quantile(all, 0.5), "p99": quantile(all, 0.99),
	}
}

type step struct {
	method, path, contentType string
	body                      []byte
	want                      int
}

func cycle(path, name, template string, turn int) []step {
	one := path + "/" + name
	made := strings.ReplaceAll(template, "NAME", name)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"bench/turn":"%d"}}}`, turn)
	var stated struct{ APIVersion string }
	must(json.Unmarshal([]byte(made), &stated))
	apply := fmt.Sprintf(applied, stated.APIVersion, name, turn)
	return []step{
		{"POST", path, "application/json", []byte(made), 201},
		{"PATCH", one, "application/merge-patch+json", []byte(patch), 200},
		{"PATCH", one + "?fieldManager=load&force=true", "application/apply-patch+yaml", []byte(apply), 200},
		{"DELETE", one, "", nil, 200},
	}
}

// fill creates objects with the names that get and watch ask for.
func fill(a *api, path, template, name string, clients, objects int) map[string]any {
	var writers sync.WaitGroup
	var next, failed atomic.Int64
	began := time.Now()
	for range clients {
		writers.Go(func() {
			for n := next.Add(1) - 1; n < int64(objects); n = next.Add(1) - 1 {
				made := strings.ReplaceAll(template, "NAME", fmt.Sprintf(name, n))
				if code, body := a.ask("POST", path, "application/json", []byte(made)); code != 201 {
					failed.Add(1)
					log.Printf("POST %s: %d %.300s", path, code, body)
				}
			}
		})
	}
	writers.Wait()
	return map[string]any{"failed": failed.Load(), "rate": float64(objects) / time.Since(began).Seconds()}
}

// Command load asks an API server as its clients do and measures what they notice.
//
// load fill|list|get|watch|write|churn -kubeconfig FILE -path /apis/worker.gpustack.ai/v1/namespaces/x/instances ...
//
// It prints one JSON object. Delays are in milliseconds. Objects are made by hack/bench; this program only changes them.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// api is one server, asked below one collection.
type api struct {
	http *http.Client
	host string
}

func connect(kubeconfig string) *api {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(err)
	client, err := rest.HTTPClientFor(config)
	must(err)
	return &api{http: client, host: strings.TrimRight(config.Host, "/")}
}

func (a *api) open(ctx context.Context, method, path, accept, contentType string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == nil {
		request.Body = http.NoBody
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", "load")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	return a.http.Do(request)
}

// ask sends one request and returns code and body; an unanswered request has code 0.
func (a *api) ask(method, path, contentType string, body []byte) (int, []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := a.open(ctx, method, path, "application/json", contentType, body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer answer.Body.Close()
	told, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return answer.StatusCode, told
}

func list(a *api, path, accept string, times int) map[string]any {
	var took []float64
	var size int64
	for range times {
		began := time.Now()
		answer, err := a.open(context.Background(), "GET", path, accept, "", nil)
		must(err)
		size, err = io.Copy(io.Discard, answer.Body)
		must(err)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			log.Fatalf("GET %s: %s", path, answer.Status)
		}
		took = append(took, ms(time.Since(began)))
	}
	return map[string]any{"ms": took, "bytes": size, "median": quantile(took, 0.5), "best": slices.Min(took)}
}

func get(a *api, path, name string, times, most int) map[string]any {
	var took []float64
	for n := range times {
		began := time.Now()
		code, body := a.ask("GET", path+"/"+fmt.Sprintf(name, (n*7919)%most), "", nil)
		if code != http.StatusOK {
			log.Fatalf("GET %s: %d %s", path, code, body)
		}
		took = append(took, ms(time.Since(began)))
	}
	return map[string]any{"p50": quantile(took, 0.5), "p99": quantile(took, 0.99), "mean": mean(took)}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(max(1, len(values)))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("load fill|list|get|watch|write|churn")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "file")
	path := flags.String("path", "", "collection")
	direct := flags.String("direct", "", "the same collection at kube-apiserver: where changes of watch, and the check of churn, go")
	template := flags.String("template", "", "file with the JSON of an object; NAME in it is replaced")
	accept := flags.String("accept", "application/json", "header")
	name := flags.String("name", "bench-%05d", "names of the objects")
	times := flags.Int("n", 5, "how often")
	most := flags.Int("objects", 1, "how many objects there are")
	clients := flags.Int("clients", 1, "watchers, or writers")
	watchers := flags.Int("watchers", 10, "watchers of churn")
	rate := flags.Float64("rate", 20, "changes a second")
	seconds := flags.Float64("seconds", 10, "how long")
	must(flags.Parse(os.Args[2:]))
	a := connect(*kubeconfig)
	length := time.Duration(*seconds * float64(time.Second))
	var result map[string]any
	switch os.Args[1] {
	case "fill":
		result = fill(a, *path, read(*template), *name, *clients, *most)
	case "list":
		result = list(a, *path, *accept, *times)
	case "get":
		result = get(a, *path, *name, *times, *most)
	case "watch":
		result = watch(a, *path, *direct, fmt.Sprintf(*name, 0), *clients, *rate, length)
	case "write":
		result = write(a, *path, read(*template), *clients, *rate, length)
	case "churn":
		result = churn(a, *path, *direct, read(*template), *clients, *watchers, *rate, length)
	default:
		log.Fatalf("%s: no such load", os.Args[1])
	}
	must(json.NewEncoder(os.Stdout).Encode(result))
}

func read(file string) string {
	text, err := os.ReadFile(file)
	must(err)
	return string(text)
}

// Command relay is the least an aggregated API can be: it passes requests below one path on to another of kube-apiserver
// and bytes back, and neither asks who calls nor looks at what it passes. A bench takes it for the floor.
//
// relay -kubeconfig FILE -listen 127.0.0.1:0 -from /apis/floor.example/v1 -to /apis/worker.gpustack.ai/v1alpha1
//
// It serves TLS with a certificate of its own making, which nobody can check. Its discovery names no resource: else the
// cluster's own controllers would watch through it too, and wait for it when it is gone.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	leaf, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(err)
	return tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: key}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file")
	listen := flag.String("listen", "127.0.0.1:0", "address")
	from := flag.String("from", "", "path that is served")
	to := flag.String("to", "", "path that is asked")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	transport, err := rest.TransportFor(config)
	must(err)
	upstream, err := url.Parse(config.Host)
	must(err)
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // each change of a watch leaves at once
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(upstream)
			request.Out.URL.Path = *to + strings.TrimPrefix(request.In.URL.Path, *from)
			for name := range request.Out.Header {
				if strings.HasPrefix(name, "X-Remote-") {
					request.Out.Header.Del(name)
				}
			}
		},
	}
	served := http.NewServeMux()
	served.Handle(*from+"/", proxy)
	served.HandleFunc(*from, func(answer http.ResponseWriter, _ *http.Request) {
		answer.Header().Set("Content-Type", "application/json")
		groupVersion := strings.TrimPrefix(*from, "/apis/")
		fmt.Fprintf(answer, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[]}`, groupVersion)
	})
	server := &http.Server{
		Addr:      *listen,
		Handler:   served,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}},
	}
	log.Printf("listening on %s", *listen)
	log.Fatal(server.ListenAndServeTLS("", ""))
}

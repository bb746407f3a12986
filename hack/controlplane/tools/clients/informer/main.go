// Command informer follows one resource with client-go's informer, as controllers in Go do.
//
// informer -kubeconfig FILE -group worker.gpustack.ai -version v1 -resource instances [-metadata]
//
// It prints one JSON object a line: {"synced":N} once, then {"event":"add|update|delete","name":...,"version":...,
// "apiVersion":...}. It ends when its standard input ends.
package main

import (
	"encoding/json"
	"flag"
	"io"
	"log"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	out  = json.NewEncoder(os.Stdout)
	lock sync.Mutex
)

func say(line map[string]any) {
	lock.Lock()
	defer lock.Unlock()
	if err := out.Encode(line); err != nil {
		log.Fatal(err)
	}
}

func told(event string, obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	about, err := meta.Accessor(obj)
	if err != nil {
		log.Fatal(err)
	}
	line := map[string]any{"event": event, "name": about.GetName(), "version": about.GetResourceVersion()}
	if full, ok := obj.(*unstructured.Unstructured); ok {
		line["apiVersion"] = full.GetAPIVersion()
	}
	say(line)
}

func informerOf(config *rest.Config, resource schema.GroupVersionResource, onlyMetadata bool) (cache.SharedIndexInformer, error) {
	if onlyMetadata {
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return metadatainformer.NewSharedInformerFactory(client, 0).ForResource(resource).Informer(), nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(resource).Informer(), nil
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file")
	var resource schema.GroupVersionResource
	flag.StringVar(&resource.Group, "group", "", "API group")
	flag.StringVar(&resource.Version, "version", "", "API version")
	flag.StringVar(&resource.Resource, "resource", "", "plural")
	onlyMetadata := flag.Bool("metadata", false, "follow metadata alone")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	informer, err := informerOf(config, resource, *onlyMetadata)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { told("add", obj) },
		UpdateFunc: func(_, obj any) { told("update", obj) },
		DeleteFunc: func(obj any) { told("delete", obj) },
	}); err != nil {
		log.Fatal(err)
	}
	stop := make(chan struct{})
	go informer.Run(stop)
	if cache.WaitForCacheSync(stop, informer.HasSynced) {
		say(map[string]any{"synced": len(informer.GetStore().ListKeys())})
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		log.Fatal(err)
	}
	close(stop)
}

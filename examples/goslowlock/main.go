// SPDX-License-Identifier: Apache-2.0

// A service that counts words, with a lock that is sometimes held too long: each hundredth request to /count
// tidies up under it. The request that is slow is another one, and the timeline says who had the lock.
//
//	go run . -listen localhost:8080 &
//	for i in $(seq 300); do curl -s localhost:8080/count?text=to+be+or+not >/dev/null; done
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net"
	"net/http"
	"runtime/trace"
	"strings"
	"sync"
	"time"

	tracerd "tracerd/client/go"
)

type counter struct {
	mu    sync.Mutex
	words map[string]int
	calls int
}

func (c *counter) count(w http.ResponseWriter, r *http.Request) {
	defer trace.StartRegion(r.Context(), "count").End()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, word := range strings.Fields(r.FormValue("text")) {
		c.words[word]++
	}
	c.calls++
	if c.calls%100 == 0 {
		c.tidy(r)
	}
	_ = json.NewEncoder(w).Encode(c.words)
}

// tidy works for a long time, and with the lock.
func (c *counter) tidy(r *http.Request) {
	defer trace.StartRegion(r.Context(), "tidy").End()
	for end := time.Now().Add(40 * time.Millisecond); time.Now().Before(end); {
		for word := range c.words {
			_ = strings.ToUpper(word)
		}
	}
}

func main() {
	listen := flag.String("listen", "localhost:8080", "address to listen on")
	over := flag.Duration("over", 20*time.Millisecond, "a request that takes this long triggers a snapshot")
	flag.Parse()

	agent := tracerd.Start(tracerd.Options{})
	defer agent.Stop()

	c := &counter{words: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/count", c.count)
	mux.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		st := agent.Status()
		_ = json.NewEncoder(w).Encode(map[string]any{"connected": st.Connected, "target": st.Target, "recording": st.Recording,
			"missing": st.Missing, "written": st.Written, "failed": st.Failed})
	})
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %s", l.Addr())
	log.Fatal(http.Serve(l, agent.Handler(mux, *over)))
}

// SPDX-License-Identifier: Apache-2.0

// Load is a service and its clients in one process: requests over loopback, JSON, a goroutine and a task each.
//
//	load record FILE SECONDS	its execution trace, written by runtime/trace
//	load rate off|recorder|module SECONDS	requests a second; `module` connects to tracerd
//	load serve	under load, with the module; each line of input writes the recorder's trace into memory without the module and
//			prints nanoseconds and bytes
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/trace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	tracerd "tracerd/client/go"
)

const clients = 4

func handle(w http.ResponseWriter, r *http.Request) {
	defer trace.StartRegion(r.Context(), "encode").End()
	made := make(chan map[string]int)
	go func() {
		m := map[string]int{}
		for i := 0; i < 100; i++ {
			m[strconv.Itoa(i)] = i
		}
		made <- m
	}()
	_ = json.NewEncoder(w).Encode(<-made)
}

// run serves requests until the time is over, and says how many it were.
func run(a *tracerd.Agent, d time.Duration) (requests int64) {
	s := httptest.NewServer(a.Handler(http.HandlerFunc(handle), 0))
	defer s.Close()
	var wg sync.WaitGroup
	for end, i := time.Now().Add(d), 0; i < clients; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for time.Now().Before(end) {
				r, err := http.Get(s.URL)
				if err != nil {
					log.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
				atomic.AddInt64(&requests, 1)
			}
		}()
	}
	wg.Wait()
	return requests
}

func seconds(s string) time.Duration {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		log.Fatal(err)
	}
	return time.Duration(f * float64(time.Second))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func rate(mode string, d time.Duration) {
	var a *tracerd.Agent
	switch mode {
	case "recorder":
		check(trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: tracerd.DefaultMinAge, MaxBytes: tracerd.DefaultMaxBytes}).Start())
	case "module":
		a = tracerd.Start(tracerd.Options{})
	}
	run(a, d/4)
	begin := time.Now()
	fmt.Printf("%.1f\n", float64(run(a, d))/time.Since(begin).Seconds())
}

func serve() {
	r := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: tracerd.DefaultMinAge, MaxBytes: tracerd.DefaultMaxBytes})
	check(r.Start())
	a := tracerd.Start(tracerd.Options{Recorder: r})
	go run(a, time.Hour)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f, err := os.CreateTemp("/dev/shm", "load")
		check(err)
		_ = os.Remove(f.Name())
		begin := time.Now()
		n, err := r.WriteTo(f)
		check(err)
		fmt.Println(time.Since(begin).Nanoseconds(), n)
		_ = f.Close()
	}
}

func main() {
	switch os.Args[1] {
	case "record":
		f, err := os.Create(os.Args[2])
		check(err)
		check(trace.Start(f))
		run(nil, seconds(os.Args[3]))
		trace.Stop()
		check(f.Close())
	case "rate":
		rate(os.Args[2], seconds(os.Args[3]))
	case "serve":
		serve()
	}
}

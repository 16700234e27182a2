// Goroutines on several threads, deep calls, and the runtime's stack switches (garbage collection, channels).
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

var sink uint64

//go:noinline
func leaf(x uint64) uint64 {
	for i := 0; i < 20000; i++ {
		x = x*6364136223846793005 + 1442695040888963407
		x ^= x >> 17
	}
	return x
}

//go:noinline
func calls(depth int, x uint64) uint64 {
	if depth == 0 {
		return leaf(x) + 1
	}
	return calls(depth-1, x) + 1
}

//go:noinline
func allocates(n int) int {
	m := map[string]int{}
	for i := 0; i < n; i++ {
		m["k"+strconv.Itoa(i%500)] += i
	}
	return len(m)
}

//go:noinline
func works(end time.Time) uint64 {
	var x uint64
	for time.Now().Before(end) {
		x = calls(20, x)
		x += uint64(allocates(1000))
	}
	return x
}

func main() {
	seconds := 1.0
	if len(os.Args) > 1 {
		seconds, _ = strconv.ParseFloat(os.Args[1], 64)
	}
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	calling := strings.Repeat("main.calls;", 21)
	fmt.Printf("pid %d\n", os.Getpid())
	fmt.Printf("chain main.leaf;%smain.works;main.main;runtime.main;runtime.goexit*\n", calling)
	fmt.Printf("chain main.leaf;%smain.works;main.main.func1;runtime.goexit*\n", calling)
	fmt.Printf("chain *;main.allocates;main.works;main.main;runtime.main;runtime.goexit*\n")
	fmt.Printf("chain *;main.allocates;main.works;main.main.func1;runtime.goexit*\n")
	fmt.Printf("chain *;main.works;main.main;runtime.main;runtime.goexit*\n")
	fmt.Printf("chain *;main.works;main.main.func1;runtime.goexit*\n")
	fmt.Printf("other *\n") // the runtime's own threads and stacks
	fmt.Printf("ready\n")
	c := make(chan uint64)
	go func() { c <- works(end) }()
	sink = works(end)
	sink += <-c
	fmt.Printf("truth sum %d\n", sink&1)
}

// Go as the DWARF reader has to read it: packages, methods, closures, inlined calls.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

type grid struct{ cells []int }

func double(n int) int { return n * 2 }

func weigh(n int) int { return double(n) + 1 }

//go:noinline
func (g *grid) total() int {
	sum := 0
	for _, c := range g.cells {
		sum += weigh(c)
	}
	return sum
}

//go:noinline
func apply(n int, f func(int) int) int { return f(n) + f(n+1) }

func main() {
	g := &grid{}
	for i := 0; i < 100*len(os.Args); i++ {
		g.cells = append(g.cells, i*7%31)
	}
	sort.Slice(g.cells, func(a, b int) bool { return g.cells[a] > g.cells[b] })
	k := len(os.Args)
	fmt.Println(g.total(), apply(k, func(n int) int { return weigh(n) * k }), strings.Repeat("x", k))
}

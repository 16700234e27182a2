// Reads profiles with Go's own package and checks them by its rules, and by those that Parca adds: ids of mappings,
// locations and functions are 1..n in order. Prints the sum of each sample type.
package main

import (
	"fmt"
	"os"

	"github.com/google/pprof/profile"
)

func check(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return err
	}
	if err := p.CheckValid(); err != nil {
		return err
	}
	for i, m := range p.Mapping {
		if m.ID != uint64(i+1) {
			return fmt.Errorf("mapping %d has the id %d", i+1, m.ID)
		}
	}
	for i, l := range p.Location {
		if l.ID != uint64(i+1) {
			return fmt.Errorf("location %d has the id %d", i+1, l.ID)
		}
	}
	for i, fn := range p.Function {
		if fn.ID != uint64(i+1) {
			return fmt.Errorf("function %d has the id %d", i+1, fn.ID)
		}
	}
	sums := make([]int64, len(p.SampleType))
	for _, s := range p.Sample {
		for i, v := range s.Value {
			sums[i] += v
		}
	}
	for i, t := range p.SampleType {
		fmt.Printf("%s/%s %d\n", t.Type, t.Unit, sums[i])
	}
	return nil
}

func main() {
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

// Llm is a gateway with caps for language models: tokens at once for each model, which
// organisations share, and within each its users. It runs against a service of its own, which counts.
//
//	go run ./examples/llm
package main

import (
	"context"
	"fmt"
	"os"

	"sema/engines/memengine"
	"sema/examples/internal/failing"
)

func main() {
	engine := &failing.Engine{Engine: memengine.New()}
	if err := show(context.Background(), engine, engine.Fail, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "llm:", err)
		os.Exit(1)
	}
}

// Command worker is a process of the load of package versions, built from the source of some
// release: worker URL WORK, where WORK is JSON.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/redis/go-redis/v9"

	"sema/engine/fileengine"
	"sema/engine/redisengine"
	"sema/lab/versions"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: worker URL WORK")
	}
	var w versions.Work
	if err := json.Unmarshal([]byte(args[1]), &w); err != nil {
		return err
	}
	u, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	if u.Scheme == "file" {
		e, err := fileengine.New(u.Path, nil)
		if err != nil {
			return err
		}
		return errors.Join(w.Serve(e), e.Close())
	}
	o, err := redis.ParseURL(args[0])
	if err != nil {
		return err
	}
	rdb := redis.NewClient(o)
	e, err := redisengine.New(rdb, nil)
	if err != nil {
		return errors.Join(err, rdb.Close())
	}
	return errors.Join(w.Serve(e), e.Close(), rdb.Close())
}

//go:build unix

package pgengine_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"sema"
	"sema/engines/pgengine"
	"sema/internal/fixture/local"
)

// A program with database/sql: the engine borrows connections from the program's own pool.
func ExampleNewSQL() {
	ctx := context.Background()
	server, err := local.Postgres(ctx) // you have a server already
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()
	db, err := sql.Open("pgx", server.Address)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()

	engine, err := pgengine.NewSQL(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	if err := engine.Migrate(ctx); err != nil { // or run the SQL of Options.SQL with your other migrations
		log.Fatal(err)
	}
	sem, err := sema.New(engine, "github-api", 5, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = sem.Close() }()
	err = sem.Do(ctx, func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "SELECT 1") // at most five at a time, in all processes
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

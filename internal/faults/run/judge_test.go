package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"sema/internal/faults"
	"sema/lab/history"
)

// What a rule of today does not find is gone; what was looked for on the spot, and
// is in no record, stays.
func TestRecordsAreJudgedAgain(t *testing.T) {
	dir := t.TempDir()
	record, results := filepath.Join(dir, "record"), filepath.Join(dir, "results")
	var saved bytes.Buffer
	if err := (&history.Round{Semaphores: []history.Semaphore{{Name: "x", Limit: 1}}}).Save(&saved); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, saved.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	r := faults.Result{Ground: "file", History: record}
	r.Judged([]history.Breach{{Promise: history.PromiseOrder}, {Promise: history.PromiseLeak, Text: "a key"}, {Promise: history.PromiseLimit, Excused: "FLUSHALL"}})
	line, err := json.Marshal(r)
	if err := err; err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(results, append(line, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if err := judgeAgain(results, &log); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(results)
	if err := err; err != nil {
		t.Fatal(err)
	}
	all, err := faults.ReadResults(bytes.NewReader(data))
	if err := err; err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].Violations != 1 || all[0].Excused != 0 || len(all[0].Breaches) != 1 || all[0].Breaches[0].Text != "a key" {
		t.Errorf("judged %+v\n%s", all, log.String())
	}
}

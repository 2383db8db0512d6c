package view

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"sema/engine"
)

// Trouble says an engine's error to operators: a sentence, and what to try if
// the engine knows. called is what they call the engine, such as Redis.
func Trouble(called string, err error) string {
	text := trouble(called, err)
	var failure *engine.Error
	if errors.As(err, &failure) && failure.Hint != "" {
		text += " Try: " + strings.TrimSuffix(failure.Hint, ".") + "."
	}
	return text
}

func trouble(called string, err error) string {
	var network net.Error
	var name *net.DNSError
	switch {
	case errors.As(err, &name):
		return "The host " + name.Name + " of " + called + " is not known."
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return called + " does not answer."
	case errors.Is(err, syscall.ECONNREFUSED):
		return called + " does not run, or not at this address: the connection is refused."
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return called + " ended the connection."
	case errors.Is(err, engine.ErrClosed):
		return "This server is about to end."
	}
	return sentence(err)
}

// sentence is an error's text without the words that are for programmers: the package,
// and the operation that failed.
func sentence(err error) string {
	var failure *engine.Error
	for errors.As(err, &failure) && failure.Err != nil {
		err = failure.Err
	}
	text := strings.TrimPrefix(err.Error(), "sema: ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

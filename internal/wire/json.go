package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"sema/engine"
)

// This file reads JSON that people write: the bodies of the JSON API, and files of limits.

// Decode reads an object into v. A field that v does not have is an error. The error says what is wrong; it may be an *engine.ArgumentError.
func Decode(text []byte, v any) error {
	if err := strict(text); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && kind.Field != "" {
		return fmt.Errorf("the field %q has a value of the wrong kind: %s", kind.Field, kind.Value)
	}
	if _, ok := errors.AsType[*engine.ArgumentError](err); err == nil || ok {
		return err
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// Whole is a whole number in JSON: 3, 3.0 and 3e0 are the same.
type Whole int

// UnmarshalJSON implements json.Unmarshaler. In a list it also refuses null.
func (n *Whole) UnmarshalJSON(text []byte) error {
	var f float64
	if json.Unmarshal(text, &f) != nil {
		return fmt.Errorf("%s: want a whole number", short(string(text)))
	}
	if string(text) == "null" || f != math.Trunc(f) || math.Abs(f) > math.MaxInt32 {
		return fmt.Errorf("%s: want a whole number, at most %d", short(string(text)), math.MaxInt32)
	}
	*n = Whole(f)
	return nil
}

// Amounts are those of pools in JSON, by name: whole numbers, or of rates texts such as "500/1m".
type Amounts map[string]engine.Amount

// UnmarshalJSON implements json.Unmarshaler. Their ranges are for engine.PoolsOf.
func (a *Amounts) UnmarshalJSON(text []byte) error {
	var fields Fields
	if err := fields.UnmarshalJSON(text); err != nil {
		return err
	}
	*a = Amounts{}
	for name, value := range fields {
		var rate engine.Amount
		var err error
		if bytes.HasPrefix(value, []byte(`"`)) {
			err = rate.UnmarshalJSON(value)
		} else {
			err = (*Whole)(&rate.N).UnmarshalJSON(value)
		}
		if err != nil {
			return err
		}
		(*a)[name] = rate
	}
	return nil
}

// strict refuses bodies that encoding/json accepts and the OpenAPI description forbids: a
// field that occurs twice, is null, or has another case; text that is not UTF-8; bytes
// after the object.
func strict(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("want UTF-8")
	}
	var fields Fields
	if err := json.Unmarshal(text, &fields); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	for name, value := range fields {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			return fmt.Errorf("unknown field %q", short(name))
		}
		if string(value) == "null" {
			return fmt.Errorf("the field %q is null: leave it out", short(name))
		}
	}
	return nil
}

// Fields are the fields of an object, none of which occurs twice.
type Fields map[string]json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (fields *Fields) UnmarshalJSON(text []byte) error {
	*fields = Fields{}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("want an object")
	}
	for d.More() {
		var value json.RawMessage
		name, err := d.Token()
		if err == nil {
			err = d.Decode(&value)
		}
		switch _, twice := (*fields)[fmt.Sprint(name)]; {
		case err != nil:
			return err
		case twice:
			return fmt.Errorf("the field %q occurs twice", short(fmt.Sprint(name)))
		}
		(*fields)[fmt.Sprint(name)] = value
	}
	return nil
}

func short(text string) string { return text[:min(len(text), 60)] }

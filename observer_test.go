package sema_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"sema"
)

// Each field of either is told, the first one's before the second's.
func TestObserverAnd(t *testing.T) {
	var told []string
	of := func(name string) (o sema.Observer) {
		v := reflect.ValueOf(&o).Elem()
		for i := range v.NumField() {
			v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
				told = append(told, fmt.Sprint(name, i))
				return nil
			}))
		}
		return o
	}
	for what, c := range map[string]struct {
		o    sema.Observer
		want []string
	}{
		"both":    {of("a").And(of("b")), []string{"a", "b"}},
		"first":   {of("a").And(sema.Observer{}), []string{"a"}},
		"second":  {sema.Observer{}.And(of("b")), []string{"b"}},
		"neither": {sema.Observer{}.And(sema.Observer{}), nil},
	} {
		v := reflect.ValueOf(c.o)
		for i := range v.NumField() {
			told = nil
			var want []string
			for _, name := range c.want {
				want = append(want, fmt.Sprint(name, i))
			}
			if f := v.Field(i); !f.IsNil() {
				f.Call([]reflect.Value{reflect.Zero(f.Type().In(0))})
			}
			if !slices.Equal(told, want) {
				t.Errorf("%s: %s told %v, want %v", what, v.Type().Field(i).Name, told, want)
			}
		}
	}
}

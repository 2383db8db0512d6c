package protocol

import (
	"reflect"
	"testing"
	"time"
)

func TestMerge(t *testing.T) {
	g1, g2 := Grant{Token: 1}, Grant{Token: 2}
	for _, c := range []struct{ a, b, want Notification }{
		{},
		{Notification{Grants: []Grant{g1}}, Notification{Grants: []Grant{g2}, Ask: true}, Notification{Grants: []Grant{g1, g2}, Ask: true}},
		{Notification{Renew: true, Recall: true}, Notification{Closed: true}, Notification{Renew: true, Closed: true, Recall: true}},
		{Notification{Recheck: time.Second}, Notification{}, Notification{Recheck: time.Second}},
		{Notification{}, Notification{Recheck: time.Second}, Notification{Recheck: time.Second}},
		{Notification{Recheck: time.Second}, Notification{Recheck: time.Minute}, Notification{Recheck: time.Second}},
		{Notification{Recheck: time.Minute}, Notification{Recheck: time.Second}, Notification{Recheck: time.Second}},
	} {
		got := c.a
		if got.Merge(c.b); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v and %+v: %+v, want %+v", c.a, c.b, got, c.want)
		}
	}
}

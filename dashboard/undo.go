package dashboard

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"sema/access"
	"sema/engine"
	"sema/internal/rights"
	"sema/internal/view"
)

// undoCookie names the cookie that keeps the last change of a browser, and the form that
// undoes the change. An address could not keep them: a link of somebody else could then
// offer to undo a change that nobody has made.
const undoCookie = "sema_undo"

// undoTime is for how long a change can be undone with one click, in seconds.
const undoTime = 300

// offer is what a browser keeps of its last change.
type offer struct {
	Of   string     // the kind of change
	Says string     // what was, and what is
	Back url.Values // the form that undoes it
}

// offerUndo sends the browser an offer for the page that follows a change. After a change
// that nothing undoes, it takes back the offer before.
func (h *Handler) offerUndo(w http.ResponseWriter, r *http.Request, x access.Record, d kind, before engine.State) {
	c := &http.Cookie{Name: undoCookie, MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: h.options.Secure || rights.Secure(r)}
	if d.undo != nil {
		if says, back := d.undo(x, before); back != nil {
			back.Set("name", x.Name)
			text, _ := json.Marshal(offer{x.What, says, back}) // plain data
			c.MaxAge, c.Value = undoTime, base64.RawURLEncoding.EncodeToString(text)
		}
	}
	http.SetCookie(w, c) // without a path: the browser takes ours
}

// undoOffered is what a page says of a change that was just made, and the form that undoes
// it, if the browser has an offer.
func (h *Handler) undoOffered(r *http.Request, name, do string, a visitor) (says string, back url.Values) {
	if c, err := r.Cookie(undoCookie); err == nil && rights.May(a.Who, rights.Admin) {
		text, _ := base64.RawURLEncoding.DecodeString(c.Value)
		var o offer
		if json.Unmarshal(text, &o) == nil && do != "" && o.Of == do && o.Back.Get("name") == name {
			return o.Says, o.Back
		}
	}
	return kinds[do].done, nil
}

func undoLimit(x access.Record, before engine.State) (says string, back url.Values) {
	for pool := range x.Pools.All() { // it is one
		was := view.Pool(before.Pools, pool).Amount()
		back = url.Values{"do": {"limit"}, "pool": {pool}, "amount": {was.String()}}
		if !before.Pinned {
			back.Set("unset", "1")
		}
		return fmt.Sprintf("%s %v → %v.", pool, was, x.Pools.Amount(pool)), back
	}
	says = fmt.Sprintf("Limit %d → %d", before.Limit, x.Limit)
	back = url.Values{"do": {"limit"}, "limit": {strconv.Itoa(before.Limit)}}
	if was, is := capsOf(listOf(before.Caps)), capsOf(x.Caps); x.Caps != nil && was != is {
		says += fmt.Sprintf(", %s → %s", was, is)
		back.Set("caps", view.CapsText(before.Caps))
	}
	if !before.Pinned {
		back.Set("unset", "1")
	}
	return says + ".", back
}

func undoUnset(_ access.Record, before engine.State) (says string, back url.Values) {
	if !before.Pinned {
		return "", nil
	}
	return fmt.Sprintf("Limit %d, kept → not kept.", before.Limit), url.Values{"do": {"limit"}, "limit": {strconv.Itoa(before.Limit)}}
}

func undoPause(x access.Record, before engine.State) (says string, back url.Values) {
	switch {
	case before.Paused == (x.What == "pause"): // nothing has changed
		return "", nil
	case before.Paused:
		return "Grants paused → open.", url.Values{"do": {"pause"}}
	}
	return "Grants open → paused.", url.Values{"do": {"unpause"}}
}

func undoKey(x access.Record, before engine.State) (says string, back url.Values) {
	was := view.LookAt(before).Key(x.Key)
	now := was
	if x.What == "unset-key" {
		now.Cap, now.Share = view.CapOf(before.Caps, x.Key), engine.DefaultShare
	} else {
		now.Cap, now.Share = cmp.Or(x.Cap, was.Cap), cmp.Or(x.Share, was.Share)
	}
	says = fmt.Sprintf("Key %s: %s → %s, share %d → %d.", x.Key, capOf(was.Cap), capOf(now.Cap), was.Share, now.Share)
	switch {
	case x.What == "unset-key" && !was.Ruled: // nothing has changed
		return "", nil
	case !was.Ruled:
		return says, url.Values{"do": {"unset-key"}, "key": {x.Key.String()}}
	}
	back = url.Values{"do": {"set-key"}, "key": {x.Key.String()}, "share": {strconv.Itoa(was.Share)}}
	if was.Cap != now.Cap {
		back.Set("cap", strconv.Itoa(cmp.Or(was.Cap, engine.MaxLimit)))
	}
	return says, back
}

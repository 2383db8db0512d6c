package dashboard

import (
	"net/http"
	"strings"

	"sema/access"
	"sema/internal/rights"
)

// cookie has the token of a visitor who has logged in.
const cookie = "sema_token"

// maxForm bounds the body of a post, in bytes.
const maxForm = 16 << 10

// visitor is who sent a request.
type visitor struct {
	access.Who
	loggedIn bool
}

// visitor finds out who sent a request.
func (h *Handler) visitor(r *http.Request) visitor {
	if h.options.Login != nil {
		if c, err := r.Cookie(cookie); err == nil {
			if who, ok := h.options.Login(r, c.Value); ok {
				return visitor{who, true}
			}
		}
	}
	switch {
	case h.options.Allow != nil:
		return visitor{Who: h.options.Allow(r)}
	case h.options.Login != nil:
		return visitor{}
	}
	return visitor{Who: access.Who{Right: rights.Read}}
}

// reading passes on requests of those who may read.
func (h *Handler) reading(f func(http.ResponseWriter, *http.Request, visitor)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a := h.visitor(r)
		switch {
		case rights.May(a.Who, rights.Read):
			f(w, r, a)
		case h.options.Login == nil:
			h.fail(w, r, a, http.StatusForbidden, "You may not see this.")
		default:
			see(w, "login")
		}
	}
}

// posting passes on posts that a page of ours has sent. A post that names no
// origin at all is not from a browser, which has other ways.
func (h *Handler) posting(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h.origins.Check(r)
		if err != nil || r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
			h.options.Audit(rights.Refused(access.Who{}, r, "", "the post is of a page of another site"))
			h.fail(w, r, visitor{}, http.StatusForbidden, "This request did not come from a page of this dashboard, so nothing was changed.")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			h.fail(w, r, visitor{}, http.StatusBadRequest, "The form cannot be read, so nothing was changed.")
			return
		}
		f(w, r)
	}
}

// see sends the browser on to a page of ours. http.Redirect would make the
// link absolute, and we do not know the path in front of ours.
func see(w http.ResponseWriter, page string) {
	w.Header().Set("Location", page)
	w.WriteHeader(http.StatusSeeOther)
}

type loginView struct {
	frame
	Wrong string
}

func (h *Handler) loginPage(w http.ResponseWriter, r *http.Request) {
	h.render(w, http.StatusOK, "login", loginView{frame: h.frame("Log in", visitor{})})
}

func (h *Handler) login(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimSpace(r.PostForm.Get("token"))
	c := &http.Cookie{Name: cookie, Value: token, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: h.options.Secure || rights.Secure(r)}
	who, ok := h.options.Login(r, token)
	if !ok || !rights.May(who, rights.Read) || c.Valid() != nil || token == "" {
		status, wrong := http.StatusUnauthorized, "There is no such token, or it may not look."
		if !ok && h.options.Unchecked != nil && h.options.Unchecked(r, token) {
			status, wrong = http.StatusTooManyRequests, "Too many wrong tokens of this name came from your address. This one was not checked: try it again in a second."
			w.Header().Set("Retry-After", "1")
		}
		h.render(w, status, "login", loginView{frame: h.frame("Log in", visitor{}), Wrong: wrong})
		return
	}
	http.SetCookie(w, c) // without a path: the browser takes ours
	see(w, "./")
}

func (h *Handler) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: cookie, MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: h.options.Secure || rights.Secure(r)})
	see(w, "login")
}

package rights

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Proxies are the proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted.
type Proxies []netip.Prefix

// ParseProxies reads a list such as "10.0.0.0/8,::1": networks and single addresses, separated
// by commas.
func ParseProxies(text string) (Proxies, error) {
	var list Proxies
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		one, err := netip.ParsePrefix(word)
		if err != nil {
			address, err := netip.ParseAddr(word)
			if err != nil {
				return nil, fmt.Errorf("sema: %q is neither a network nor an address: want for example 10.0.0.0/8 or 192.0.2.1", word)
			}
			one = netip.PrefixFrom(address, address.BitLen())
		}
		list = append(list, one)
	}
	return list, nil
}

func (p Proxies) has(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(one netip.Prefix) bool { return one.Contains(a) })
}

type viaTLS struct{}

// Resolve returns a request as the first trusted proxy received it: RemoteAddr comes from
// X-Forwarded-For, and the result of Secure from X-Forwarded-Proto. It returns a request
// from another address unchanged.
func (p Proxies) Resolve(r *http.Request) *http.Request {
	from, ok := addressOf(r.RemoteAddr)
	if !ok || !p.has(from) {
		return r
	}
	words := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(words) - 1; i >= 0 && p.has(from); i-- { // each proxy has appended the address of its client
		one, ok := addressOf(strings.TrimSpace(words[i]))
		if !ok {
			break
		}
		from = one
	}
	secure := false
	if protos := r.Header.Values("X-Forwarded-Proto"); len(protos) > 0 {
		secure = strings.EqualFold(protos[len(protos)-1], "https")
	}
	r = r.WithContext(context.WithValue(r.Context(), viaTLS{}, secure))
	r.RemoteAddr = from.String()
	return r
}

// Secure reports whether a request was sent by TLS, to this process or to the first trusted
// proxy.
func Secure(r *http.Request) bool {
	secure, _ := r.Context().Value(viaTLS{}).(bool)
	return secure || r.TLS != nil
}

// Origins returns a check that refuses requests from pages of other sites. It allows pages
// from the origin of the request's own address and from that of public, the address that
// users know; nil: there is none. path is the path of public without a slash at its end.
// Origins fails if public is not the address of a site.
func Origins(public *url.URL) (origins *http.CrossOriginProtection, path string, err error) {
	origins = http.NewCrossOriginProtection()
	if public == nil {
		return origins, "", nil
	}
	if public.Scheme != "http" && public.Scheme != "https" || public.Hostname() == "" || public.RawQuery != "" || public.Fragment != "" || public.User != nil {
		return nil, "", fmt.Errorf("sema: %q is not the address of a site: want for example https://sema.example.org/path", public.Redacted())
	}
	return origins, strings.TrimRight(public.Path, "/"), origins.AddTrustedOrigin(public.Scheme + "://" + public.Host)
}

// Host is the address of a request's sender, without a port.
func Host(r *http.Request) string { return hostOf(r.RemoteAddr) }

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address[:min(len(address), 60)]
}

// addressOf reads an address with or without a port.
func addressOf(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.Trim(hostOf(text), "[]"))
	return a.Unmap(), err == nil
}

// Package verify is the receiver's side of Milena's webhooks. It needs nothing but
// the standard library.
//
// A Verifier checks the signature of a request, in constant time, against every
// secret it is given, and refuses requests more than five minutes away from now in
// either direction. Middleware does that in front of an http.Handler, keeps the raw
// body, and lets a request through once only.
//
//	v, err := verify.New(verify.Config{Secrets: []string{os.Getenv("WEBHOOK_SECRET")}})
//	…
//	mw, err := verify.Middleware(v, verify.Options{Store: verify.NewMemory(0, 0)})
//	…
//	http.Handle("/hook", mw(handler))
//
// Every delivery is sent at least once, so a receiver that must act once needs a
// Store. The memory store is enough for one process; across processes, implement
// Store on the database that holds what the handler changes.
//
// What a signature covers differs by scheme. Standard Webhooks (and its ed25519
// form) covers id, time and body. stripe and timestamp-body cover time and body:
// the id header is not protected. body covers the body alone: a request can be
// replayed for ever and under any id, so prefer another scheme.
package verify

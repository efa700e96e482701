// Package signer signs webhook requests.
//
// It promises that what it sends is accepted by verifiers that are not ours: the
// Standard Webhooks libraries (schemes standard and standard-ed25519), Stripe's
// libraries (stripe), GitHub's (body with prefix sha256=) and the common hex over
// "timestamp.body" (timestamp-body). The body is signed byte for byte and never
// touched.
//
// The dispatcher makes one Signer per endpoint and calls Sign once an attempt;
// anyone else may use the package too. Receivers use signer/verify.
//
// Keys. A secret of the form whsec_<base64> is, for the standard scheme, the bytes
// that the base64 stands for, as Standard Webhooks says; for stripe, timestamp-body
// and body it is the text itself, whsec_ included, because that is what the public
// verifiers of those schemes take. A secret of the form whsk_<base64> is an ed25519
// private key and serves standard-ed25519 only. So an endpoint in the middle of a
// migration has keys of both kinds, and each scheme takes its own.
package signer

package devmode

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// Sample is an event of a kind that people really send.
type Sample struct {
	Type    string
	Subject string
	Data    []byte // JSON of 0.3 to 20 KB
}

// SampleTypes are the types of sample events, in the order in which they come.
var SampleTypes = []string{"payment.captured", "shipment.delivered", "proof.polygon.anchored", "pull_request.opened"}

// NewSample makes the n-th sample event. The same n, seed and time make the same event.
func NewSample(n int, seed uint64, now time.Time) Sample {
	g := generator{rand: rand.New(rand.NewPCG(seed, uint64(n))), now: now.UTC().Truncate(time.Millisecond)}
	makers := []func(n int) (subject string, data any){g.payment, g.shipment, g.proof, g.pullRequest}
	kind := n % len(SampleTypes)
	subject, body := makers[kind](n)
	data, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("devmode: sample event: %v", err)) // maps and numbers only
	}
	return Sample{Type: SampleTypes[kind], Subject: subject, Data: data}
}

type object = map[string]any

type generator struct {
	rand *rand.Rand
	now  time.Time
}

func (g *generator) pick(of ...string) string { return of[g.rand.IntN(len(of))] }

func (g *generator) hex(bytes int) string {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(g.rand.Uint32())
	}
	return hex.EncodeToString(b)
}

func (g *generator) ago(most time.Duration) string {
	return g.now.Add(-time.Duration(g.rand.Int64N(int64(most)))).Format(time.RFC3339)
}

func (g *generator) payment(n int) (string, any) {
	id := "pay_" + g.hex(8)
	amount := 199 + g.rand.IntN(25000)
	return id, object{
		"id": "evt_" + g.hex(8), "type": "payment.captured", "created_at": g.now.Format(time.RFC3339),
		"data": object{
			"payment": id, "amount": amount, "currency": g.pick("EUR", "USD", "CZK", "GBP"), "captured_at": g.ago(time.Minute),
			"method":   object{"type": "card", "brand": g.pick("visa", "mastercard", "amex"), "last4": fmt.Sprintf("%04d", g.rand.IntN(10000))},
			"customer": object{"id": "cus_" + g.hex(6), "email": fmt.Sprintf("customer%d@example.com", n)},
			"order":    fmt.Sprintf("%06d", 100000+n), "fee": amount * 29 / 1000, "net": amount - amount*29/1000,
		},
	}
}

func (g *generator) shipment(int) (string, any) {
	id := "shp_" + g.hex(6)
	var scans []object
	for i := range 6 + g.rand.IntN(14) {
		scans = append(scans, object{
			"at": g.now.Add(-time.Duration(40-i) * time.Hour).Format(time.RFC3339), "facility": g.pick("PRG1", "VIE2", "BER4", "WAW1", "MUC3"),
			"city": g.pick("Praha", "Wien", "Berlin", "Warszawa", "München"), "status": g.pick("arrived", "departed", "sorted", "out_for_delivery"),
			"note": g.pick("", "Übergabe an Nachbarn", "podpis převzat", "left at the door"),
		})
	}
	return id, object{
		"shipment_id": id, "carrier": g.pick("dhl", "ups", "gls", "zasilkovna"), "tracking_number": g.hex(9),
		"delivered_at": g.ago(time.Hour), "signed_by": g.pick("J. Novák", "M. Jesenská", "A. Smith"),
		"recipient": object{"city": "Praha", "postal_code": "11000", "country": "CZ"}, "scans": scans,
	}
}

func (g *generator) proof(int) (string, any) {
	id := "prf_" + g.hex(10)
	var path []object
	for range 12 + g.rand.IntN(12) {
		path = append(path, object{"side": g.pick("left", "right"), "hash": "0x" + g.hex(32)})
	}
	return id, object{
		"id": "evt_" + g.hex(8), "type": "proof.polygon.anchored", "created_at": g.now.Format(time.RFC3339),
		"data": object{
			"proof_id": id, "document_sha256": g.hex(32), "merkle_root": "0x" + g.hex(32), "merkle_path": path,
			"chain": object{"network": "polygon", "chain_id": 137, "block": 61000000 + g.rand.IntN(900000), "transaction": "0x" + g.hex(32), "confirmations": 128},
		},
	}
}

func (g *generator) pullRequest(n int) (string, any) {
	repo := g.pick("milena-project/milena", "acme/checkout", "acme/warehouse")
	number := 1 + n
	var files []object
	for range 20 + g.rand.IntN(60) {
		files = append(files, object{
			"filename": fmt.Sprintf("internal/%s/%s.go", g.pick("ledger", "cart", "auth", "feed"), g.hex(4)), "status": g.pick("modified", "added", "removed"),
			"additions": g.rand.IntN(300), "deletions": g.rand.IntN(80), "sha": g.hex(20),
			"blob_url": "https://git.example.com/" + repo + "/blob/" + g.hex(20),
		})
	}
	return fmt.Sprintf("%s#%d", repo, number), object{
		"action": "opened", "number": number,
		"pull_request": object{
			"id": 1900000000 + n, "title": g.pick("Retry only what can be retried", "Fix <b>escaping</b> & quotes", "Bump dependencies"), "draft": false,
			"body": g.pick("Closes the gap between commit and acknowledgement.", "Das Konto wird nun geprüft 🔒."), "created_at": g.now.Format(time.RFC3339),
			"user": object{"login": g.pick("milena", "franz", "ottla"), "type": "User"}, "head": object{"ref": "topic-" + g.hex(3), "sha": g.hex(20)},
			"base": object{"ref": "main", "sha": g.hex(20)}, "changed_files": len(files), "files": files,
		},
		"repository": object{"full_name": repo, "private": false, "default_branch": "main"},
	}
}

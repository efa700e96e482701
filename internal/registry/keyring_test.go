package registry

import (
	"errors"
	"strings"
	"testing"
)

func TestFirstKeySealsAndAllOpen(t *testing.T) {
	a, _ := GenerateKey("a")
	b, _ := GenerateKey("b-2")
	old, err := ParseKeyRing(a)
	if err != nil {
		t.Fatal(err)
	}
	both, err := ParseKeyRing("# newest first\n" + b + "\n\n" + a + "\n")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := old.Seal("e1", "whsec_x")
	if err != nil || !strings.HasPrefix(sealed, "v1.a.") {
		t.Fatalf("Seal: %q, %v", sealed, err)
	}
	if got, err := both.Open("e1", sealed); err != nil || got != "whsec_x" {
		t.Fatalf("Open with the second key: %q, %v", got, err)
	}
	if _, err := both.Open("e2", sealed); !errors.Is(err, ErrSealed) {
		t.Fatalf("a secret of another endpoint opened: %v", err)
	}
	resealed, err := both.Seal("e1", "whsec_x")
	if err != nil || !strings.HasPrefix(resealed, "v1.b-2.") {
		t.Fatalf("Seal: %q, %v", resealed, err)
	}
	var missing *MissingKeyError
	if _, err := old.Open("e1", resealed); !errors.As(err, &missing) || missing.KeyID != "b-2" {
		t.Fatalf("Open without the key: %v", err)
	}
	if again, _ := both.Seal("e1", "whsec_x"); again == resealed {
		t.Fatal("two seals of the same text are the same")
	}
}

func TestKeyRingRefusesWithoutShowingKeys(t *testing.T) {
	good, _ := GenerateKey("a")
	for _, text := range []string{"", "# only a comment", "a", ":AAAA", "a:AAAA", "a:geheim!", good + "," + good, "a.b:" + strings.Repeat("A", 43)} {
		_, err := ParseKeyRing(text)
		if err == nil {
			t.Errorf("%q was accepted", text)
		} else if strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), good[2:]) {
			t.Errorf("the error shows key material: %v", err)
		}
	}
	if _, err := GenerateKey("a:b"); err == nil {
		t.Error("GenerateKey took an id with a colon")
	}
	var none *KeyRing
	if _, err := none.Seal("e", "x"); err == nil {
		t.Error("no ring sealed")
	}
}

func FuzzOpenNeverPanicsAndOpensOnlyWhatWasSealed(f *testing.F) {
	ring := ringOf(f, "k")
	sealed, err := ring.Seal("e", "whsec_x")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add("v1.k.")
	f.Add("v1..x")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := ring.Open("e", text); err == nil && got != "whsec_x" {
			t.Fatalf("%q opened to %q", text, got)
		}
	})
}

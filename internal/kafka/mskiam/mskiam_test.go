package mskiam

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

const host = "b-1.demo.abc123.c2.kafka.eu-central-1.amazonaws.com:9098"

func TestMechanismSignsForTheRegionOfTheBroker(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "session")
	m, err := Mechanism()
	if err != nil {
		t.Fatal(err)
	}
	if m.Name() != "AWS_MSK_IAM" {
		t.Fatalf("name %q", m.Name())
	}
	_, first, err := m.Authenticate(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	var said map[string]string
	if err := json.Unmarshal(first, &said); err != nil {
		t.Fatalf("%q: %v", first, err)
	}
	if c := said["x-amz-credential"]; !strings.HasPrefix(c, "AKIDEXAMPLE/") || !strings.Contains(c, "/eu-central-1/kafka-cluster/") {
		t.Errorf("credential %q", c)
	}
	if said["x-amz-security-token"] != "session" {
		t.Errorf("session token %q", said["x-amz-security-token"])
	}
}

func TestCredentialsAreAskedForAtEachAuthentication(t *testing.T) {
	n := 0
	m := fromChain(func(context.Context) (aws.CredentialsProvider, error) {
		return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			n++
			return credentials.NewStaticCredentialsProvider("AK", "SK", "").Value, nil
		}), nil
	})
	for range 2 {
		if _, _, err := m.Authenticate(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
	if n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestMissingCredentialsAreExplained(t *testing.T) {
	m := fromChain(func(context.Context) (aws.CredentialsProvider, error) {
		return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("nothing found")
		}), nil
	})
	_, _, err := m.Authenticate(t.Context(), host)
	if err == nil || !strings.Contains(err.Error(), "AWS_MSK_IAM") || !strings.Contains(err.Error(), "nothing found") {
		t.Fatalf("%v", err)
	}
}

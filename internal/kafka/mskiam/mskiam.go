// Package mskiam authenticates to Amazon MSK with IAM. It is a package of its own
// so that only programs that import it link the AWS SDK:
//
//	cfg.SASL.IAM = mskiam.Mechanism
//
// Credentials come from the default chain of aws-sdk-go-v2: environment, shared
// files, web identity (EKS), container (ECS) and instance metadata, refreshed by
// it as they expire. The region is read from the broker's host name.
package mskiam

import (
	"context"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/twmb/franz-go/pkg/sasl"
	kaws "github.com/twmb/franz-go/pkg/sasl/aws"
)

// Mechanism is AWS_MSK_IAM with the default credential chain. The chain is read at
// the first authentication, not here; its errors show there.
func Mechanism() (sasl.Mechanism, error) {
	return fromChain(func(ctx context.Context) (aws.CredentialsProvider, error) {
		cfg, err := config.LoadDefaultConfig(ctx)
		return cfg.Credentials, err
	}), nil
}

func fromChain(load func(context.Context) (aws.CredentialsProvider, error)) sasl.Mechanism {
	var mu sync.Mutex
	var provider aws.CredentialsProvider
	return kaws.ManagedStreamingIAM(func(ctx context.Context) (kaws.Auth, error) {
		mu.Lock()
		defer mu.Unlock()
		if provider == nil {
			p, err := load(ctx)
			if err != nil {
				return kaws.Auth{}, fmt.Errorf("kafka.sasl.mechanism = AWS_MSK_IAM: reading the AWS configuration: %w", err)
			}
			provider = p
		}
		cred, err := provider.Retrieve(ctx) // cached and refreshed by the provider
		if err != nil {
			return kaws.Auth{}, fmt.Errorf("kafka.sasl.mechanism = AWS_MSK_IAM: no credentials; give the environment, profile or role that the AWS SDK looks for: %w", err)
		}
		return kaws.Auth{AccessKey: cred.AccessKeyID, SecretKey: cred.SecretAccessKey, SessionToken: cred.SessionToken, UserAgent: "milena"}, nil
	})
}

// Package config loads Milena's configuration. A setting has one name
// everywhere: the YAML path kafka.brokers is the environment variable
// MILENA_KAFKA_BROKERS and the flag --kafka-brokers. Flags win over the
// environment, the environment over the YAML file, the file over
// .milena/milena.yaml of the working directory, and that over the defaults.
//
// Keys is the one table of settings: flags, environment, YAML, the printed
// configuration and docs/configuration.md are made from it. A wrong value or an
// unknown name is an [*Error] that lists every problem at once with its source
// and what would be right; nothing is loaded in part. Secrets come by file or
// environment, never by flag, and are masked wherever they are printed.
//
// cmd/milena and internal/devmode call it; internal/app is built from a Config.
package config

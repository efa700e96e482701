// Package app is the one composition root: serve, dev, programs that embed Milena
// and the end-to-end tests all boot what New builds here. It wires the dispatcher's
// one-method interfaces to Kafka, and holds no rule of delivery itself.
package app

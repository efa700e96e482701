// Package realkafka starts real Apache Kafka brokers for tests, on loopback,
// without containers: the broker is a set of Maven artifacts and a JVM.
//
// It promises that a cluster it hands out is ready (it has a controller and all
// its brokers), that a broker keeps its ports and its data over Kill and
// Restart, and that it ends only what it started: at the end of the test, and
// by the kernel when the test process dies.
//
// It is test code. Tests that use it carry the build tag kafka. Without Java or
// Maven they skip with one line, and fail when MILENA_REQUIRE_KAFKA=1.
// MILENA_TEST_BROKERS (host:port,host:port) names a cluster to use in place of
// plain ones; tests that need special brokers, or that end some, still want
// their own. MILENA_TEST_KAFKA_VERSION (3.9.1) is the version of all brokers for which a
// test asks no version of its own.
package realkafka

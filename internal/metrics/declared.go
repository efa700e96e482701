package metrics

// seconds are buckets from a millisecond to a minute.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60}

// long are buckets from ten milliseconds to four days.
var long = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 43200, 86400, 345600}

var (
	lTopic      = Label{"topic", "deliveries, and the source topics of the configuration, as Kafka knows them"}
	lOwnTopic   = Label{"topic", "Milena's topics and the source topics of the configuration, as Kafka knows them"}
	lTier       = Label{"tier", "delays as the retry topics are named: 0s, 10s, 1m …"}
	lRole       = Label{"role", "dispatcher, releaser, router"}
	lOutcome    = Label{"outcome", "delivered, retry, dead"}
	lStatus     = Label{"status_class", "1xx, 2xx, 3xx, 4xx, 5xx; empty: there was no HTTP answer"}
	lClass      = Label{"error_class", "dns, connect, tls, timeout, reset, protocol, proxy, local, blocked_address, cancelled, internal; empty: an HTTP answer"}
	lOrigin     = Label{"origin", "first: the first attempt of a delivery; retry: a later one; replay: the first one after a replay or of a run"}
	lFirst      = Label{"first_attempt", "true: delivered at the first attempt; false: at a later one"}
	lReason     = Label{"reason", "exhausted, expired, rejected, gone, blocked_address, endpoint_disabled, endpoint_deleted, endpoint_unknown, malformed, too_large"}
	lCause      = Label{"cause", "breaker, paused, long, memory, unknown"}
	lFrom       = Label{"from", "closed, open, half-open"}
	lTo         = Label{"to", "closed, open, half-open"}
	lLane       = Label{"state", "of a lane: sending, queued (something waits for a turn or a slot), held (something is on hold), paused (by a Retry-After), undecided (the registry is asked), idle"}
	lBreaker    = Label{"state", "of a breaker: closed, open, half-open"}
	lRank       = Label{"rank", "1 to 20, in each process"}
	lEndpoint   = Label{"endpoint_id", "of the twenty worst endpoints of the process"}
	lWhy        = Label{"why", "what is wrong with it: disabled, breaker, paused, held, failing, queued"}
	lRequest    = Label{"request", "produce, fetch, commit, group (joins and heartbeats), other"}
	lVersion    = Label{"version", "of Milena"}
	lGoVersion  = Label{"go_version", "of the toolchain that built it"}
	lConnection = Label{"result", "ok, failed"}
)

func in(name string) bool { section = name; return true }

// What stands where.
var (
	_ = in("Backlog")

	oldestReady = declare(Gauge, "milena_oldest_ready_timestamp_seconds", Min,
		"When the oldest record became ready that is ready and not settled, by the time that Kafka appended it; now, where there is none. Page on time() - x.", lTopic)
	unfinished = declare(Gauge, "milena_unfinished_records", Sum,
		"Records that are not settled: what lies between the commit and the end, without what is done above the commit. What is on hold or in a tier is done here and counted there.", lTopic)
	heldRecords = declare(Gauge, "milena_held_records", Sum,
		"Deliveries on hold, which cannot be sent now for their endpoint's sake. Exact once the owner has read what an owner before it left there; absent while the process owns no partition.")
	oldestHeld = declare(Gauge, "milena_oldest_held_timestamp_seconds", MinNotNil,
		"When the delivery was put on hold that has been there longest; 0: none is; absent like the one above.")
	waitingRecords = declare(Gauge, "milena_waiting_records", Max,
		"Records of a tier whose time has not come, in all of its partitions: every releaser exports the same.", lTier)
	overdueRecords = declare(Gauge, "milena_overdue_records", Max,
		"Records of a tier that should have moved on by now, in all of its partitions: every releaser exports the same.", lTier)
	oldestOverdue = declare(Gauge, "milena_oldest_overdue_timestamp_seconds", MinNotNil,
		"When the oldest record of a tier should have moved on that has not; 0: none is overdue; absent: it is in a partition of another process, or not read yet.", lTier)
	nearRecords = declare(Gauge, "milena_near_due_records", Sum, "Deliveries in the releaser's memory for their last ten seconds.")
	nearBytes   = declare(Gauge, "milena_near_due_bytes", Sum, "Bytes of those.")
	queued      = declare(Gauge, "milena_queued_deliveries", Sum, "Deliveries in the lanes of this process, read and not begun.")
	queuedBytes = declare(Gauge, "milena_queued_bytes", Sum, "Bytes of those, with what each costs beside its payload; dispatcher.queued_bytes bounds them.")

	_ = in("Attempts")

	attemptsTotal = declare(Counter, "milena_attempts_total", Sum,
		"POSTs that came to an outcome. Copies that were dropped, interrupted attempts and deliveries that died without a POST have counters of their own.",
		lOutcome, lStatus, lClass, lOrigin)
	attemptDuration = declare(Histogram, "milena_attempt_duration_seconds", SumRates, "From the start of an attempt to the end of its answer.")
	dispatchDelay   = declare(Histogram, "milena_dispatch_delay_seconds", SumRates,
		"From when a delivery was ready to the first byte of its request: our own service level, whatever the endpoint does. Work that came from hold is ready when its endpoint is.")
	deliveryDelay = declare(Histogram, "milena_delivery_delay_seconds", SumRates,
		"From when the event's delivery was first written to Kafka to its 2xx.", lFirst)
	inFlight    = declare(Gauge, "milena_requests_in_flight", Sum, "Requests that are open now; dispatcher.max_in_flight bounds them.")
	interrupted = declare(Counter, "milena_interrupted_total", Sum,
		"Attempts that came to no outcome for a reason of our own: no attempt is counted, the delivery is sent again.", lClass)
	duplicates = declare(Counter, "milena_duplicates_dropped_total", Sum, "Copies of one attempt that were dropped before they were POSTed.")

	_ = in("Endpoints")

	lanesByState    = declare(Gauge, "milena_lanes", Sum, "Endpoints with a lane in this process, by what it does now.", lLane)
	breakersByState = declare(Gauge, "milena_breakers", Sum, "Breakers of those lanes, by state.", lBreaker)
	transitions     = declare(Counter, "milena_breaker_transitions_total", Sum, "Transitions of endpoints' breakers.", lFrom, lTo)
	failing         = declare(Gauge, "milena_failing_endpoints", Sum, "Endpoints that have failed since their last success, or were switched off for it.")
	worst           = declare(Gauge, "milena_worst_endpoint_info", Each,
		"1: which endpoint has that rank, by records that wait for it and then by how long it has failed. Join the two below on rank and instance.", lRank, lEndpoint, lWhy)
	worstRecords = declare(Gauge, "milena_worst_endpoint_records", Each, "Deliveries queued and on hold for the endpoint of that rank.", lRank)
	worstSince   = declare(Gauge, "milena_worst_endpoint_failing_since_timestamp_seconds", Each, "Since when it has failed; 0: it has not.", lRank)
	cutOff       = declare(Gauge, "milena_cut_off_since_timestamp_seconds", MinNotNil,
		"Since when this process reaches hardly any endpoint, so that the fault is taken for its own and nothing is charged to endpoints; 0: it is not so.")

	_ = in("Hold")

	holds        = declare(Counter, "milena_holds_total", Sum, "Deliveries that were put on hold, by cause.", lCause)
	holdsSettled = declare(Counter, "milena_holds_settled_total", Sum,
		"Deliveries that left hold: delivered, parked, dead or given up with their partition. Between rebalances milena_holds_total less this is milena_held_records.")
	holdRead = declare(Counter, "milena_hold_read_bytes_total", Sum, "Bytes that were read from hold.")

	_ = in("Retries")

	parked   = declare(Counter, "milena_parked_total", Sum, "Records written to a tier: deliveries that were parked, and those that moved on to it from a longer one.", lTier)
	released = declare(Counter, "milena_released_total", Sum,
		"Records that left a tier, for deliveries, a shorter tier or the dead letters. Over the life of the counters milena_parked_total less this is what waits and is overdue.", lTier)
	lateness = declare(Histogram, "milena_release_lateness_seconds", SumRates, "How long after its due time a delivery was back on the deliveries topic.")
	skew     = declare(Gauge, "milena_clock_skew_seconds", Max,
		"How far the brokers' clock is ahead of the clock of whoever parked a record (negative: behind). It decides nothing. Alert on abs(x).")

	_ = in("Dead letters")

	dead        = declare(Counter, "milena_dead_letters_total", Sum, "Dead letters that were written, by reason.", lReason)
	openLetters = declare(Gauge, "milena_dead_letters_open", Sum,
		"Dead letters that nobody has replayed or discarded, by reason, in the partitions that this process owns, as it last counted them; absent until it has, some seconds after its start, and while it owns none.", lReason)
	oldestLetter  = declare(Gauge, "milena_oldest_dead_letter_timestamp_seconds", MinNotNil, "When the oldest of those was written; 0: there is none; absent like them.")
	letterExpires = declare(Gauge, "milena_oldest_dead_letter_expires_timestamp_seconds", MinNotNil,
		"When the topic's retention deletes it; 0: there is none, or it never does; absent like them.")

	_ = in("Sources and registry")

	routed     = declare(Counter, "milena_events_routed_total", Sum, "Events of sources that somebody subscribes to.")
	fannedOut  = declare(Counter, "milena_deliveries_routed_total", Sum, "Deliveries that those events became.")
	unmatched  = declare(Counter, "milena_events_unmatched_total", Sum, "Events of sources that nobody subscribes to; they are not stored.")
	tombstones = declare(Counter, "milena_source_tombstones_total", Sum, "Records of sources that are no events: a null value without CloudEvents attributes, as compacted topics have them.")
	endpoints  = declare(Gauge, "milena_registry_endpoints", Max, "Endpoints that are registered and not deleted, as this process knows them.")
	registry   = declare(Gauge, "milena_registry_timestamp_seconds", Min,
		"As of when this process knows all that is committed of the registry; 0: it has not read it yet. It stands still while no broker answers.")

	_ = in("The process")

	settleBlocked = declare(Gauge, "milena_settle_blocked_since_timestamp_seconds", MinNotNil,
		"Since when a write to Kafka has not been acknowledged although it was tried again; 0: writes flow.")
	misrouted = declare(Counter, "milena_misrouted_total", Sum, "Records found in another partition than their endpoint's, and sent on.")
	metadata  = declare(Gauge, "milena_commit_metadata_used_ratio", Max,
		"How much of the room in a commit's metadata was used by the fullest of this process's partitions. At 1 a restart repeats more than it has to.")
	owned       = declare(Gauge, "milena_partitions_owned", Sum, "Partitions that are assigned to this process.", lRole)
	assignments = declare(Counter, "milena_partition_assignments_total", Sum, "Partitions that were assigned, each time again: a storm of rebalances shows here.", lRole)
	ready       = declare(Gauge, "milena_ready", Each, "1: /readyz says yes; 0: it says no.")
	drift       = declare(Gauge, "milena_topic_differences", Max,
		"Differences between the topics and what they must be, as of the last look (every five minutes); milena topics plan lists them.")
	build = declare(Gauge, "milena_build_info", Each, "1, with the version of this process.", lVersion, lGoVersion)

	_ = in("The Kafka client")

	kafkaConnects = declare(Counter, "milena_kafka_connects_total", Sum, "Connections to brokers that were tried.", lConnection)
	kafkaRequests = declare(Histogram, "milena_kafka_request_duration_seconds", SumRates, "From the writing of a request to the end of its answer; a fetch waits for records.", lRequest)
	kafkaErrors   = declare(Counter, "milena_kafka_request_errors_total", Sum, "Requests that could not be written or had no answer.", lRequest)
	kafkaThrottle = declare(Counter, "milena_kafka_throttled_seconds_total", Sum, "Seconds for which brokers have asked this process to wait (quotas).")
	kafkaProduced = declare(Counter, "milena_kafka_produced_records_total", Sum, "Records written and acknowledged.", lOwnTopic)
	kafkaOut      = declare(Counter, "milena_kafka_produced_bytes_total", Sum, "Bytes of those, compressed.", lOwnTopic)
	kafkaFetched  = declare(Counter, "milena_kafka_fetched_records_total", Sum, "Records read by consumers; reading of hold and health is not among them.", lOwnTopic)
	kafkaIn       = declare(Counter, "milena_kafka_fetched_bytes_total", Sum, "Bytes of those, compressed.", lOwnTopic)
)

func init() { deliveryDelay.Buckets = long }

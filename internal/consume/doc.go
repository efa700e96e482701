// Package consume reads topics as a member of a consumer group and is the only
// code of Milena that commits offsets.
//
// It promises to whoever gives it an Intake:
//
//   - Every record of an owned partition is handed over, in offset order, from
//     one goroutine for each assignment; a slow Intake pauses its own partition
//     and no other.
//   - A commit never passes a record that was handed over and is not done; it is
//     never made for a partition after that partition was let go, and committed
//     offsets never move back.
//   - What an Intake said of a record is a fact that outlives the assignment: when
//     the partition comes back to this process, records that are done are not
//     handed over again, and those still open are not handed over a second time.
//   - Nothing is skipped silently: a partition whose records were lost, or that
//     has records and no commit, is not consumed and shows in Ready until an
//     operator decides.
//
// The Intake owes one thing in return: every record that Take was given is
// answered once, by Assignment.Done or by Assignment.GiveUp. A record that is
// never answered holds up its partition's commits for as long as this process
// lives, also after the partition went and came back.
//
// Callers: the dispatcher, the releaser and the router, through internal/app. The
// files in the order of the data: loop polls; ownership says which partitions are ours
// and handover whose a polled record is; assignment gives it to the Intake; ledger and
// facts remember what became of it, by the trackers of internal/offsets; metadata and
// commit write that down in Kafka. reset says where a partition begins by what logs has asked
// the brokers, lease whether a new POST may begin, watch what is wrong with the cluster.
package consume

package retrytopics

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// receiver stands for the dispatcher: what is released is attempted at once, fails,
// and is parked again by its policy, until the schedule has ended. It drops copies.
type receiver struct {
	t        testing.TB
	policy   Policy
	parker   *Parker
	allowed  time.Duration // how far clocks have jumped: so much early by the true time
	mu       sync.Mutex
	seen     map[string]time.Time // delivery id and attempt: when it came
	finished map[string]int       // delivery id: attempts
	copies   int
	latest   time.Duration // lateness of the latest
	attempts map[string][]attempt
}

type attempt struct{ at, due time.Time }

func newReceiver(t testing.TB, k *toy, policy Policy, tiers Tiers) *receiver {
	parker, err := NewParker(ParkerConfig{Writer: &toyWriter{k: k}, DeadLetter: &letters{}, Tiers: tiers, Partitions: toyPartitions})
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{t: t, policy: policy, parker: parker, seen: map[string]time.Time{}, finished: map[string]int{}, attempts: map[string][]attempt{}}
	k.heard = r.hear
	return r
}

func (r *receiver) hear(m kafka.Message) {
	d, err := schemas.ParseDelivery(recordOf(m, 1<<40))
	if err != nil {
		r.t.Errorf("released record is malformed: %v", err)
		return
	}
	if d.Released.IsZero() || !d.HopUntil.IsZero() || d.Released.Before(d.NotBefore) {
		r.t.Errorf("%s attempt %d: released %v, not before %v", d.ID(), d.Attempt, d.Released, d.NotBefore)
	}
	if want := kafka.Partition(m.Key, 4); m.Partition != want {
		r.t.Errorf("released to partition %d, want %d", m.Partition, want)
	}
	r.attempt(&d)
}

func (r *receiver) attempt(d *schemas.Delivery) {
	now := time.Now()
	key := fmt.Sprint(d.ID(), "/", d.Attempt)
	r.mu.Lock()
	if _, ok := r.seen[key]; ok {
		r.copies++
		r.mu.Unlock()
		return
	}
	r.seen[key] = now
	r.attempts[d.ID()] = append(r.attempts[d.ID()], attempt{now, d.NotBefore})
	if !d.NotBefore.IsZero() {
		if early := d.NotBefore.Sub(now); early > r.allowed {
			r.t.Errorf("%s attempt %d: %v early", d.ID(), d.Attempt, early)
		}
		r.latest = max(r.latest, now.Sub(d.NotBefore))
	}
	r.mu.Unlock()

	d.Attempt++
	due, verdict := r.policy.Next(JitterKey{d.ID(), d.Generation, d.Attempt}, now, d.Enqueued, 0)
	if verdict != Retry {
		r.mu.Lock()
		r.finished[d.ID()] = d.Attempt
		r.mu.Unlock()
		return
	}
	d.NotBefore = due
	r.parker.Park(d, func() {})
}

func (r *receiver) left(total int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return total - len(r.finished)
}

func TestTheWholeDefaultScheduleInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newToy(t, 1)
		tiers := Tiers(schemas.DefaultTiers())
		k.create(tiers, toyPartitions)
		policy := compile(t, schemas.Retry{})
		recv := newReceiver(t, k, policy, tiers)
		p := k.startProcess(tiers, nil)
		p.ownAll()
		const n = 200
		start := time.Now()
		for i := range n {
			d := delivery("ep_"+strconv.Itoa(i), int64(i))
			d.Enqueued = start
			recv.attempt(&d)
		}
		for recv.left(n) > 0 && time.Since(start) < 100*time.Hour {
			time.Sleep(time.Minute)
		}
		p.shutdown()
		for id, attempts := range recv.attempts {
			if len(attempts) != 9 {
				t.Errorf("%s: %d attempts, want 9", id, len(attempts))
				continue
			}
			for i := 1; i < len(attempts); i++ {
				step := policy.steps[i-1].delay
				gap := attempts[i].at.Sub(attempts[i-1].at)
				if gap < step || gap > step+step/10+time.Second {
					t.Errorf("%s: attempt %d came %v after the one before, want %v + at most 10 %% and a second", id, i+1, gap, step)
				}
			}
		}
		if recv.latest > time.Second || recv.copies > 0 {
			t.Errorf("%v late at most, %d copies", recv.latest, recv.copies)
		}
		perDelivery := float64(k.tiers.Load()) / n
		t.Logf("%.1f tier writes a delivery, at most %v late", perDelivery, recv.latest)
		if perDelivery > 30 {
			t.Errorf("%.1f tier writes for the whole schedule, want at most 30", perDelivery)
		}
	})
}

// MILENA_SEED runs one of the seeds again.
func TestNothingIsEarlyOrLostUnderRandomTrouble(t *testing.T) {
	first, last := uint64(1), uint64(20)
	if s, err := strconv.ParseUint(os.Getenv("MILENA_SEED"), 10, 64); err == nil {
		first, last = s, s
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { trouble(t, seed) })
		})
	}
}

func TestSoakNothingIsEarlyOrLostUnderRandomTrouble(t *testing.T) {
	budget := testkit.SoakBudget(t)
	end := time.Now().Add(budget)
	least := uint64(0)
	if budget >= 10*time.Minute { // as make soak has
		least = 1_000 // seeds, however long they take
	}
	first := rand.Uint64() >> 1
	if s, err := strconv.ParseUint(os.Getenv("MILENA_SEED"), 10, 64); err == nil {
		first = s
	}
	seed := first
	for ; (seed-first < least || time.Now().Before(end)) && !t.Failed(); seed++ {
		if (seed-first)%50 == 0 {
			t.Logf("MILENA_SEED=%d and the 49 after it", seed)
		}
		synctest.Test(t, func(t *testing.T) { trouble(t, seed) })
	}
	t.Logf("%d seeds from MILENA_SEED=%d on", seed-first, first)
	if t.Failed() {
		t.Errorf("MILENA_SEED=%d fails", seed-1)
	}
}

// trouble runs some deliveries through random schedules while processes are killed,
// restarted with other tiers, partitions move and clocks jump.
func trouble(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	k := newToy(t, seed)
	var schedule []schemas.Duration
	for range 1 + rng.IntN(6) {
		longest := []time.Duration{time.Second, 15 * time.Second, 5 * time.Minute, 3 * time.Hour}[rng.IntN(4)]
		schedule = append(schedule, schemas.Duration(rng.Int64N(int64(longest))))
	}
	policy := compile(t, schemas.Retry{Schedule: schedule, MaxAge: schemas.Duration(LongestMaxAge)})
	k.create(Tiers(schemas.DefaultTiers()), toyPartitions)
	recv := newReceiver(t, k, policy, Tiers(schemas.DefaultTiers()))
	jumps := seed%2 == 0
	if jumps {
		recv.allowed = time.Hour
	}
	config := func(c *ReleaserConfig) {
		if seed%3 == 0 { // almost no memory: three deliveries and two writes
			c.NearBytes, c.InFlightBytes = 4<<10, 8<<10
		}
	}
	procs := make([]*process, 1+rng.IntN(3))
	for i := range procs {
		procs[i] = k.startProcess(randomTiers(rng, k), config)
	}
	deal(rng, k, procs)

	const total = 40
	for i := range total {
		d := delivery("ep_"+strconv.Itoa(i), int64(i))
		d.Enqueued = time.Now()
		recv.attempt(&d)
		time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
	}
	for range 5 + rng.IntN(15) {
		time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Minute))))
		i := rng.IntN(len(procs))
		switch rng.IntN(5) {
		case 0: // kill -9; its partitions stand still for a while
			procs[i].kill()
			time.Sleep(time.Duration(rng.Int64N(int64(time.Minute))))
			procs[i] = k.startProcess(randomTiers(rng, k), config)
		case 1:
			procs[i].shutdown()
			procs[i] = k.startProcess(randomTiers(rng, k), config)
		case 2:
			if jumps {
				procs[i].ahead.Store(rng.Int64N(int64(2*time.Hour)) - int64(time.Hour))
			}
		case 3:
			procs[i].commit()
		}
		deal(rng, k, procs)
	}
	for _, p := range procs {
		p.ahead.Store(0)
	}
	_, longest := policy.TotalSpan()
	for end := time.Now().Add(2*longest + 3*time.Hour); recv.left(total) > 0 && time.Now().Before(end); {
		time.Sleep(time.Minute)
	}
	if left := recv.left(total); left > 0 {
		t.Errorf("seed %d: %d of %d deliveries are lost", seed, left, total)
	}
	for id, attempts := range recv.finished {
		if attempts != policy.Attempts() {
			t.Errorf("seed %d: %s made %d attempts, want %d", seed, id, attempts, policy.Attempts())
		}
	}
	for _, p := range procs {
		p.shutdown()
	}
	time.Sleep(time.Second) // the last timers of the toy
}

// worst is the most writes that a wait of at most three hours costs: the one that is a
// little shorter than a tier. Each of them is a step at which a kill may make a copy of
// each copy, so sets with a wide gap above a short tier never end here.
func worst(set Tiers) (writes int) {
	for _, tier := range append(slices.Clone(set[1:]), 3*time.Hour) {
		writes = max(writes, set.Writes(tier-time.Second))
	}
	return writes
}

// randomTiers is a set as an operator might choose it; its topics are made.
func randomTiers(rng *rand.Rand, k *toy) Tiers {
	tiers := Tiers{0, time.Duration(1+rng.IntN(10)) * time.Second}
	for range rng.IntN(6) {
		tiers = append(tiers, time.Duration(10+rng.IntN(7200))*time.Second)
	}
	for _, more := range []time.Duration{5 * time.Minute, time.Minute} {
		if set, _ := NewTiers(tiers...); worst(set) > 100 {
			tiers = append(tiers, more)
		}
	}
	tiers, err := NewTiers(tiers...)
	if err != nil {
		panic(err)
	}
	k.create(tiers, toyPartitions)
	return tiers
}

// deal gives every partition an owner: most keep theirs.
func deal(rng *rand.Rand, k *toy, procs []*process) {
	owner := map[topicPartition]*process{}
	for _, p := range procs {
		for tp, a := range p.owned {
			if rng.IntN(4) == 0 {
				a.revoke()
				delete(p.owned, tp)
				continue
			}
			owner[tp] = p
		}
	}
	for _, tp := range k.partitions() {
		if owner[tp] == nil {
			p := procs[rng.IntN(len(procs))]
			p.owned[tp] = k.own(p.r, tp)
		}
	}
}

use super::*;

const LEASE_NS: u64 = 1_000_000_000;
const STEP_NS: u64 = 10_000_000;

fn at(boot_ns: u64) -> Now {
    Now { boot_ns, unix_ms: 0 }
}

/// A store that behaves as [`LeaseRequest`] describes.
#[derive(Default)]
struct Store {
    leader_lease: LeaderLease,
    state: Option<(u64, Vec<u8>)>,
    /// Number of requests that were carried out.
    writes: usize,
}

impl Store {
    fn execute(&mut self, request: &LeaseRequest) -> LeaseAnswer {
        let version = self.state.as_ref().map_or(0, |(version, _)| *version);
        let refused = LeaseAnswer::Refused { holder: self.leader_lease.holder, version };
        let is_allowed = match request {
            LeaseRequest::Observe => return LeaseAnswer::Seen(self.leader_lease),
            LeaseRequest::Take { seen, .. } => *seen == self.leader_lease,
            LeaseRequest::Renew { holder } | LeaseRequest::Release { holder } => {
                *holder == self.leader_lease.holder
            }
            LeaseRequest::Persist { holder, version: next, .. } => {
                *holder == self.leader_lease.holder && version + 1 == *next
            }
        };
        if !is_allowed {
            return refused;
        }
        (self.leader_lease.renewal, self.writes) = (self.leader_lease.renewal + 1, self.writes + 1);
        match request {
            LeaseRequest::Take { holder, .. } => {
                self.leader_lease.holder = *holder;
                return LeaseAnswer::Taken { state: self.state.as_ref().map(|(_, bytes)| bytes.clone()) };
            }
            LeaseRequest::Persist { version, bytes, .. } => self.state = Some((*version, bytes.clone())),
            LeaseRequest::Release { .. } => self.leader_lease.holder = 0,
            _ => {}
        }
        LeaseAnswer::Done
    }
}

/// Sends the requests that are due at this time, and handles the store's answers at once. Returns
/// the events.
fn run(election: &mut Election, store: &mut Store, now_ns: u64) -> Vec<ElectionEvent> {
    while let Some(request) = election.poll_request(at(now_ns)) {
        let answer = store.execute(&request);
        election.handle_answer(at(now_ns), answer);
    }
    core::iter::from_fn(|| election.poll_event()).collect()
}

/// The first time from `from_ns` on at which there are events, and these events.
fn first(election: &mut Election, store: &mut Store, from_ns: u64) -> (u64, Vec<ElectionEvent>) {
    let times = (from_ns..from_ns + 10 * LEASE_NS).step_by(STEP_NS as usize);
    let mut news = times.map(|now_ns| (now_ns, run(election, store, now_ns)));
    news.find(|(_, events)| !events.is_empty()).expect("an event occurs")
}

fn election(instance: u64) -> Election {
    Election::new(LeaseTiming::default(), instance)
}

const ELECTED: ElectionEvent = ElectionEvent::Elected { state: None };

#[test]
fn free_lease_is_taken_at_once_and_renewed_in_time() {
    let (mut a, mut store) = (election(1), Store::default());
    assert_eq!(run(&mut a, &mut store, 0), [ELECTED]);
    for now_ns in (0..10 * LEASE_NS).step_by(STEP_NS as usize) {
        assert_eq!(run(&mut a, &mut store, now_ns), []);
        assert!(now_ns < a.exclusive_until_ns(), "{now_ns}");
    }
    assert!(store.writes < 50, "{} writes in ten leases", store.writes);
}

#[test]
fn standby_waits_for_the_lease_by_the_slower_clock() {
    let (mut a, mut b, mut store) = (election(1), election(2), Store::default());
    assert_eq!(run(&mut a, &mut store, 0), [ELECTED]);
    for now_ns in (0..5 * LEASE_NS).step_by(STEP_NS as usize) {
        run(&mut a, &mut store, now_ns);
        assert_eq!(run(&mut b, &mut store, now_ns), [], "a leads");
    }
    let silent_ns = a.exclusive_until_ns();
    let (elected_ns, events) = first(&mut b, &mut store, 5 * LEASE_NS);
    assert_eq!(events, [ELECTED]);
    assert!(elected_ns >= 5 * LEASE_NS - LEASE_NS / 4 + LEASE_NS * 9 / 8, "{elected_ns}");
    assert!(
        silent_ns <= elected_ns && elected_ns < 5 * LEASE_NS + LEASE_NS * 3 / 2,
        "{silent_ns} {elected_ns}"
    );
    assert_eq!(first(&mut a, &mut store, elected_ns).1, [ElectionEvent::Deposed]);
    assert_eq!(a.exclusive_until_ns(), 0);
}

#[test]
fn step_of_a_deposed_leader_is_refused() {
    let (mut a, mut b, mut store) = (election(1), election(2), Store::default());
    run(&mut a, &mut store, 0);
    a.persist(1, vec![1]);
    let late = a.poll_request(at(STEP_NS)).unwrap();
    let (now_ns, _) = first(&mut b, &mut store, STEP_NS);
    b.persist(1, vec![2]);
    assert_eq!(run(&mut b, &mut store, now_ns), [ElectionEvent::Persisted { version: 1 }]);
    let answer = store.execute(&late);
    assert_eq!(store.state, Some((1, vec![2])));
    a.handle_answer(at(now_ns), answer);
    assert_eq!(a.poll_event(), Some(ElectionEvent::Deposed));
    assert_eq!(a.poll_event(), None, "the stored state of that version is another instance's");
}

#[test]
fn unanswered_step_is_repeated_and_counts_once() {
    let (mut a, mut store) = (election(1), Store::default());
    run(&mut a, &mut store, 0);
    for arrives in [true, false] {
        let version = store.state.as_ref().map_or(0, |(version, _)| *version) + 1;
        a.persist(version, vec![version as u8]);
        let request = a.poll_request(at(STEP_NS)).unwrap();
        if arrives {
            store.execute(&request);
        }
        a.handle_answer(at(STEP_NS), LeaseAnswer::Silence);
        assert_eq!(run(&mut a, &mut store, STEP_NS), [ElectionEvent::Persisted { version }]);
        assert_eq!(store.state, Some((version, vec![version as u8])));
    }
}

#[test]
fn lease_taken_without_an_answer_is_taken_again_at_once() {
    let (mut a, mut store) = (election(1), Store::default());
    let observe = a.poll_request(at(0)).unwrap();
    a.handle_answer(at(0), store.execute(&observe));
    let take = a.poll_request(at(0)).unwrap();
    store.execute(&take);
    a.handle_answer(at(0), LeaseAnswer::Silence);
    let (elected_ns, events) = first(&mut a, &mut store, 0);
    assert!(events == [ELECTED] && elected_ns < LEASE_NS / 2, "{elected_ns}");
}

#[test]
fn store_outage_keeps_the_leader() {
    let (mut a, mut b, mut store) = (election(1), election(2), Store::default());
    run(&mut a, &mut store, 0);
    run(&mut b, &mut store, 0);
    for now_ns in (STEP_NS..60 * LEASE_NS).step_by(STEP_NS as usize) {
        for election in [&mut a, &mut b] {
            while election.poll_request(at(now_ns)).is_some() {
                election.handle_answer(at(now_ns), LeaseAnswer::Silence);
            }
        }
    }
    assert!(a.exclusive_until_ns() <= LEASE_NS, "without a renewal the lease ends");
    // The standby asks first when the store is back.
    for now_ns in (60 * LEASE_NS..62 * LEASE_NS).step_by(STEP_NS as usize) {
        assert_eq!(run(&mut b, &mut store, now_ns), []);
        assert_eq!(run(&mut a, &mut store, now_ns), []);
    }
    assert!(a.exclusive_until_ns() > 62 * LEASE_NS, "the leader's term continues");
}

#[test]
fn resignation_is_followed_at_once_and_names_are_unique() {
    let (mut a, mut b, mut store) = (election(1), election(2), Store::default());
    run(&mut a, &mut store, 0);
    let first_name = store.leader_lease.holder;
    let release = a.resign().unwrap();
    store.execute(&release);
    assert_eq!(a.resign(), None);
    let (elected_ns, _) = first(&mut b, &mut store, STEP_NS);
    assert!(elected_ns < LEASE_NS / 2);
    store.execute(&b.resign().unwrap());
    first(&mut a, &mut store, elected_ns);
    assert_ne!(store.leader_lease.holder, first_name);
    assert_eq!(
        store.execute(&LeaseRequest::Renew { holder: first_name }).clone(),
        LeaseAnswer::Refused { holder: store.leader_lease.holder, version: 0 }
    );
}

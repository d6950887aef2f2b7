//! Tests of a book's promises: it never promises the same time twice.

use super::*;
use crate::reservation::bid::Backlog;
use proptest::prelude::*;

const BYTES: u32 = 128 << 10;
const WRITE_NS: u64 = 312_500;
const ANYTIME: Request = Request {
    bytes: BYTES,
    earliest_ns: 0,
    backlog: Backlog { queued_ns: 0, write_ns: WRITE_NS },
    random: 1,
};

fn book(config: Config) -> Book {
    Book::new(config, BidId(1)).unwrap()
}

fn windows(book: &Book) -> Vec<(u64, u64)> {
    book.windows().map(|window| (window.left_ns, window.right_ns)).collect()
}

/// The part of a bid that an initiator uses, from its beginning on.
fn used(config: &Config, bid: &Bid) -> Offsets {
    let left_ns = bid.window.left_ns;
    Offsets { left_ns, right_ns: left_ns + config.widths(BYTES).used_ns }
}

#[test]
fn multicast_bids_follow_each_other() {
    let config = Config::MULTICAST;
    let (mut book, widths) = (book(config), config.widths(BYTES));
    let first = book.bid(1_000, &ANYTIME).unwrap();
    let right = config.earliest_ns() + widths.window_ns + 2 * widths.chunk_ns;
    assert_eq!(
        first.window,
        Offsets { left_ns: config.earliest_ns(), right_ns: right },
        "an idle target bids a longer window"
    );
    assert_eq!((first.id, first.disk_ns), (BidId(1), WRITE_NS));
    let second = book.bid(1_500, &ANYTIME).unwrap();
    assert_eq!(second.window.left_ns, 1_000 + right + config.trip_ns - 1_500);
    assert_eq!(
        second.window.right_ns - second.window.left_ns,
        widths.window_ns,
        "the target is no longer idle"
    );
    assert_eq!((book.tentative(), book.bytes()), (2, 2 * u64::from(BYTES)));
}

#[test]
fn long_disk_queue_delays_the_bid_and_keeps_it_short() {
    let config = Config::MULTICAST;
    let backlog = Backlog { queued_ns: 3 * WRITE_NS, write_ns: WRITE_NS };
    let bid = book(config).bid(0, &Request { backlog, ..ANYTIME }).unwrap();
    let left_ns = 3 * WRITE_NS;
    assert_eq!(bid.window, Offsets { left_ns, right_ns: left_ns + config.widths(BYTES).window_ns });
    assert_eq!(bid.disk_ns, 4 * WRITE_NS);
}

#[test]
fn cancelled_window_between_others_is_promised_again() {
    let config = Config::MULTICAST;
    let mut book = book(config);
    let bids = [0; 3].map(|now| book.bid(now, &ANYTIME).unwrap());
    book.accept(100, bids[0].id, used(&config, &bids[0])).unwrap();
    let trimmed = used(&config, &bids[0]).right_ns;
    book.cancel(200, bids[1].id).unwrap();
    let again = book.bid(300, &ANYTIME).unwrap();
    assert_eq!(
        again.window.right_ns,
        bids[1].window.right_ns - 300,
        "the cancelled window is promised again"
    );
    assert_eq!(book.accept(400, bids[1].id, used(&config, &bids[1])), Err(BidError::Over(bids[1].id)));
    // The third window is the last in the book, so it is dropped when others come.
    book.cancel(500, bids[2].id).unwrap();
    book.cancel(600, again.id).unwrap();
    let next = book.bid(700, &ANYTIME).unwrap();
    assert_eq!(next.window.left_ns, trimmed + config.trip_ns - 700);
    assert_eq!(windows(&book).len(), 2);
}

#[test]
fn cancelled_neighbours_merge_and_grow_into_trimmed_time() {
    let config = Config::MULTICAST;
    let mut book = book(config);
    let bids = [0; 5].map(|now| book.bid(now, &ANYTIME).unwrap());
    for bid in [2, 1] {
        book.cancel(100, bids[bid].id).unwrap();
    }
    assert_eq!(windows(&book)[1], (bids[1].window.left_ns, bids[2].window.right_ns));
    // The window before it ends early, and the one after it begins late.
    book.accept(200, bids[0].id, used(&config, &bids[0])).unwrap();
    let late = Offsets { left_ns: bids[3].window.left_ns + 30_000, right_ns: bids[3].window.right_ns };
    book.accept(300, bids[3].id, late).unwrap();
    assert_eq!(windows(&book)[1], (used(&config, &bids[0]).right_ns, late.left_ns));
}

#[test]
fn cancelled_window_that_has_become_too_short_is_dropped() {
    let config = Config::MULTICAST;
    let mut book = book(config);
    let first = book.bid(0, &ANYTIME).unwrap();
    book.bid(0, &ANYTIME).unwrap();
    book.cancel(100, first.id).unwrap();
    let enough = first.window.right_ns - config.widths(BYTES).window_ns;
    let at = |now_ns: u64| {
        let mut book = book.clone();
        book.bid(now_ns, &ANYTIME).unwrap();
        windows(&book).len()
    };
    assert_eq!(at(enough - config.earliest_ns()), 2, "promised again");
    assert_eq!(
        at(enough - config.hop_ns()),
        3,
        "the window is kept, but too late to use: a new one is added"
    );
    assert_eq!(at(enough - config.hop_ns() + 1), 2, "dropped");
}

#[test]
fn unicast_bids_fill_gaps_and_leave_none() {
    let config = Config::UNICAST;
    let (mut book, widths) = (book(config), config.widths(BYTES));
    let later = |earliest_ns| Request { earliest_ns, ..ANYTIME };
    let far = book.bid(0, &later(1_000_000)).unwrap();
    assert_eq!(far.window, Offsets { left_ns: 1_000_000, right_ns: 1_000_000 + widths.window_ns });
    let soon = book.bid(0, &ANYTIME).unwrap();
    assert_eq!(soon.window.left_ns, config.earliest_ns());
    // Before the distant window there is room for exactly one that begins here, …
    let exact = 1_000_000 - widths.window_ns;
    assert_eq!(book.bid(0, &later(exact + 1)).unwrap().window.left_ns, far.window.right_ns + config.trip_ns);
    assert_eq!(book.bid(0, &later(exact)).unwrap().window.left_ns, exact);
    // … and a cancelled window leaves no trace.
    book.cancel(0, soon.id).unwrap();
    assert_eq!(book.bid(0, &ANYTIME).unwrap().window, soon.window);
}

#[test]
fn half_of_idle_bids_are_longer_by_chance() {
    let width = |random| {
        let bid = book(Config::UNICAST).bid(0, &Request { random, ..ANYTIME }).unwrap();
        bid.window.right_ns - bid.window.left_ns
    };
    let widths = Config::UNICAST.widths(BYTES);
    assert_eq!([0, 1].map(width), [widths.window_ns + 2 * widths.chunk_ns, widths.window_ns]);
}

#[test]
fn bounds_are_errors() {
    let mut few = book(Config { bids_max: 2, ..Config::MULTICAST });
    let first = few.bid(0, &ANYTIME).unwrap();
    few.bid(0, &ANYTIME).unwrap();
    assert_eq!(few.bid(0, &ANYTIME), Err(Refused::Full { bids_max: 2 }));
    // There are too many windows to promise the cancelled one again, but it makes room for another.
    few.cancel(0, first.id).unwrap();
    let mut none = few.clone();
    none.config.reuse_windows_max = 0;
    none.bid(0, &ANYTIME).unwrap();
    assert_eq!((none.tentative(), windows(&none).len()), (2, 2));

    let bytes_max = u64::from(BYTES) + 1;
    let mut small = book(Config { bytes_max, ..Config::MULTICAST });
    let bid = small.bid(0, &ANYTIME).unwrap();
    assert_eq!(small.bid(0, &Request { bytes: 2, ..ANYTIME }), Err(Refused::Memory { bytes: 2, bytes_max }));
    assert!(small.bid(0, &Request { bytes: 1, ..ANYTIME }).is_ok());
    small.cancel(0, bid.id).unwrap();
    assert!(small.bid(0, &ANYTIME).is_ok());

    for config in [Config::MULTICAST, Config::UNICAST] {
        let horizon_ns = config.horizon_ns;
        let mut book = book(config);
        assert!(book.bid(0, &Request { earliest_ns: horizon_ns, ..ANYTIME }).is_ok());
        for earliest_ns in [horizon_ns, horizon_ns + 1, u64::MAX] {
            let refused = book.bid(0, &Request { earliest_ns, ..ANYTIME });
            assert!(matches!(refused, Err(Refused::TooLate { .. })), "{refused:?}");
        }
    }
    assert_eq!(Book::new(Config { bids_max: 0, ..Config::UNICAST }, BidId(0)).unwrap_err().field, "bids_max");
}

#[test]
fn invalid_accepts_have_different_errors() {
    let config = Config::MULTICAST;
    let mut book = book(config);
    assert_eq!(
        book.accept(0, BidId(1), Offsets { left_ns: 0, right_ns: 1 }),
        Err(BidError::NeverMade(BidId(1)))
    );
    let [bid, other] = [0; 2].map(|now| book.bid(now, &ANYTIME).unwrap());
    let chosen = used(&config, &bid);
    for (left_ns, right_ns) in [
        (bid.window.left_ns - 1, bid.window.right_ns),
        (bid.window.left_ns, bid.window.right_ns + 1),
        (bid.window.left_ns, bid.window.left_ns),
        (u64::MAX, u64::MAX),
    ] {
        let chosen = Offsets { left_ns, right_ns };
        assert_eq!(book.accept(0, bid.id, chosen), Err(BidError::Outside { id: bid.id, chosen }));
    }
    assert_eq!(book.finish(bid.id), Err(BidError::Tentative(bid.id)));
    book.accept(0, bid.id, chosen).unwrap();
    assert_eq!(book.accept(0, bid.id, chosen), Err(BidError::Accepted(bid.id)));
    assert_eq!(book.cancel(0, bid.id), Err(BidError::Accepted(bid.id)));
    book.finish(bid.id).unwrap();
    assert_eq!(book.finish(bid.id), Err(BidError::Over(bid.id)));
    assert_eq!(book.accept(0, bid.id, chosen), Err(BidError::Over(bid.id)));
    // The other bid expires.
    let lapse_ns = config.tentative_ns;
    assert_eq!(book.next_lapse_ns(), Some(lapse_ns));
    assert_eq!(book.clone().accept(lapse_ns - 1, other.id, used(&config, &other)), Ok(()));
    assert_eq!(book.accept(lapse_ns, other.id, used(&config, &other)), Err(BidError::Over(other.id)));
    assert_eq!((book.bytes(), book.next_lapse_ns()), (0, None));
}

#[test]
fn accepted_bid_expires_after_its_window() {
    let config = Config::UNICAST;
    let mut book = book(config);
    let bid = book.bid(0, &ANYTIME).unwrap();
    let chosen = used(&config, &bid);
    book.accept(0, bid.id, chosen).unwrap();
    let lapse_ns = chosen.right_ns + config.grace_ns;
    assert_eq!(book.next_lapse_ns(), Some(lapse_ns));
    assert_eq!((book.lapse(lapse_ns - 1), book.accepted().count()), (0, 1));
    assert_eq!((book.lapse(lapse_ns), book.accepted().count(), book.bytes()), (1, 0, 0));
    assert_eq!(book.finish(bid.id), Err(BidError::Over(bid.id)));
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Bid(Request),
    /// Accepts one of all past bids, or one that was never made. The window is cut on both sides by
    /// these shares, in thousandths.
    Accept(prop::sample::Index, u64, u64),
    Cancel(prop::sample::Index),
    Finish(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = || any::<prop::sample::Index>();
    let request = (0_usize..4, 0_u64..4, prop_oneof![Just(0), 0_u64..3_000_000], any::<u64>()).prop_map(
        |(size, queued, earliest_ns, random)| {
            let bytes = [1_000, 16 << 10, BYTES, 1 << 20][size];
            let write_ns = u64::from(bytes) * 2;
            Request {
                bytes,
                earliest_ns,
                backlog: Backlog { queued_ns: queued * write_ns, write_ns },
                random,
            }
        },
    );
    let step = prop_oneof![
        3 => prop_oneof![0_u64..5_000, 0_u64..400_000, 0_u64..4_000_000].prop_map(Step::Wait),
        6 => request.prop_map(Step::Bid),
        3 => (index(), 0_u64..600, 0_u64..600).prop_map(|(index, left, right)| Step::Accept(index, left, right)),
        3 => index().prop_map(Step::Cancel),
        2 => index().prop_map(Step::Finish),
    ];
    prop::collection::vec(step, 1..300)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    Tentative,
    Accepted,
    Over,
}

/// A bid, as its initiator knows it.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: BidId,
    bytes: u32,
    received_ns: u64,
    window: Window,
    is: Is,
}

struct Walk {
    config: Config,
    book: Book,
    now_ns: u64,
    known: Vec<Known>,
}

impl Walk {
    fn new(config: Config) -> Self {
        Self { config, book: book(config), now_ns: 0, known: Vec::new() }
    }

    fn alive(&self) -> impl Iterator<Item = &Known> {
        self.known.iter().filter(|known| known.is != Is::Over)
    }

    fn bid(&mut self, request: &Request) {
        let promised: u64 = self.alive().map(|known| u64::from(known.bytes)).sum();
        match self.book.bid(self.now_ns, request) {
            Ok(Bid { id, window, .. }) => {
                let window = Receipt::at(self.now_ns).window(window).unwrap();
                let earliest_ns =
                    if self.config.delivery == Delivery::Unicast { request.earliest_ns } else { 0 };
                assert!(window.left_ns >= self.now_ns + earliest_ns);
                let usable_ns = window.right_ns - window.left_ns.max(self.now_ns + self.config.earliest_ns());
                assert!(usable_ns >= self.config.widths(request.bytes).window_ns, "as much as was asked for");
                assert!(self.alive().all(|known| known.window.is_apart_from(&window)), "promised twice");
                let (bytes, received_ns, is) = (request.bytes, self.now_ns, Is::Tentative);
                self.known.push(Known { id, bytes, received_ns, window, is });
            }
            Err(Refused::Full { bids_max }) => assert_eq!(self.alive().count(), bids_max),
            Err(Refused::Memory { bytes_max, .. }) => {
                assert!(promised + u64::from(request.bytes) > bytes_max);
            }
            Err(Refused::TooLate { after_ns, .. }) => assert!(after_ns > self.config.horizon_ns),
        }
    }

    /// The id of a past bid and its index, or the id that the next bid will have and `None`.
    fn pick(&self, index: prop::sample::Index) -> (BidId, Option<usize>) {
        let at = index.index(self.known.len() + 1);
        match self.known.get(at) {
            Some(known) => (known.id, Some(at)),
            None => (self.known.last().map_or(BidId(1), |last| BidId(last.id.0 + 1)), None),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait(ns) => self.now_ns += ns,
            Step::Bid(ref request) => self.bid(request),
            Step::Accept(index, cut_left, cut_right) => {
                let (id, at) = self.pick(index);
                let whole = Window { left_ns: self.now_ns, right_ns: self.now_ns + 1_000 };
                let (window, received_ns) =
                    at.map_or((whole, self.now_ns), |at| (self.known[at].window, self.known[at].received_ns));
                let cut = |part: u64| window.width_ns() / 1_000 * part;
                let used = Window {
                    left_ns: window.left_ns + cut(cut_left),
                    right_ns: window.right_ns - cut(cut_right),
                };
                let chosen =
                    Receipt::at(received_ns).offsets(used).unwrap_or(Offsets { left_ns: 0, right_ns: 0 });
                let result = self.book.accept(self.now_ns, id, chosen);
                match at.map(|at| &mut self.known[at]) {
                    None => assert_eq!(result, Err(BidError::NeverMade(id))),
                    Some(Known { is: Is::Over, .. }) => assert_eq!(result, Err(BidError::Over(id))),
                    Some(Known { is: Is::Accepted, .. }) => assert_eq!(result, Err(BidError::Accepted(id))),
                    Some(known) if known.window.contains(&used) => {
                        assert_eq!(result, Ok(()));
                        (known.window, known.is) = (used, Is::Accepted);
                    }
                    Some(_) => assert_eq!(result, Err(BidError::Outside { id, chosen })),
                }
            }
            Step::Cancel(index) => {
                let (id, at) = self.pick(index);
                let result = self.book.cancel(self.now_ns, id);
                self.ends(id, at, result, Is::Tentative, BidError::Accepted(id));
            }
            Step::Finish(index) => {
                let (id, at) = self.pick(index);
                let result = self.book.finish(id);
                self.ends(id, at, result, Is::Accepted, BidError::Tentative(id));
            }
        }
    }

    fn ends(
        &mut self,
        id: BidId,
        at: Option<usize>,
        result: Result<(), BidError>,
        from: Is,
        wrong: BidError,
    ) {
        match at.map(|at| &mut self.known[at]) {
            None => assert_eq!(result, Err(BidError::NeverMade(id))),
            Some(Known { is: Is::Over, .. }) => assert_eq!(result, Err(BidError::Over(id))),
            Some(known) if known.is == from => {
                assert_eq!(result, Ok(()));
                known.is = Is::Over;
            }
            Some(_) => assert_eq!(result, Err(wrong)),
        }
    }

    /// Expires bids in the book and in the model of its initiators.
    fn lapse(&mut self) {
        let Config { tentative_ns, grace_ns, .. } = self.config;
        let mut lapsed = 0;
        for known in &mut self.known {
            let lapse_ns = match known.is {
                Is::Tentative => known.received_ns + tentative_ns,
                Is::Accepted => known.window.right_ns + grace_ns,
                Is::Over => continue,
            };
            if lapse_ns <= self.now_ns {
                (known.is, lapsed) = (Is::Over, lapsed + 1);
            }
        }
        assert_eq!(self.book.lapse(self.now_ns), lapsed);
    }

    fn check(&self) {
        let windows: Vec<Window> = self.book.windows().collect();
        assert!(windows.len() <= self.config.bids_max);
        assert!(windows.iter().all(|window| window.left_ns < window.right_ns));
        assert!(windows.windows(2).all(|pair| pair[0].right_ns <= pair[1].left_ns), "{windows:?}");
        assert_eq!(self.book.bytes(), self.alive().map(|known| u64::from(known.bytes)).sum());
        let of = |is| self.known.iter().filter(move |known| known.is == is);
        assert_eq!(self.book.tentative(), of(Is::Tentative).count());
        let mut accepted: Vec<_> = of(Is::Accepted).map(|known| (known.id, known.window)).collect();
        accepted.sort_by_key(|(_, window)| window.left_ns);
        assert_eq!(self.book.accepted().collect::<Vec<_>>(), accepted);
        if self.config.delivery == Delivery::Unicast {
            assert_eq!(windows.len(), self.alive().count(), "cancelled windows are not kept");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Whatever initiators request, accept, cancel and forget: no time is promised twice, bounds
    /// hold, ended bids stay ended, and bids that were never made are reported as such.
    #[test]
    fn book_stays_consistent_under_any_operations(steps in steps(), is_multicast in any::<bool>(), reuse_windows_max in 0_usize..8) {
        let config = if is_multicast { Config::MULTICAST } else { Config::UNICAST };
        let bytes_max = 4 << 20;
        let tentative_ns = 2_000_000;
        let mut walk = Walk::new(Config { bids_max: 6, bytes_max, tentative_ns, grace_ns: 100_000, reuse_windows_max, horizon_ns: 20_000_000, ..config });
        for step in &steps {
            walk.step(step);
            walk.lapse();
            walk.check();
        }
    }
}

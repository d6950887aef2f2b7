//! Requests, bids, the choice, and its consequences.

use super::simulation::{Asking, Chunk, Delivery, Event, Held, Simulation, Target, Transfer};
use crate::replicast_sim::setup::{GROUP, Protocol, REPLICAS};
use nicekv_objects::reservation::{BidId, Offer, Offsets, Receipt, Request, Window, common_window, sequence};

/// If bids are missing, an initiator waits this long before it chooses among those that it has; it
/// waits as long for acknowledgements after the time at which they are due.
pub(super) const ANSWER_TIMEOUT_NS: u64 = 50_000;

/// Limit of doublings of the pause before a chunk is requested again.
const DOUBLINGS_MAX: u32 = 5;
/// One for each target, and the choice.
const EVENTS_PER_REQUEST: u32 = GROUP as u32 + 1;

/// A choice: the index of an offer, and its window.
type Chosen = (usize, Window);

impl Simulation<'_> {
    /// Requests windows from `earliest_ns` on from the targets of the group that do not have the
    /// chunk.
    pub(super) fn ask(&mut self, chunk: Chunk, earliest_ns: u64) {
        let (at_ns, members) = (self.events.now_ns() + self.config.hop_ns(), self.members(chunk.who));
        let initiator = self.initiator(chunk.who);
        initiator.asking = initiator.asking.wrapping_add(1);
        initiator.earliest_ns = earliest_ns;
        let has = |target: &u16| {
            let mut of_it = initiator.deliveries.iter().filter(|delivery| delivery.target == *target);
            of_it.any(|delivery| delivery.is_acked || !delivery.is_given_up)
        };
        let asked: Vec<u16> = members.filter(|target| !has(target)).collect();
        (initiator.asked, initiator.has_waited) = (asked.len(), false);
        initiator.offers.clear();
        initiator.bids.clear();
        let asking = Asking { chunk, number: initiator.asking };
        let crossing = u32::from(self.setup.crossing) * EVENTS_PER_REQUEST;
        for target in asked {
            if !self.loses() {
                let behind = self.random.below(crossing) as u64;
                self.events.enter_behind(at_ns, Event::Request { asking, target }, behind);
            }
        }
        self.events.enter(at_ns + self.config.hop_ns(), Event::Choose(asking));
    }

    pub(super) fn ask_again(&mut self, asking: Asking) {
        let Some(initiator) = self.at_asking(asking) else { return };
        let earliest_ns = initiator.earliest_ns;
        self.ask(asking.chunk, earliest_ns);
    }

    /// A target handles a request.
    pub(super) fn request(&mut self, asking: Asking, target: u16) {
        let Some(initiator) = self.at_asking(asking) else { return };
        let earliest_ns = initiator.earliest_ns;
        if !self.has_come(asking.chunk, target) {
            self.bid(asking.chunk.who, target, earliest_ns);
        }
    }

    /// A target that has all of the chunk does not bid, but acknowledges it once it is written.
    fn has_come(&mut self, chunk: Chunk, target: u16) -> bool {
        let (now_ns, hop_ns) = (self.events.now_ns(), self.config.hop_ns());
        let mut deliveries = self.initiator(chunk.who).deliveries.iter_mut().enumerate();
        let come = deliveries.find_map(|(at, delivery)| {
            let written_ns = delivery.written_ns.filter(|_| delivery.target == target)?;
            delivery.is_given_up = false;
            Some((at as u8, written_ns))
        });
        let Some((delivery, written_ns)) = come else { return false };
        if !self.loses() {
            self.events.enter(written_ns.max(now_ns) + hop_ns, Event::Ack { chunk, delivery });
        }
        true
    }

    fn bid(&mut self, who: u16, target: u16, earliest_ns: u64) {
        let (now_ns, hop_ns, bytes) = (self.events.now_ns(), self.config.hop_ns(), self.setup.chunk_bytes());
        let (coin, random) = (self.random.next(), self.lot(target));
        let Target { book, disk, .. } = &mut self.targets[usize::from(target)];
        self.metrics.requests += 1;
        self.metrics.met += u64::from(book.tentative() > 0);
        let request = Request {
            bytes,
            earliest_ns: earliest_ns.saturating_sub(now_ns),
            backlog: disk.backlog(now_ns),
            random: coin,
        };
        let Ok(bid) = book.bid(now_ns, &request) else {
            self.metrics.refused += 1;
            return;
        };
        let receipt = if self.setup.extensions.is_apart {
            Receipt::between(now_ns - hop_ns, now_ns + hop_ns)
        } else {
            Receipt::at(now_ns)
        };
        let is_lost = self.loses();
        let initiator = self.initiator(who);
        initiator.bids.push(Held { target, id: bid.id, receipt, disk_ns: bid.disk_ns });
        if let Some(window) = receipt.window(bid.window).filter(|_| !is_lost) {
            initiator.offers.push(Offer { target, window, random });
        }
    }

    /// The initiator chooses, and notifies all targets of its request.
    pub(super) fn choose(&mut self, asking: Asking) {
        let (now_ns, chunk) = (self.events.now_ns(), asking.chunk);
        let Some(initiator) = self.at_asking(asking) else { return };
        if initiator.offers.len() < initiator.asked && !initiator.has_waited {
            initiator.has_waited = true;
            self.events.enter(now_ns + ANSWER_TIMEOUT_NS, Event::Choose(asking));
            return;
        }
        let lacking = REPLICAS.saturating_sub(initiator.copies());
        let mut offers = std::mem::take(&mut initiator.offers);
        let chosen = self.chosen(lacking, &mut offers);
        self.notify(chunk, &chosen, &offers);
        self.deliver(chunk, &chosen, &offers);
        self.initiator(chunk.who).offers = offers;
        if lacking == 0 || !chosen.is_empty() {
            self.go_on(asking, &chosen);
        } else {
            self.fail(asking);
        }
    }

    /// The bids have no window for the chunk.
    fn fail(&mut self, asking: Asking) {
        let (now_ns, chunk) = (self.events.now_ns(), asking.chunk);
        self.metrics.without_window += 1;
        if !self.setup.extensions.is_retried && !self.is_lossy() {
            // As in the paper's tool: the chunk is dropped, and its latency not counted.
            self.begin(chunk.who);
            return;
        }
        // Without a pause the request would meet the other repeated requests, and the same
        // promises.
        let window_ns = self.config.widths(self.setup.chunk_bytes()).window_ns;
        let initiator = self.initiator(chunk.who);
        (initiator.earliest_ns, initiator.earliest_before_ns) = (now_ns, None);
        let longest_ns = window_ns << initiator.failures;
        initiator.failures = (initiator.failures + 1).min(DOUBLINGS_MAX);
        let pause_ns = (longest_ns as f64 * self.random.fraction()) as u64;
        self.events.enter(now_ns + pause_ns, Event::Ask(asking));
    }

    fn chosen(&mut self, lacking: usize, offers: &mut [Offer]) -> Vec<Chosen> {
        let (now_ns, bytes) = (self.events.now_ns(), self.setup.chunk_bytes());
        if lacking == 0 {
            return Vec::new();
        }
        if self.setup.protocol == Protocol::H {
            let picks = sequence(&self.config, now_ns, bytes, lacking, offers);
            return picks.iter().map(|pick| (pick.at, pick.window)).collect();
        }
        let common = common_window(&self.config, now_ns, bytes, lacking, offers);
        let places = |first: usize| first..first + lacking;
        common.map_or_else(Vec::new, |common| places(common.first).map(|at| (at, common.window)).collect())
    }

    /// Notifies all bidders whether they were chosen.
    fn notify(&mut self, chunk: Chunk, chosen: &[Chosen], offers: &[Offer]) {
        let at_ns = self.events.now_ns() + self.config.hop_ns();
        for place in 0..self.initiator(chunk.who).bids.len() {
            let Held { target, id, receipt, .. } = self.initiator(chunk.who).bids[place];
            let window = chosen.iter().find(|(at, _)| offers[*at].target == target);
            let chosen = window.map(|(_, window)| Self::offsets_of(receipt, *window));
            if !self.loses() {
                self.events.enter(at_ns, Event::Answer { chunk, target, id, chosen });
            }
        }
    }

    /// Records the deliveries, and schedules the transfers: one for all targets, or one for each.
    fn deliver(&mut self, chunk: Chunk, chosen: &[Chosen], offers: &[Offer]) {
        let is_unicast = self.setup.protocol == Protocol::H;
        for (number, (at, window)) in chosen.iter().enumerate() {
            let initiator = &mut self.initiators[usize::from(chunk.who)];
            let target = offers[*at].target;
            let Some(held) = initiator.bids.iter().find(|held| held.target == target) else { continue };
            let delivery = Delivery {
                target,
                id: held.id,
                is_known: false,
                received_bytes: 0,
                written_ns: None,
                is_acked: false,
                is_given_up: false,
            };
            initiator.missed_ns = initiator.missed_ns.max(window.right_ns + held.disk_ns);
            let first = initiator.deliveries.len() as u8;
            initiator.deliveries.push(delivery);
            if is_unicast || number == 0 {
                let count = if is_unicast { 1 } else { chosen.len() as u8 };
                let transfer = initiator.transfers.len() as u8;
                initiator.transfers.push(Transfer { sent_bytes: 0, first, count });
                self.events.enter(window.left_ns, Event::Send { chunk, transfer });
            }
        }
    }

    /// Schedules a request for missing copies, if there are any, and otherwise waits for
    /// acknowledgements.
    fn go_on(&mut self, asking: Asking, chosen: &[Chosen]) {
        let (now_ns, hop_ns, is_lossy) = (self.events.now_ns(), self.config.hop_ns(), self.is_lossy());
        let config = self.config;
        let initiator = self.initiator(asking.chunk.who);
        if initiator.copies() < REPLICAS {
            let windows: Vec<Window> = chosen.iter().map(|(_, window)| *window).collect();
            let at_ns = nicekv_objects::reservation::next_request_ns(
                &config,
                now_ns,
                initiator.earliest_before_ns,
                &windows,
            );
            if let (Some(at_ns), Some(last)) = (at_ns, windows.last()) {
                initiator.earliest_ns = last.right_ns;
                initiator.earliest_before_ns = Some(last.right_ns);
                self.events.enter(at_ns.max(now_ns), Event::Ask(asking));
            }
        } else if is_lossy {
            let at_ns = initiator.missed_ns.max(now_ns) + hop_ns + ANSWER_TIMEOUT_NS;
            self.events.enter(at_ns, Event::Missed(asking));
        }
    }

    /// A target learns whether it was chosen.
    pub(super) fn answer(&mut self, chunk: Chunk, target: u16, (id, chosen): (BidId, Option<Offsets>)) {
        let now_ns = self.events.now_ns();
        let book = &mut self.target(target).book;
        let result = match chosen {
            Some(chosen) => book.accept(now_ns, id, chosen),
            None => book.cancel(now_ns, id),
        };
        // With losses the answer may come after the bid has expired.
        assert!(result.is_ok() || self.is_lossy(), "{result:?}");
        let is_accepted = chosen.is_some() && result.is_ok();
        let deliveries = self.at(chunk).map(|initiator| initiator.deliveries.iter_mut());
        let mut deliveries = deliveries.into_iter().flatten();
        if let Some(delivery) = deliveries.find(|delivery| delivery.target == target && delivery.id == id) {
            delivery.is_known = is_accepted;
        }
    }

    /// Acknowledgements are overdue: other targets get the chunk.
    pub(super) fn missed(&mut self, asking: Asking) {
        let now_ns = self.events.now_ns();
        let Some(initiator) = self.at_asking(asking) else { return };
        for delivery in initiator.deliveries.iter_mut().filter(|delivery| !delivery.is_acked) {
            delivery.is_given_up = true;
        }
        initiator.earliest_before_ns = None;
        self.metrics.missed += 1;
        self.ask(asking.chunk, now_ns);
    }
}

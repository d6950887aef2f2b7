//! The state of initiators and targets.

use crate::replicast_sim::disk::Disk;
use crate::replicast_sim::egress::Egress;
use crate::replicast_sim::event_queue::EventQueue;
use crate::replicast_sim::metrics::Metrics;
use crate::replicast_sim::placement::Placement;
use crate::replicast_sim::setup::{GROUP, Setup, TARGETS};
use crate::splitmix::Random;
use nicekv_objects::reservation::{BidId, Book, Config, Offer, Offsets, Receipt, Window};

/// A chunk of an initiator, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) who: u16,
    pub(super) number: u32,
}

/// A request for a chunk, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    pub(super) chunk: Chunk,
    pub(super) number: u16,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Request the missing copies.
    Ask(Asking),
    /// A request reaches a target.
    Request {
        asking: Asking,
        target: u16,
    },
    /// All bids should have arrived.
    Choose(Asking),
    /// A target learns in which window it gets the chunk, or that it gets none.
    Answer {
        chunk: Chunk,
        target: u16,
        id: BidId,
        chosen: Option<Offsets>,
    },
    /// A frame may leave.
    Send {
        chunk: Chunk,
        transfer: u8,
    },
    /// A frame reaches its targets.
    Frame {
        chunk: Chunk,
        transfer: u8,
        bytes: u32,
    },
    /// A target has written the chunk.
    Ack {
        chunk: Chunk,
        delivery: u8,
    },
    /// All acknowledgements should have arrived.
    Missed(Asking),
    GetRequest(Chunk),
    GetAccept {
        chunk: Chunk,
        target: u16,
    },
    /// A frame of a get; `left_bytes` are still to come, this frame included.
    Part {
        chunk: Chunk,
        left_bytes: u32,
        is_whole: bool,
    },
    GetMissed(Chunk),
}

/// A bid that an initiator has received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) target: u16,
    pub(super) id: BidId,
    /// When the target received the request, as far as the initiator knows.
    pub(super) receipt: Receipt,
    pub(super) disk_ns: u64,
}

/// A copy in flight to one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) target: u16,
    pub(super) id: BidId,
    /// The target has learnt that it was chosen.
    pub(super) is_known: bool,
    pub(super) received_bytes: u32,
    /// When it is written; `None` before all of it has arrived.
    pub(super) written_ns: Option<u64>,
    pub(super) is_acked: bool,
    /// The initiator no longer waits for it.
    pub(super) is_given_up: bool,
}

/// A chunk sent in one window, and its deliveries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) sent_bytes: u32,
    pub(super) first: u8,
    pub(super) count: u8,
}

#[derive(Default)]
pub(super) struct Initiator {
    pub(super) chunk: u32,
    pub(super) begun_ns: u64,
    pub(super) group: Option<u16>,
    /// The holders of the chunk of a get.
    pub(super) holders: Vec<u16>,
    /// The current request.
    pub(super) asking: u16,
    pub(super) asked: usize,
    pub(super) has_waited: bool,
    /// The earliest window of the current request, and of the one before.
    pub(super) earliest_ns: u64,
    pub(super) earliest_before_ns: Option<u64>,
    /// How many times in a row bids had no window for the chunk.
    pub(super) failures: u32,
    pub(super) offers: Vec<Offer>,
    pub(super) bids: Vec<Held>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) transfers: Vec<Transfer>,
    /// When the acknowledgements of all deliveries should have arrived.
    pub(super) missed_ns: u64,
}

impl Initiator {
    /// Copies that are stored or in flight.
    pub(super) fn copies(&self) -> usize {
        self.deliveries.iter().filter(|delivery| delivery.is_acked || !delivery.is_given_up).count()
    }
}

pub(super) struct Target {
    pub(super) book: Book,
    pub(super) disk: Disk,
    pub(super) egress: Egress,
}

pub(super) struct Simulation<'a> {
    pub(super) setup: &'a Setup,
    pub(super) config: Config,
    pub(super) events: EventQueue<Event>,
    pub(super) random: Random,
    /// Seed of the order among equal bids.
    pub(super) lots: u64,
    pub(super) placement: Placement,
    pub(super) initiators: Vec<Initiator>,
    pub(super) targets: Vec<Target>,
    pub(super) metrics: Metrics,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(setup: &'a Setup, seed: u64) -> Self {
        let config = setup.config();
        let target = |_| Target {
            book: Book::new(config, BidId(0)).expect("the paper's parameters can be"),
            disk: Disk::new(setup.write_ns()),
            egress: Egress::default(),
        };
        Self {
            setup,
            config,
            events: EventQueue::new(),
            random: Random(seed),
            lots: Random(seed).next(),
            placement: Placement::new(setup.extensions.is_hashed),
            initiators: (0..setup.initiators).map(|_| Initiator::default()).collect(),
            targets: (0..TARGETS).map(target).collect(),
            metrics: Metrics::new(setup),
        }
    }

    pub(super) fn is_lossy(&self) -> bool {
        self.setup.extensions.loss_ppm > 0
    }

    /// Draws whether this copy of a datagram is lost.
    pub(super) fn loses(&mut self) -> bool {
        let is_lost = self.setup.extensions.is_lost(&mut self.random);
        self.metrics.lost += u64::from(is_lost);
        is_lost
    }

    /// The rank of a target among equal bids at this instant. It is the same for all requests that
    /// the target answers now, as its bids leave together.
    pub(super) fn lot(&self, target: u16) -> u64 {
        Random(self.lots ^ self.events.now_ns().rotate_left(16) ^ u64::from(target)).next()
    }

    pub(super) fn initiator(&mut self, who: u16) -> &mut Initiator {
        &mut self.initiators[usize::from(who)]
    }

    pub(super) fn target(&mut self, target: u16) -> &mut Target {
        &mut self.targets[usize::from(target)]
    }

    /// The initiator, if it still puts or gets this chunk.
    pub(super) fn at(&mut self, chunk: Chunk) -> Option<&mut Initiator> {
        let initiator = &mut self.initiators[usize::from(chunk.who)];
        (initiator.chunk == chunk.number).then_some(initiator)
    }

    /// The initiator, if this is still its current request.
    pub(super) fn at_asking(&mut self, asking: Asking) -> Option<&mut Initiator> {
        self.at(asking.chunk).filter(|initiator| initiator.asking == asking.number)
    }

    /// Begins a put or a get of an idle initiator.
    pub(super) fn begin(&mut self, who: u16) {
        let now_ns = self.events.now_ns();
        let is_get = self.setup.extensions.is_get(&mut self.random);
        let initiator = &mut self.initiators[usize::from(who)];
        initiator.chunk += 1;
        initiator.begun_ns = now_ns;
        initiator.group = Some(self.placement.group(&mut self.random, initiator.group));
        initiator.deliveries.clear();
        initiator.transfers.clear();
        (initiator.earliest_before_ns, initiator.failures) = (None, 0);
        let chunk = Chunk { who, number: initiator.chunk };
        if is_get { self.get(chunk) } else { self.ask(chunk, now_ns) }
    }

    /// The targets of an initiator's group.
    pub(super) fn members(&self, who: u16) -> std::ops::Range<u16> {
        let first = self.initiators[usize::from(who)].group.unwrap_or(0) * GROUP;
        first..first + GROUP
    }

    /// Converts a window from the initiator's clock to offsets by the target's. The bid had the
    /// same receipt.
    pub(super) fn offsets_of(receipt: Receipt, window: Window) -> Offsets {
        receipt.offsets(window).expect("a chosen window is within its bid")
    }
}

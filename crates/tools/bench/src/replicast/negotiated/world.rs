//! Who there is, and what they know.

use crate::replicast::calendar::Calendar;
use crate::replicast::disk::Disk;
use crate::replicast::places::Places;
use crate::replicast::reading::Egress;
use crate::replicast::setup::{GROUP, Setup, TARGETS};
use crate::replicast::tally::Tally;
use crate::workload::Random;
use nicekv_objects::reservation::{BidId, Book, Config, Offer, Offsets, Receipt, Window};

/// A chunk of an initiator, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) who: u16,
    pub(super) number: u32,
}

/// A request for it, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    pub(super) chunk: Chunk,
    pub(super) number: u16,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// It is time to ask for what is lacking.
    Ask(Asking),
    /// A request reaches a target.
    Request {
        asking: Asking,
        target: u16,
    },
    /// All bids should be there.
    Choose(Asking),
    /// A target is told when it gets the chunk, or that it does not.
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
    /// A target has written.
    Ack {
        chunk: Chunk,
        delivery: u8,
    },
    /// Acks of all that was asked for should be there.
    Missed(Asking),
    GetRequest(Chunk),
    GetAccept {
        chunk: Chunk,
        target: u16,
    },
    /// A frame of a get, and what is still to come.
    Part {
        chunk: Chunk,
        left_bytes: u32,
        is_whole: bool,
    },
    GetMissed(Chunk),
}

/// A bid that an initiator has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) target: u16,
    pub(super) id: BidId,
    /// When the target has received the request, as far as the initiator knows.
    pub(super) receipt: Receipt,
    pub(super) disk_ns: u64,
}

/// A copy on its way to one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) target: u16,
    pub(super) id: BidId,
    /// The target knows that it was chosen.
    pub(super) is_known: bool,
    pub(super) received_bytes: u32,
    /// All of it has come; when it is written.
    pub(super) written_ns: Option<u64>,
    pub(super) is_acked: bool,
    /// The initiator waits for it no longer.
    pub(super) is_given_up: bool,
}

/// What an initiator sends in one window, and to which deliveries.
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
    /// Of a get: who holds the chunk.
    pub(super) holders: Vec<u16>,
    /// The request that is under way.
    pub(super) asking: u16,
    pub(super) asked: usize,
    pub(super) has_waited: bool,
    /// For windows from this time on, and from which one before.
    pub(super) earliest_ns: u64,
    pub(super) earliest_before_ns: Option<u64>,
    /// How often in a row bids had no window for the chunk.
    pub(super) failures: u32,
    pub(super) offers: Vec<Offer>,
    pub(super) bids: Vec<Held>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) transfers: Vec<Transfer>,
    /// When the acks of all deliveries should be there.
    pub(super) missed_ns: u64,
}

impl Initiator {
    /// Copies that are there, or on their way.
    pub(super) fn copies(&self) -> usize {
        self.deliveries.iter().filter(|delivery| delivery.is_acked || !delivery.is_given_up).count()
    }
}

pub(super) struct Target {
    pub(super) book: Book,
    pub(super) disk: Disk,
    pub(super) egress: Egress,
}

pub(super) struct World<'a> {
    pub(super) setup: &'a Setup,
    pub(super) config: Config,
    pub(super) calendar: Calendar<Event>,
    pub(super) random: Random,
    /// Of the order among targets that bid alike.
    pub(super) lots: u64,
    pub(super) places: Places,
    pub(super) initiators: Vec<Initiator>,
    pub(super) targets: Vec<Target>,
    pub(super) tally: Tally,
}

impl<'a> World<'a> {
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
            calendar: Calendar::new(),
            random: Random(seed),
            lots: Random(seed).next(),
            places: Places::new(setup.beyond.is_hashed),
            initiators: (0..setup.initiators).map(|_| Initiator::default()).collect(),
            targets: (0..TARGETS).map(target).collect(),
            tally: Tally::new(setup),
        }
    }

    pub(super) fn is_lossy(&self) -> bool {
        self.setup.beyond.loss_ppm > 0
    }

    /// Whether this copy of a datagram is lost.
    pub(super) fn loses(&mut self) -> bool {
        let is_lost = self.setup.beyond.is_lost(&mut self.random);
        self.tally.lost += u64::from(is_lost);
        is_lost
    }

    /// Of a target at this instant: where it stands among those that bid alike. All whom it answers now see it there, as all of its bids leave together.
    pub(super) fn lot(&self, target: u16) -> u64 {
        Random(self.lots ^ self.calendar.now_ns().rotate_left(16) ^ u64::from(target)).next()
    }

    pub(super) fn initiator(&mut self, who: u16) -> &mut Initiator {
        &mut self.initiators[usize::from(who)]
    }

    pub(super) fn target(&mut self, target: u16) -> &mut Target {
        &mut self.targets[usize::from(target)]
    }

    /// The initiator, if it is still at that chunk.
    pub(super) fn at(&mut self, chunk: Chunk) -> Option<&mut Initiator> {
        let initiator = &mut self.initiators[usize::from(chunk.who)];
        (initiator.chunk == chunk.number).then_some(initiator)
    }

    /// The same of a request.
    pub(super) fn at_asking(&mut self, asking: Asking) -> Option<&mut Initiator> {
        self.at(asking.chunk).filter(|initiator| initiator.asking == asking.number)
    }

    /// A put or a get of an initiator that has nothing to do.
    pub(super) fn begin(&mut self, who: u16) {
        let now_ns = self.calendar.now_ns();
        let is_get = self.setup.beyond.is_get(&mut self.random);
        let initiator = &mut self.initiators[usize::from(who)];
        initiator.chunk += 1;
        initiator.begun_ns = now_ns;
        initiator.group = Some(self.places.group(&mut self.random, initiator.group));
        initiator.deliveries.clear();
        initiator.transfers.clear();
        (initiator.earliest_before_ns, initiator.failures) = (None, 0);
        let chunk = Chunk { who, number: initiator.chunk };
        if is_get { self.get(chunk) } else { self.ask(chunk, now_ns) }
    }

    /// The members of an initiator's group.
    pub(super) fn members(&self, who: u16) -> std::ops::Range<u16> {
        let first = self.initiators[usize::from(who)].group.unwrap_or(0) * GROUP;
        first..first + GROUP
    }

    /// A window by the initiator's clock, as offsets by the target's. It was found in a bid of that receipt.
    pub(super) fn told(receipt: Receipt, window: Window) -> Offsets {
        receipt.offsets(window).expect("what is chosen of a bid is told within it")
    }
}

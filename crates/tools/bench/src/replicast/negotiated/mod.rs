//! Replicast-M and Replicast-H: targets bid, and initiators choose (Replicast §II, §III, §IV), by the cores of `reservation`.
//!
//! ```text
//!   initiator ──request──▶ nine targets of a group      control messages have a tenth of the link, and never wait
//!             ◀──bids─────
//!             ──accept───▶ all nine: three are chosen (M), or as many as follow each other (H, which then asks the others again)
//!             ══frames═══▶ M: once to all three; H: to one after the other
//!             ◀──acks───── each when it has written
//! ```
//!
//! `control` is what is said, `data` what is sent, `reads` gets.

mod control;
mod data;
mod reads;
mod world;

use super::calendar::Calendar;
use super::disk::Disk;
use super::run::{Simulated, run_to};
use super::setup::Setup;
use super::tally::{Outcome, Tally};
use world::{Event, World};

pub(crate) fn run(setup: &Setup, seed: u64) -> Outcome {
    let mut world = World::new(setup, seed);
    (0..setup.initiators).for_each(|who| world.begin(who));
    run_to(setup.run_ns(), world)
}

impl Simulated for World<'_> {
    type Event = Event;

    fn calendar(&mut self) -> &mut Calendar<Event> {
        &mut self.calendar
    }

    fn counted(&mut self) -> (&mut Tally, impl ExactSizeIterator<Item = &Disk>) {
        (&mut self.tally, self.targets.iter().map(|target| &target.disk))
    }

    fn into_tally(self) -> Tally {
        self.tally
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask(asking) => self.ask_again(asking),
            Event::Request { asking, target } => self.request(asking, target),
            Event::Choose(asking) => self.choose(asking),
            Event::Answer { chunk, target, id, chosen } => self.answer(chunk, target, (id, chosen)),
            Event::Send { chunk, transfer } => self.send(chunk, transfer),
            Event::Frame { chunk, transfer, bytes } => self.frame(chunk, transfer, bytes),
            Event::Ack { chunk, delivery } => self.ack(chunk, delivery),
            Event::Missed(asking) => self.missed(asking),
            Event::GetRequest(chunk) => self.get_request(chunk),
            Event::GetAccept { chunk, target } => self.get_accept(chunk, target),
            Event::Part { chunk, left_bytes, is_whole } => self.part(chunk, left_bytes, is_whole),
            Event::GetMissed(chunk) => self.get_missed(chunk),
        }
    }
}

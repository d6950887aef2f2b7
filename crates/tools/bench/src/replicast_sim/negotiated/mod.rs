//! Replicast-M and Replicast-H: targets bid, and initiators choose (Replicast §II, §III, §IV), by
//! the cores of `reservation`.
//!
//! ```text
//!   initiator ──request──▶ nine targets of a group      control messages have a tenth of the link, and never wait
//!             ◀──bids─────
//!             ──accept───▶ all nine: three are chosen (M), or as many as follow each other (H, which then asks the others again)
//!             ══frames═══▶ M: once to all three; H: to one after the other
//!             ◀──acks───── each when it has written
//! ```
//!
//! `control` has the negotiation, `data` the chunks, `reads` gets.

mod control;
mod data;
mod reads;
mod simulation;

use super::disk::Disk;
use super::event_queue::EventQueue;
use super::metrics::{Metrics, Outcome};
use super::run::{Simulated, run_to};
use super::setup::Setup;
use simulation::{Event, Simulation};

pub(crate) fn run(setup: &Setup, seed: u64) -> Outcome {
    let mut simulation = Simulation::new(setup, seed);
    (0..setup.initiators).for_each(|who| simulation.begin(who));
    run_to(setup.run_ns(), simulation)
}

impl Simulated for Simulation<'_> {
    type Event = Event;

    fn events(&mut self) -> &mut EventQueue<Event> {
        &mut self.events
    }

    fn metrics_and_disks(&mut self) -> (&mut Metrics, impl ExactSizeIterator<Item = &Disk>) {
        (&mut self.metrics, self.targets.iter().map(|target| &target.disk))
    }

    fn into_metrics(self) -> Metrics {
        self.metrics
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

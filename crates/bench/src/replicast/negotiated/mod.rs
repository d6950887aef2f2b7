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

use super::setup::Setup;
use super::tally::Outcome;
use world::{Event, World};

pub(crate) fn run(setup: &Setup, seed: u64) -> Outcome {
    let mut world = World::new(setup, seed);
    for who in 0..setup.initiators {
        world.begin(who);
    }
    let end_ns = setup.run_ns();
    while let Some(event) = world.calendar.next(end_ns) {
        world.tally.look(world.calendar.now_ns(), world.targets.iter().map(|target| &target.disk));
        handle(&mut world, event);
    }
    world.tally.look(end_ns, world.targets.iter().map(|target| &target.disk));
    world.tally.outcome(world.calendar.passed())
}

fn handle(world: &mut World<'_>, event: Event) {
    match event {
        Event::Ask(asking) => world.ask_again(asking),
        Event::Request { asking, target } => world.request(asking, target),
        Event::Choose(asking) => world.choose(asking),
        Event::Answer { chunk, target, id, chosen } => world.answer(chunk, target, (id, chosen)),
        Event::Send { chunk, transfer } => world.send(chunk, transfer),
        Event::Frame { chunk, transfer, bytes } => world.frame(chunk, transfer, bytes),
        Event::Ack { chunk, delivery } => world.ack(chunk, delivery),
        Event::Missed(asking) => world.missed(asking),
        Event::GetRequest(chunk) => world.get_request(chunk),
        Event::GetAccept { chunk, target } => world.get_accept(chunk, target),
        Event::Part { chunk, left_bytes, is_whole } => world.part(chunk, left_bytes, is_whole),
        Event::GetMissed(chunk) => world.get_missed(chunk),
    }
}

//! `nicekv sim --objects`: simulates object storage.

use crate::{Outcome, Violation, remember};
use nicekv_sim::objects::{self, OBJECT_PLANTS, ObjectReport};
use std::ops::RangeInclusive;
use std::time::Instant;

pub(crate) fn run(seeds: RangeInclusive<u64>, only: Option<u64>, plant: Option<&str>) -> Outcome {
    match plant {
        None => run_seeds(seeds),
        Some("list") => {
            OBJECT_PLANTS.iter().for_each(|plant| crate::say(plant.name));
            Ok(())
        }
        Some(name) => hunt(name, only),
    }
}

fn run_seeds(seeds: RangeInclusive<u64>) -> Outcome {
    let began = Instant::now();
    let mut sum = ObjectReport::default();
    let mut runs = 0;
    for seed in seeds {
        let replay = format!("nicekv sim --objects --seed {seed}");
        remember(&replay);
        let report = objects::run(objects::draw(seed), seed);
        crate::check(&report.violations, &replay)?;
        runs += 1;
        sum.put += report.put;
        sum.got += report.got;
        sum.deleted += report.deleted;
        sum.unknown += report.unknown;
        sum.events += report.events;
        sum.rounds += report.rounds;
        sum.collected += report.collected;
        sum.crashes += report.crashes;
        sum.lost += report.lost;
        sum.older += report.older;
        sum.reshaped += report.reshaped;
        sum.put_again += report.put_again;
        sum.surplus += report.surplus;
    }
    let seconds = began.elapsed().as_secs_f64();
    say!("{runs} runs in {seconds:.1} s");
    say!("{} events, {:.0} events/s on one core", sum.events, sum.events as f64 / seconds);
    say!(
        "{} objects put, {} got, {} deleted, {} ops with unknown outcome",
        sum.put,
        sum.got,
        sum.deleted,
        sum.unknown
    );
    say!(
        "{} rounds of garbage collection, {} copies of chunks deleted, {} crashes",
        sum.rounds,
        sum.collected,
        sum.crashes
    );
    say!(
        "{} targets lost for good, {} disks replaced by older copies, {} changes of groups, {} chunks put again by targets, {} surplus copies dropped",
        sum.lost,
        sum.older,
        sum.reshaped,
        sum.put_again,
        sum.surplus
    );
    Ok(())
}

fn hunt(name: &str, only: Option<u64>) -> Outcome {
    let plant = objects::find(name)
        .ok_or_else(|| format!("no plant {name:?}; `--objects --plant list` prints all names"))?;
    let replay = |seed| format!("nicekv sim --objects --plant {name} --seed {seed}");
    let Some((seed, violation)) = plant.hunt(only, |seed| remember(&replay(seed))) else {
        say!("not found within {} seeds", only.map_or(objects::SEEDS_MAX, |_| 1));
        return Ok(());
    };
    say!("violation: {violation}");
    say!("replay: {}", replay(seed));
    Err(Violation(format!("{name} was found by seed {seed}")).into())
}

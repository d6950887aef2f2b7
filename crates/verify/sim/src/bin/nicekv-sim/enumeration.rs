//! `nicekv sim --enumerate`

use crate::{Outcome, check, remember, say};
use nicekv_sim::enumerate::{self, Depth, SCRIPTS, Script};
use nicekv_sim::explore::parts::{CHAINS, GETS, UPDATES};
use nicekv_sim::explore::{World, explore};
use std::time::Instant;

/// `--quick` samples one in this many of the points for a second fault, and for a third.
const QUICK: u64 = 53;
/// Bound of an exploration; a tiny cluster has fewer states.
const STATES_MAX: usize = 3_000_000;

pub(super) fn run(only: Option<&str>, quick: bool, traces: bool) -> Outcome {
    let (name, faults) = match only.map(|only| only.split_once(':').unwrap_or((only, ""))) {
        Some((name, faults)) => (Some(name), faults),
        None => (None, ""),
    };
    let scripts: Vec<&Script> =
        SCRIPTS.iter().filter(|script| name.is_none_or(|name| script.name == name)).collect();
    if scripts.is_empty() {
        let names: Vec<&str> = SCRIPTS.iter().map(|script| script.name).collect();
        return Err(format!("the scripts are {}", names.join(", ")).into());
    }
    if !faults.is_empty() {
        return replay(scripts[0], faults, traces);
    }
    let every = if quick { QUICK } else { 1 };
    for script in scripts {
        visit(script, Depth { pairs: Some(every), triples: Some(every) })?;
    }
    if name.is_none() {
        visit_states(quick)?;
    }
    Ok(())
}

fn replay(script: &Script, faults: &str, traces: bool) -> Outcome {
    let parsed = enumerate::parse_faults(faults).ok_or("faults are given as EVENT.FAULT+EVENT.FAULT")?;
    let command = format!("nicekv sim --enumerate --only {}:{faults}", script.name);
    remember(&command);
    let report = enumerate::replay(script, &parsed, traces.then_some(say))?;
    check(&report.violations, &command)?;
    say!("nothing is wrong");
    Ok(())
}

fn visit(script: &Script, depth: Depth) -> Outcome {
    remember(&format!("nicekv sim --enumerate --only {}", script.name));
    let began = Instant::now();
    let counts = enumerate::enumerate(script, depth);
    let seconds = began.elapsed().as_secs_f64();
    let runs = counts.singles + counts.pairs + counts.triples;
    say!(
        "{:14} {} points: {} singles, {} pairs, {} triples, {runs} runs; {} events in {seconds:.1} s",
        script.name,
        counts.points,
        counts.singles,
        counts.pairs,
        counts.triples,
        counts.events
    );
    let Some((violation, faults)) = counts.violation else { return Ok(()) };
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    check(&[violation], &format!("nicekv sim --enumerate --only {}:{}", script.name, faults.join("+")))
}

/// Every state of three replicas with one key and two clients.
fn visit_states(quick: bool) -> Outcome {
    let multicast = UPDATES.iter().chain(GETS).map(|part| (part, World::new as fn(_, _) -> _));
    let chains = CHAINS.iter().map(|part| (part, World::of_chain as fn(_, _) -> _));
    for (part, world) in multicast.chain(chains) {
        for bounds in part.bounds.iter().take(if quick { 1 } else { usize::MAX }) {
            let seen = explore(world((part.script)(), *bounds), STATES_MAX);
            say!("{:20} {bounds:?}: {} states, {} ends judged", part.name, seen.states, seen.ends);
            if let Some((violation, steps)) = seen.violation {
                let steps: String = steps.iter().map(|step| format!("\n  {step:?}")).collect();
                check(&[format!("{violation}\nafter{steps}")], "nicekv sim --enumerate")?;
            }
        }
    }
    Ok(())
}

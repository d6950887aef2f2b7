//! `nicekv lab power-loss`: kills all processes at once while clients write, and checks that
//! nothing acknowledged is missing.
//!
//! ```text
//!   start ──▶ ready ──▶ writers ──▶ SIGKILL to every process ──▶ start ──▶ ready ──▶ every acknowledged key is read ──▶ again
//! ```
//!
//! SIGKILL does not lose what a process has handed to the kernel. So this tests what is written
//! before a reply is sent, and how all processes recover together. Loss of data that was not synced
//! is tested in `store` and `sim`.
//!
//! Each writer puts new keys of its own. After each of them it puts the same last key again, which
//! must finally hold the newest acknowledged number or a later one.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nicekv_history::model::{Change, When};
use nicekv_history::{Action, Call};
use nicekv_proto::{KeyspaceId, OpId, Status};
use nicekv_testkit::Random;

use crate::arguments::{ControlArguments, NetworkArguments, PowerLossArguments};
use crate::clients::Client;
use crate::error::{LabError, Result};
use crate::launch::{last_log_line, start_all};
use crate::plan::Roles;
use crate::process::kill_together;
use crate::scope::Scope;
use crate::test_lab::{TestLab, TestLabOptions};
use crate::wait::{Progress, fail_if, interruption};

/// Number of writers. Half of them use the gateways.
const WRITERS: u64 = 6;
/// Minimum and maximum writing time before the power loss, in milliseconds.
const WRITING_MS: (u64, u64) = (20, 400);
/// Maximum number of missing keys that are printed.
const NAMED_MAX: usize = 10;

/// The acknowledged puts of a writer.
#[derive(Debug, Default)]
struct Written {
    /// The numbers of its own keys.
    numbers: Vec<u64>,
    /// The newest acknowledged number in its last key.
    last: Option<u64>,
}

fn own_key(round: u32, writer: u64, number: u64) -> String {
    format!("power-{round}-{writer}-{number}")
}

fn last_key(round: u32, writer: u64) -> String {
    format!("power-{round}-{writer}-last")
}

/// Runs the rounds; exit code 1 if a put is missing.
pub(crate) fn run(base: &Scope, arguments: &PowerLossArguments, roles: Roles<'_>) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(|| nicekv_runtime::now().boot_ns % 1_000_000);
    let NetworkArguments { switch, fabric, .. } = arguments.network;
    println!("power-loss --times {} --seed {seed} --switch {switch} --fabric {fabric}", arguments.times);
    let interrupted = interruption()?;
    let options = TestLabOptions {
        further: &[],
        spares: 0,
        control: ControlArguments::default(),
        network: arguments.network,
    };
    let lab = TestLab::up(base, "power-loss", options, roles, &interrupted)?;
    let mut random = Random::new(seed);
    let (mut acknowledged, mut rounds) = (0, Vec::new());
    for round in 1..=arguments.times {
        let failed = |error: LabError| {
            eprintln!("nicekv: round {round} of seed {seed}: {error}");
        };
        let writing = Duration::from_millis(random.between(WRITING_MS.0, WRITING_MS.1));
        let result = lose_power(&lab, round, writing, &mut random, &interrupted)
            .and_then(|written| Ok((missing_keys(&lab, round, &written)?, written)));
        let (missing, written) = match result {
            Ok(done) => done,
            Err(error) if interrupted.load(Ordering::Relaxed) => return Err(error),
            Err(error) => {
                failed(error);
                return Ok(lab.keep());
            }
        };
        acknowledged += written.iter().map(|written| written.numbers.len()).sum::<usize>();
        println!(
            "round {round}: power loss after {} ms, {acknowledged} keys acknowledged so far, {} missing",
            writing.as_millis(),
            missing.len()
        );
        if !missing.is_empty() {
            eprintln!("nicekv: missing: {}", missing[..missing.len().min(NAMED_MAX)].join(", "));
            return Ok(lab.keep());
        }
        rounds.push(written);
    }
    // Checks all rounds so far: keys of earlier rounds must have survived the later ones, too.
    let mut missing = Vec::new();
    for (round, written) in (1..).zip(&rounds) {
        missing.extend(missing_keys(&lab, round, written)?);
    }
    println!(
        "seed {seed}: {} times, {acknowledged} keys acknowledged, {} missing",
        arguments.times,
        missing.len()
    );
    if missing.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("nicekv: missing: {}", missing[..missing.len().min(NAMED_MAX)].join(", "));
    Ok(lab.keep())
}

/// Lets clients write for a while, kills all processes, and starts them again. Returns what was
/// acknowledged.
fn lose_power(
    lab: &TestLab,
    round: u32,
    writing: Duration,
    random: &mut Random,
    interrupted: &AtomicBool,
) -> Result<Vec<Written>> {
    let stopped = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let stopped = &stopped;
                scope.spawn(move || write(lab, round, writer, stopped))
            })
            .collect();
        std::thread::sleep(writing);
        let killed = kill_everything(lab, random);
        // Stops the writers first, so that they do not write to the new processes.
        stopped.store(true, Ordering::Relaxed);
        let started = killed.and_then(|()| {
            start_all(&lab.scope, &mut lab.state()?, interrupted, &mut Progress::of("lab power-loss"))
        });
        let written = writers
            .into_iter()
            .map(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let written: Result<Vec<Written>> = written.collect();
        started.and(written)
    })?;
    fail_if(interrupted)?;
    lab.wait_until_whole(interrupted)?;
    Ok(written)
}

/// Kills all processes, in random order.
fn kill_everything(lab: &TestLab, random: &mut Random) -> Result<()> {
    let mut hosts = lab.state()?.hosts;
    for index in (1..hosts.len()).rev() {
        hosts.swap(index, random.below(index as u64 + 1) as usize);
    }
    let processes: Vec<_> = hosts.iter().filter_map(|host| host.process).collect();
    if kill_together(&processes)? {
        return Ok(());
    }
    let ended = hosts.iter().find(|host| host.process.is_some_and(|process| !process.is_alive()));
    let host = ended.map_or(hosts[0].name, |host| host.name);
    Err(LabError::Ended { host, log_line: last_log_line(&lab.scope, host) })
}

/// Puts keys until `stopped`.
fn write(lab: &TestLab, round: u32, writer: u64, stopped: &AtomicBool) -> Result<Written> {
    let mut client = if writer < WRITERS / 2 { lab.native_client(writer)? } else { lab.resp_client(writer) };
    let mut written = Written::default();
    for number in 0.. {
        if stopped.load(Ordering::Relaxed) {
            break;
        }
        if put(&mut client, &own_key(round, writer, number), number)? {
            written.numbers.push(number);
        }
        if stopped.load(Ordering::Relaxed) {
            break;
        }
        if put(&mut client, &last_key(round, writer), number)? {
            written.last = Some(number);
        }
    }
    Ok(written)
}

/// Puts a number. Returns whether it was acknowledged.
fn put(client: &mut Client, key: &str, number: u64) -> Result<bool> {
    let change = Change::Set(number.to_string().into_bytes());
    let action = Action::Update { op: OpId::NONE, condition: When::Always, return_old: false, change };
    let Call { answered, .. } = client.call(KeyspaceId::DEFAULT, key.as_bytes(), action)?;
    Ok(answered.is_some_and(|(_, answer)| answer.status == Status::Ok))
}

/// The acknowledged keys of a round that are missing or have an old value.
fn missing_keys(lab: &TestLab, round: u32, written: &[Written]) -> Result<Vec<String>> {
    let mut client = lab.native_client(0)?;
    let mut missing = Vec::new();
    for (writer, written) in (0..).zip(written) {
        for number in &written.numbers {
            let key = own_key(round, writer, *number);
            if read(&mut client, &key)? != Some(*number) {
                missing.push(key);
            }
        }
        let key = last_key(round, writer);
        let found = read(&mut client, &key)?;
        if found < written.last {
            missing.push(format!("{key} (found {found:?}, acknowledged {:?})", written.last));
        }
    }
    Ok(missing)
}

/// The number in a key; `None` if the key is absent or cannot be read.
fn read(client: &mut Client, key: &str) -> Result<Option<u64>> {
    let Call { answered, .. } = client.call(KeyspaceId::DEFAULT, key.as_bytes(), Action::Get)?;
    let value = answered.and_then(|(_, answer)| answer.value);
    Ok(value.and_then(|value| String::from_utf8(value).ok()?.parse().ok()))
}

//! `nicekv object gc`: shows garbage collection, or runs it.

use super::chunk_status::{describe_round, removed};
use crate::admin::{answer, ask_for};
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::output::print;
use nicekv_metadata::{ChunksStatus, Status};
use nicekv_runtime::control_plane::AdminRequest;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(100);

/// `nicekv object gc`
#[derive(clap::Args)]
pub struct GcArguments {
    /// Run two rounds now and wait for all targets that are up; without this flag, show the last round
    ///
    /// A put of an object that takes longer than both rounds may have to be repeated.
    #[arg(long)]
    now: bool,
    /// Timeout in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS", requires = "now")]
    timeout: u64,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

pub(super) fn run(arguments: &GcArguments) -> Result<(), Failure> {
    let purpose = if arguments.now { Purpose::Change } else { Purpose::Read };
    let endpoint = discovery::find(&arguments.endpoint, purpose)?;
    let before = chunks(&endpoint)?;
    if !arguments.now {
        return print(describe_round(&before).as_bytes());
    }
    // Two rounds, because a round spares the chunks of the round before: their object may not have
    // its name yet.
    let until = Instant::now() + Duration::from_secs(arguments.timeout);
    let between = collect(&endpoint, until, arguments.timeout)?;
    let after = collect(&endpoint, until, arguments.timeout)?;
    // Reports from before the first round may be older than the last put, so the larger count is
    // used.
    let most = if between.held() > before.held() { &between } else { &before };
    print(format!("{}{}", removed(most, &after), describe_round(&after)).as_bytes())
}

/// Runs one round; returns the status afterwards.
fn collect(endpoint: &[SocketAddrV4], until: Instant, seconds: u64) -> Result<ChunksStatus, Failure> {
    let round: u64 = ask_for(endpoint, &AdminRequest::CollectChunks)?;
    loop {
        std::thread::sleep(POLL);
        let after = chunks(endpoint)?;
        if after.round >= round && after.is_adopted && after.unswept().next().is_none() {
            return Ok(after);
        }
        if Instant::now() > until {
            let names: Vec<&str> = after.unswept().map(|target| target.name.as_str()).collect();
            let why = match after.is_adopted {
                true => format!("pending at {}", names.join(", ")),
                false => "not all partitions have adopted it".into(),
            };
            return Err(Failure::Operation(format!(
                "round {round} is not done after {seconds} s and continues in the background: {why}"
            )));
        }
    }
}

fn chunks(endpoint: &[SocketAddrV4]) -> Result<ChunksStatus, Failure> {
    let status: Status = answer(endpoint, &AdminRequest::Status)?;
    status.chunks.ok_or_else(|| {
        let create = "`nicekv keyspace create objects --chunks multicast` creates one";
        Failure::Environment(format!("no keyspace holds objects; {create}"))
    })
}

//! `nicekv object gc`: how garbage collection stands, and a round of it now.

use super::chunk_status::{removed, standing};
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
    /// Begin a round, and then another one, and wait until all targets that are there have done their part; without this, show how the last one stands
    ///
    /// An object that is being put meanwhile, and takes longer than that, may have to be put again.
    #[arg(long)]
    now: bool,
    /// Seconds to wait at most
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
        return print(standing(&before).as_bytes());
    }
    // What was put in the round before the present one is not collected in it: its object may get its name yet.
    let until = Instant::now() + Duration::from_secs(arguments.timeout);
    let between = collect(&endpoint, until, arguments.timeout)?;
    let after = collect(&endpoint, until, arguments.timeout)?;
    // A report from before the first round may be older than the last put.
    let most = if between.held() > before.held() { &between } else { &before };
    print(format!("{}{}", removed(most, &after), standing(&after)).as_bytes())
}

/// A round; how it stands when it is done.
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
                false => "not all partitions of names go by it".into(),
            };
            return Err(Failure::Operation(format!(
                "round {round} goes on after {seconds} s, and nothing is lost by that: {why}"
            )));
        }
    }
}

fn chunks(endpoint: &[SocketAddrV4]) -> Result<ChunksStatus, Failure> {
    let status: Status = answer(endpoint, &AdminRequest::Status)?;
    status.chunks.ok_or_else(|| {
        let create = "`nicekv keyspace create objects --chunks multicast` makes one";
        Failure::Environment(format!("no keyspace has names of objects; {create}"))
    })
}

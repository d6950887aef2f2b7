//! Waits until the metadata service has spread hot keys, or has removed what was spread.

use crate::error::{BenchError, Result};
use crate::lab::Lab;
use crate::load::native::NativeLoad;
use crate::load::{Limits, Measured};
use nicekv_runtime::Stop;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Interval between two questions, each of which takes longer than this.
const POLL: Duration = Duration::from_millis(25);
/// Time limit until keys are spread, or removed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until `holds` is true of the status of the first switch's hot keys. Returns how many
/// periods of the policy ended meanwhile.
pub(crate) fn wait_for(lab: &Lab, stop: &Stop, what: &str, holds: impl Fn(&Value) -> bool) -> Result<u64> {
    let (began, mut first) = (Instant::now(), None);
    loop {
        let status = lab.status()?;
        let switch = &status["hot"]["switches"][0];
        if let Some(periods) = switch["periods"].as_u64() {
            let first = *first.get_or_insert(periods);
            if holds(switch) {
                return Ok(periods - first);
            }
        }
        if stop.is_stopped() {
            return Err(BenchError::Interrupted);
        }
        if began.elapsed() > TIMEOUT {
            return Err(BenchError::Failed(format!("{what}: {}", status["hot"])));
        }
        std::thread::sleep(POLL);
    }
}

/// The same while all `loads` run.
pub(crate) fn wait_under_load(
    (lab, stop): (&Lab, &Stop),
    loads: &mut [NativeLoad],
    ask: impl Fn(&mut NativeLoad, Limits<'_>) -> Result<Measured> + Copy + Send,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Result<u64> {
    let enough = Stop::new();
    let limits = Limits { duration: 2 * TIMEOUT, stop: &enough };
    std::thread::scope(|scope| {
        let runs: Vec<_> = loads.iter_mut().map(|load| scope.spawn(move || ask(load, limits))).collect();
        let took = wait_for(lab, stop, what, holds);
        enough.stop();
        for run in runs {
            match run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                // It was stopped above.
                Ok(_) | Err(BenchError::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        took
    })
}

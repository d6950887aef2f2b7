//! Making a key hot, and waiting until the metadata service shows what comes of it.

use crate::error::{BenchError, Result};
use crate::lab::Lab;
use crate::load::native::NativeLoad;
use crate::load::{Limits, Measured};
use nicekv_runtime::Stop;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Between two looks: asking takes longer than that.
const POLL: Duration = Duration::from_millis(25);
/// Until keys are spread, or gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many periods of the policy ended until this held of what is told of hot keys of the first switch.
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
        if began.elapsed() > PATIENCE {
            return Err(BenchError::Failed(format!("{what}: {}", status["hot"])));
        }
        std::thread::sleep(POLL);
    }
}

/// The same while clients ask.
pub(crate) fn until(
    (lab, stop): (&Lab, &Stop),
    loads: &mut [NativeLoad],
    ask: impl Fn(&mut NativeLoad, Limits<'_>) -> Result<Measured> + Copy + Send,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Result<u64> {
    let enough = Stop::new();
    let limits = Limits { duration: 2 * PATIENCE, stop: &enough };
    std::thread::scope(|scope| {
        let runs: Vec<_> = loads.iter_mut().map(|load| scope.spawn(move || ask(load, limits))).collect();
        let took = wait_for(lab, stop, what, holds);
        enough.stop();
        for run in runs {
            match run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                // As it was told.
                Ok(_) | Err(BenchError::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        took
    })
}

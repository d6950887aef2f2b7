//! Helpers that tests of several crates share.
//!
//! * [`Random`] and [`Queue`]: random numbers and simulated time, for the simulator, the lab's
//!   chaos, and tests with a network of their own;
//! * [`needs`]: external programs. A test that needs one begins with it, and does nothing if the
//!   program is missing:
//!
//! ```no_run
//! if !nicekv_testkit::needs(&["redis-server"], "replies_are_those_of_redis") {
//!     return;
//! }
//! ```

mod programs;
mod queue;
mod random;

pub use programs::{is_installed, needs, not_run, package};
pub use queue::Queue;
pub use random::Random;

/// Whether a slow test runs, as in `.ci/long`. If not, prints that it is skipped.
pub fn runs_slow(test: &str) -> bool {
    if !runs_long() {
        not_run("NICEKV_TESTS=long", test);
    }
    runs_long()
}

/// Whether tests run in full, as in `.ci/long`: all seeds, all bounds. Otherwise they run a sample
/// that takes a minute.
pub fn runs_long() -> bool {
    std::env::var_os("NICEKV_TESTS").is_some_and(|value| value == "long")
}

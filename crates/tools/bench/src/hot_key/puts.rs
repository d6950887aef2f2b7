//! Puts of one key, one after the other, and how long each takes.

use crate::error::{BenchError, Result};
use crate::latencies::Latencies;
use crate::load::driver::Driver;
use crate::load::{ANSWER_TIMEOUT, Limits, check_done, submit_request};
use crate::workload::Step;
use nicekv_client::{Config, Keyspace, Request};
use nicekv_lab::topology::Host;
use nicekv_proto::{Expiry, Operation};
use nicekv_runtime::{new_client_id, now};
use std::net::SocketAddrV4;
use std::time::Instant;

/// Puts the value that the key has already, so that concurrent gets can check it. The socket
/// belongs to the calling thread's network namespace.
pub(super) fn run(host: Host, keyspace: &Keyspace, step: Step, limits: Limits<'_>) -> Result<Latencies> {
    let system = || BenchError::system("open a client's socket");
    let config = Config::new(new_client_id().map_err(system())?, *keyspace);
    let mut driver = Driver::bind(SocketAddrV4::new(host.address(), 0), config).map_err(system())?;
    let (key, value, began, mut latencies) = (step.key(), step.value(), Instant::now(), Latencies::default());
    while began.elapsed() < limits.duration {
        if limits.stop.is_stopped() {
            return Err(BenchError::Interrupted);
        }
        let asked = now();
        let request = Request::update(&key, Operation::Set { value: &value, expiry: Expiry::Never });
        submit_request(&mut driver.core, asked, keyspace.id, request, ANSWER_TIMEOUT)?;
        while driver.core.in_flight() > 0 {
            driver.turn()?;
            while let Some(completion) = driver.core.poll_event() {
                check_done("a put", completion.result)?;
            }
        }
        latencies.record(now().boot_ns - asked.boot_ns);
    }
    Ok(latencies)
}

//! Checks once a second whether the other instances of the metadata service answer. An instance
//! that is down has no visible effect until the last one fails, so it must be reported.

use crate::control_plane::AdminRequest;
use crate::{Stop, admin};
use nicekv_metadata::PeerStatus;
use nicekv_proto::Duration;
use std::net::SocketAddrV4;
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

/// Interval between rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a request to one address.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

/// Checks `others` (names and addresses) on a thread of its own until the stop, and sends the
/// changes after each round.
pub(super) fn watch(
    stop: &Stop,
    others: Vec<(String, Vec<SocketAddrV4>)>,
) -> std::io::Result<Receiver<Vec<PeerStatus>>> {
    let (sender, receiver) = mpsc::channel();
    if others.is_empty() {
        return Ok(receiver);
    }
    let stop = stop.clone();
    // The thread is not joined: an address that does not answer would delay the stop, and with it
    // the election of the next leader.
    std::thread::Builder::new().name("metadata-peers".into()).spawn(move || {
        let began = Instant::now();
        let mut answered_at = vec![began; others.len()];
        let _ = stop.every(INTERVAL, || {
            let failures: Vec<Option<String>> = std::thread::scope(|scope| {
                let ask = |addresses| {
                    std::thread::Builder::new().spawn_scoped(scope, move || failure_of(addresses))
                };
                let asked: Vec<_> = others.iter().map(|(_, addresses)| ask(addresses)).collect();
                let ended = |asked: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match asked {
                    Ok(thread) => thread.join().unwrap_or_default(),
                    Err(error) => Some(format!("not asked: there is no thread for it ({error})")),
                };
                asked.into_iter().map(ended).collect()
            });
            let now = Instant::now();
            let peers = others.iter().zip(failures).zip(&mut answered_at).map(|((other, why), answered)| {
                let (name, addresses) = other.clone();
                if why.is_none() {
                    *answered = now;
                }
                let silent = why.map(|why| ((now - *answered).as_millis() as u64, why));
                PeerStatus { name, addresses, silent }
            });
            // The service may have stopped.
            let _ = sender.send(peers.collect());
        });
    })?;
    Ok(receiver)
}

/// If the instance answers at none of its addresses, returns the error of the first one.
fn failure_of(addresses: &[SocketAddrV4]) -> Option<String> {
    let mut first = None;
    for address in addresses {
        match admin::ask_one(*address, &AdminRequest::ClusterInfo, TIMEOUT) {
            Ok(_) => return None,
            Err(error) => first = first.or(Some(admin::reason(&error, TIMEOUT))),
        }
    }
    first
}

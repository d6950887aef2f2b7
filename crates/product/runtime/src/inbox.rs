//! Inboxes: threads of one process pass datagrams to each other in memory, not through the kernel.
//!
//! ```text
//!   send ─ is there an inbox at the address? ─ yes ─▶ Inbox, bounded ─ its thread sleeps? ─▶ wake
//!                                            └ no ──▶ socket
//! ```
//!
//! The owner of an inbox keeps its socket for all other senders. Like a socket buffer, a full inbox
//! drops datagrams, and the protocols retry.

use crate::{Message, Waker};
use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Most bytes in an inbox: the size that is requested for socket buffers.
const INBOX_BYTES_MAX: usize = 4 << 20;

/// The inboxes of a process, by address; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalNetwork(Arc<RwLock<HashMap<SocketAddrV4, Arc<Inbox>>>>);

#[derive(Debug)]
struct Inbox {
    datagrams: Mutex<Datagrams>,
    /// The owner sleeps, or is about to sleep: the sender must wake it.
    is_asleep: AtomicBool,
    waker: Waker,
}

/// Datagrams, concatenated.
#[derive(Debug, Default)]
struct Datagrams {
    bytes: Vec<u8>,
    /// For each datagram: sender, and end in `bytes`.
    ends: Vec<(SocketAddrV4, usize)>,
}

impl Datagrams {
    /// Adds a datagram; returns `false` if the inbox is full.
    fn push(&mut self, from: SocketAddrV4, bytes: &[u8]) -> bool {
        let has_room = self.bytes.len() + bytes.len() <= INBOX_BYTES_MAX;
        if has_room {
            self.bytes.extend_from_slice(bytes);
            self.ends.push((from, self.bytes.len()));
        }
        has_room
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        // Releases memory after a burst.
        self.bytes.shrink_to(INBOX_BYTES_MAX / 16);
        self.ends.shrink_to(INBOX_BYTES_MAX / 1024);
    }
}

impl Inbox {
    /// Ignores lock poisoning: a thread that panics with the lock loses at most one datagram.
    fn datagrams(&self) -> MutexGuard<'_, Datagrams> {
        self.datagrams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalNetwork {
    /// Creates an inbox for `address`; senders wake its thread with `waker`. The inbox is removed
    /// when the port is dropped.
    pub(crate) fn join(&self, address: SocketAddrV4, waker: Waker) -> LocalPort {
        let inbox = Inbox { datagrams: Mutex::default(), is_asleep: AtomicBool::new(false), waker };
        let own = Arc::new(inbox);
        self.0.write().expect("no holder of this lock panics").insert(address, own.clone());
        LocalPort { network: self.clone(), address, own, received: Datagrams::default() }
    }

    /// Puts datagrams from `from` into the inbox at `to`. Returns how many were lost, or `None` if
    /// there is no inbox.
    pub(crate) fn deliver<'a>(
        &self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        datagrams: impl Iterator<Item = &'a [u8]>,
    ) -> Option<usize> {
        let inboxes = self.0.read().expect("no holder of this lock panics");
        let inbox = inboxes.get(&to)?;
        let mut waiting = inbox.datagrams();
        let lost = datagrams.filter(|bytes| !waiting.push(from, bytes)).count();
        drop(waiting);
        if inbox.is_asleep.swap(false, Ordering::SeqCst) {
            inbox.waker.wake();
        }
        Some(lost)
    }
}

/// The owner's side of an inbox.
#[derive(Debug)]
pub(crate) struct LocalPort {
    network: LocalNetwork,
    address: SocketAddrV4,
    own: Arc<Inbox>,
    received: Datagrams,
}

impl LocalPort {
    /// Passes all datagrams to `handle` and removes them.
    pub(crate) fn receive(&mut self, mut handle: impl FnMut(Message<'_>)) {
        self.own.is_asleep.store(false, Ordering::SeqCst);
        self.received.clear();
        std::mem::swap(&mut *self.own.datagrams(), &mut self.received);
        let Datagrams { bytes, ends } = &mut self.received;
        let mut begin = 0;
        for (from, end) in ends {
            handle(Message { from: *from, destination: None, bytes: &mut bytes[begin..*end] });
            begin = *end;
        }
    }

    /// Whether there are datagrams. If there are none and the thread is about to sleep (`sleeps`),
    /// the next sender wakes it.
    pub(crate) fn is_left(&self, sleeps: bool) -> bool {
        if sleeps {
            self.own.is_asleep.store(true, Ordering::SeqCst);
        }
        // The lock is taken after `is_asleep` was set: a sender that adds a datagram after this
        // check sees the flag.
        !self.own.datagrams().ends.is_empty()
    }
}

impl Drop for LocalPort {
    /// Removes the inbox.
    fn drop(&mut self) {
        self.network.0.write().expect("no holder of this lock panics").remove(&self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{readable, wait};
    use std::net::Ipv4Addr;

    fn address(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
    }

    fn received(port: &mut LocalPort) -> Vec<(SocketAddrV4, Vec<u8>)> {
        let mut all = Vec::new();
        port.receive(|message| all.push((message.from, message.bytes.to_vec())));
        all
    }

    #[test]
    fn inbox_delivers_once_in_order_to_its_owner() {
        let network = LocalNetwork::default();
        let mut port = network.join(address(1), Waker::new().unwrap());
        assert_eq!(network.deliver(address(7), address(2), [&b"lost"[..]].into_iter()), None);
        for datagrams in [[&b"one"[..], b""], [b"two", b"three"]] {
            assert_eq!(network.deliver(address(7), address(1), datagrams.into_iter()), Some(0));
        }
        let from = |bytes: &[u8]| (address(7), bytes.to_vec());
        assert_eq!(received(&mut port), [b"one", &b""[..], b"two", b"three"].map(from));
        assert_eq!(received(&mut port), []);
        drop(port);
        assert_eq!(network.deliver(address(7), address(1), [&b"late"[..]].into_iter()), None);
    }

    #[test]
    fn full_inbox_drops_and_counts() {
        let network = LocalNetwork::default();
        let mut port = network.join(address(1), Waker::new().unwrap());
        let datagram = vec![0; 1 << 10];
        let many = || std::iter::repeat_n(datagram.as_slice(), INBOX_BYTES_MAX / datagram.len() + 2);
        assert_eq!(network.deliver(address(7), address(1), many()), Some(2));
        assert_eq!(received(&mut port).len(), INBOX_BYTES_MAX / datagram.len());
        assert_eq!(network.deliver(address(7), address(1), [&b"again"[..]].into_iter()), Some(0));
        assert_eq!(received(&mut port).len(), 1);
        port.receive(|_| ());
        assert!(port.received.bytes.capacity() <= INBOX_BYTES_MAX / 16);
    }

    #[test]
    fn only_sleeping_owners_are_woken() {
        let (network, waker) = (LocalNetwork::default(), Waker::new().unwrap());
        let mut port = network.join(address(1), waker.clone());
        network.deliver(address(7), address(1), [&b"awake"[..]].into_iter());
        let mut descriptors = [readable(&waker)];
        wait(&mut descriptors, Some(0)).unwrap();
        assert!(!crate::is_ready(&descriptors[0]));
        let count = 10_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..count {
                    let bytes = u32::to_be_bytes(number);
                    network.deliver(address(7), address(1), [&bytes[..]].into_iter());
                }
            });
            // The datagram of the check above is counted, too.
            let mut seen = 0;
            while seen <= count as usize {
                // No deadline: a lost wake-up would hang the test.
                if !port.is_left(true) {
                    wait(&mut [readable(&waker)], None).unwrap();
                    waker.clear();
                }
                seen += received(&mut port).len();
            }
        });
    }
}

//! Thread of the metadata service: runs its core, UDP to and from nodes, and TCP to and from switch
//! agents and operators.
//!
//! ```text
//!  nodes ◀── UDP ──▶ ┌──────────┐ ──Persist──▶ Keeper, a thread: StateFile (compare, write, fsync, rename) of a single instance;
//!                    │ Metadata │ ◀─Persisted──                   or SharedStore (an election, and etcd) of several
//!  agents ◀─ TCP ──▶ └──────────┘ ◀─ TCP ──▶ admin commands
//! ```
//!
//! An instance that does not lead has no core: it ignores nodes, keeps agents connected, and tells
//! commands which other instances exist.
//!
//! A step is persisted before any message that depends on it is sent (R13): the core yields such
//! messages only after [`Metadata::handle_storage`].

mod admin_commands;
mod connections;
mod etcd;
mod keeper;
mod listening;
mod lookups;
mod other_releases;
mod peers;
mod shared;
mod state_file;
mod tls;

pub use connections::VISITORS_MAX;
pub use etcd::{Etcd, EtcdConfig, EtcdError};
pub use keeper::{Alone, Keeper, KeeperError};
pub use shared::SharedStore;
pub use state_file::{MemoryState, StateFile, StateFileError, peek};
pub use tls::{EtcdTls, Pem, TlsError};

use crate::inquiry::{Inquirer, Inquiries};
use crate::{DatagramCounters, Left, PollFd, Stop, UdpEndpoint, Waker, is_ready, now, readable, wait};
use connections::Connections;
use nicekv_metadata::{
    Config, ControlPlane, ElectionEvent, Metadata, Persisted, StateStore, Status, StorageRequest, SwitchId,
};
use nicekv_proto::{Duration, Durations, HeaderLayout, Now};
use other_releases::Protocol;
use std::io;
use std::net::{SocketAddrV4, TcpListener};
use thiserror::Error;

/// Most batches that are received before decisions are made.
const RECEIVE_ROUNDS_MAX: usize = 8;
/// Interval at which a standby instance checks its connections for timeouts.
const STANDBY_TICK: Duration = Duration::from_secs(1);

/// Why the metadata service has failed.
#[derive(Debug, Error)]
pub enum MetadataError {
    /// The service's sockets have failed.
    #[error("the metadata service's sockets: {0}")]
    Io(#[from] io::Error),
    /// A step could not be persisted.
    #[error("the metadata service's state: {0}")]
    Storage(Box<dyn std::error::Error + Send + Sync>),
}

/// Statistics of the metadata service and the cluster.
#[derive(Clone, Debug)]
pub struct MetadataObservation {
    /// State of the cluster; `None` if this instance does not lead.
    pub status: Option<Status>,
    /// State of this instance.
    pub control_plane: ControlPlane,
    /// Number of messages received from other releases.
    pub other_version: u64,
    /// Histogram of the time that it takes to persist a step.
    pub persists: Durations,
    /// Counters of the service's socket.
    pub datagrams: DatagramCounters,
}

/// Queries the statistics of the metadata service.
pub type MetadataInquirer = Inquirer<(), MetadataObservation>;

/// A metadata service that is ready to run.
pub struct MetadataService<K> {
    /// `Some` while the instance leads, or has not learned yet that it was deposed.
    core: Option<Metadata>,
    /// Configuration of the core that is created when the instance is elected.
    config: Option<Config>,
    keeper: K,
    endpoint: UdpEndpoint,
    listeners: Vec<TcpListener>,
    connections: Connections,
    /// Names and addresses of the other instances.
    others: Vec<(String, Vec<SocketAddrV4>)>,
    inquiries: Inquiries<(), MetadataObservation>,
    persists: Durations,
    /// When persisting the current step began.
    persist_began_ns: u64,
}

impl MetadataService<Alone> {
    /// A single instance. `core` was created from the state in `store`. `endpoint` serves nodes;
    /// `listeners` serve operators and the agents of the named switches.
    pub fn new(
        core: Metadata,
        store: impl StateStore<Error: Into<KeeperError>> + Send + 'static,
        endpoint: UdpEndpoint,
        listeners: Vec<TcpListener>,
        switches: Vec<(String, SwitchId)>,
    ) -> io::Result<Self> {
        Ok(Self::made(Some(core), None, Alone::start(store)?, endpoint, (listeners, switches)))
    }
}

impl<K: Keeper> MetadataService<K> {
    /// One of several instances. It leads while `keeper` has elected it.
    pub fn standing_by(
        config: Config,
        keeper: K,
        endpoint: UdpEndpoint,
        listeners: Vec<TcpListener>,
        switches: Vec<(String, SwitchId)>,
    ) -> Self {
        Self::made(None, Some(config), keeper, endpoint, (listeners, switches))
    }

    fn made(
        core: Option<Metadata>,
        config: Option<Config>,
        keeper: K,
        endpoint: UdpEndpoint,
        (listeners, switches): (Vec<TcpListener>, Vec<(String, SwitchId)>),
    ) -> Self {
        let (connections, inquiries) = (Connections::new(switches), Inquiries::default());
        let persists = Durations::default();
        Self {
            core,
            config,
            keeper,
            endpoint,
            listeners,
            connections,
            others: Vec::new(),
            inquiries,
            persists,
            persist_began_ns: 0,
        }
    }

    /// Sets the instance's name, and the names and addresses of all instances including this one,
    /// for commands.
    #[must_use]
    pub fn known_as(mut self, name: &str, all: Vec<(String, Vec<SocketAddrV4>)>) -> Self {
        let (instance, store) = (name.to_owned(), self.keeper.name().to_owned());
        let instances = all.iter().flat_map(|(_, addresses)| addresses.clone()).collect();
        self.others = all.into_iter().filter(|(other, _)| other != name).collect();
        self.connections.control_plane =
            ControlPlane { instance, store, instances, ..ControlPlane::default() };
        self
    }

    /// Lets other threads query the service.
    pub fn inquirer(&self) -> MetadataInquirer {
        self.inquiries.inquirer()
    }

    /// Serves until `stop` or a failure.
    pub fn run(mut self, stop: &Stop) -> Result<(), MetadataError> {
        let waker = Waker::new()?;
        stop.register(&waker);
        self.inquiries.begin(&waker);
        self.keeper.register(&waker);
        let peers = peers::watch(stop, std::mem::take(&mut self.others))?;
        while !stop.is_stopped() {
            self.sleep(&waker)?;
            waker.clear();
            self.follow_keeper()?;
            self.receive()?;
            let now = crate::now();
            for listener in &self.listeners {
                self.connections.accept(now, listener)?;
            }
            self.connections.control_plane.outage = self
                .keeper
                .outage()
                .map(|(since_ns, why)| (now.boot_ns.saturating_sub(since_ns) / 1_000_000, why));
            self.connections.control_plane.other_releases = self.connections.other_releases.heard(now);
            if let Some(peers) = peers.try_iter().last() {
                self.connections.control_plane.peers = peers;
            }
            self.connections.receive(now, self.core.as_mut());
            if let Some(core) = &mut self.core
                && core.next_deadline().is_some_and(|deadline_ns| deadline_ns <= now.boot_ns)
            {
                core.handle_deadline(now);
            }
            self.decide()?;
            if let Some(core) = &mut self.core {
                self.endpoint.send_with(|out| core.poll_transmit(out))?;
            }
            self.connections.send(now, self.core.as_mut());
            self.inquiries.answer(|()| MetadataObservation {
                status: self.core.as_ref().filter(|core| !core.is_overdue()).map(Metadata::status),
                control_plane: self.connections.control_plane.clone(),
                other_version: self.connections.other_releases.count(),
                persists: self.persists,
                datagrams: self.endpoint.counters(),
            });
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        for _ in 0..RECEIVE_ROUNDS_MAX {
            // The clock is read after receiving. Otherwise, after a pause of the process, leases
            // would seem to have been granted earlier.
            let (core, other_releases, mut received_at) =
                (&mut self.core, &mut self.connections.other_releases, None);
            let left = self.endpoint.receive(|message| {
                let now = *received_at.get_or_insert_with(crate::now);
                if let Some(version) = HeaderLayout::other_version(message.bytes) {
                    other_releases.hear(now, (*message.from.ip()).into(), Protocol::Wire, version);
                }
                if let Some(core) = core {
                    core.handle_datagram(now, message.from, message.bytes);
                }
            })?;
            if left != Left::More {
                break;
            }
        }
        Ok(())
    }

    fn sleep(&mut self, waker: &Waker) -> io::Result<()> {
        let fixed = [readable(&self.endpoint), readable(waker)];
        let listeners = self.listeners.iter().map(readable);
        let mut descriptors: Vec<PollFd<'_>> =
            fixed.into_iter().chain(listeners).chain(self.connections.interests()).collect();
        // A standby instance, too, must close connections that time out.
        let deadline_ns = match &self.core {
            Some(core) => core.next_deadline(),
            None => Some(now().after(STANDBY_TICK)),
        };
        wait(&mut descriptors, deadline_ns)?;
        let ready: Vec<bool> = descriptors[2 + self.listeners.len()..].iter().map(is_ready).collect();
        drop(descriptors);
        self.connections.note_ready(&ready);
        Ok(())
    }

    /// Lets the core decide until it has nothing more to persist or send.
    fn decide(&mut self) -> Result<(), MetadataError> {
        loop {
            if let Some(core) = &mut self.core {
                core.handle_batch_end(now());
                if let Some(StorageRequest::Persist { version, bytes }) = core.poll_storage() {
                    self.persist_began_ns = now().boot_ns;
                    self.keeper.persist(version, bytes).map_err(MetadataError::Storage)?;
                }
            }
            if !self.follow_keeper()? {
                return Ok(());
            }
        }
    }

    /// Processes the keeper's events. Returns whether there were any.
    fn follow_keeper(&mut self) -> Result<bool, MetadataError> {
        let mut has_news = false;
        while let Some(event) = self.keeper.poll().map_err(MetadataError::Storage)? {
            has_news = true;
            self.handle(now(), event)?;
        }
        if let Some(core) = &mut self.core {
            core.handle_leadership(now(), self.keeper.exclusive_until_ns());
        }
        Ok(has_news)
    }

    fn handle(&mut self, now: Now, event: ElectionEvent) -> Result<(), MetadataError> {
        match (event, &mut self.core) {
            (ElectionEvent::Elected { state }, _) => {
                let config = self.config.clone().expect("only a standby instance is elected");
                let core = Metadata::new(config, state.as_deref(), now);
                let mut core = core.map_err(|error| MetadataError::Storage(error.into()))?;
                self.connections.announce_agents(now, &mut core);
                self.core = Some(core);
            }
            (ElectionEvent::Persisted { version }, Some(core)) => {
                self.persists.count_ns(now.boot_ns - self.persist_began_ns);
                core.handle_storage(now, Persisted { version });
            }
            (ElectionEvent::Persisted { .. }, None) => {}
            (ElectionEvent::Deposed, core) => *core = None,
        }
        Ok(())
    }
}

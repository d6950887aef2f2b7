//! A thread of the gateway. Each thread has its own connections and its own client (see `shared`).
//!
//! ```text
//!         ┌─────────────────────────── epoll ◀──────────────────────────────┐
//!         ▼                                                                  │
//!   new connections ─▶ datagrams ─▶ completions ─▶ commands of every ready   │
//!                                   connection ─▶ datagrams out, in batches ─┴▶ replies out, one write per connection
//! ```
//!
//! The gets of a pipeline are answered by several nodes. Replies wait for each other briefly
//! ([`DELAY_MAX`](writing)) and share a write, the most expensive step.
//!
//! Connections are watched edge-triggered, so a connection that is held back (its pipeline is full,
//! or its peer does not read) causes no further events. Its remaining work is remembered in
//! `queue`.

mod answers;
mod closing;
mod handshaking;
mod held_connections;
mod monitors;
mod new_connections;
mod subscriptions;
mod writing;

use crate::acceptor::Acceptor;
use crate::config::GatewayConfig;
use crate::connection::{Connection, Progress};
use crate::handshakes::Handshakes;
use crate::hub::Hub;
use crate::keyspaces::{FollowedKeyspaces, KnownKeyspaces};
use crate::limits::{LARGE_BYTES_MIN, READ_BYTES, THREADS_MAX};
use crate::listeners::{LISTENER, Listeners, TLS_LISTENER};
use crate::memory::{MemoryGovernor, ThreadMemory};
use crate::observation::GatewayMonitor;
use crate::requests::{Origins, Requests, TurnGets};
use crate::shared::{Member, ServerState, ThreadState};
use crate::shared_users::SharedUsers;
use nicekv_client::{ClientCore, Config};
use nicekv_proto::{ClientId, Duration, Now};
use nicekv_redis::limits::SHORT_BYTES_MAX;
use nicekv_redis::table::COMMANDS;
use nicekv_runtime::{BusyPoll, Left, Stop, Uplink, Waker, keep_large_buffers_apart, now, renew_client_id};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use slab::Slab;
use std::collections::HashMap;
use std::hash::RandomState;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const UPLINK: u64 = 1;
const WAKER: u64 = 2;
const FIRST_CONNECTION: u64 = 4;

/// Maximum events per `epoll_wait`.
const EVENTS_MAX: usize = 1_024;
/// Maximum batches of datagrams received in one turn.
const RECEIVE_ROUNDS_MAX: usize = 8;
/// A connection that is idle for this time frees its unused memory, at the latest after twice this
/// time.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// One thread of a RESP server, with its own client.
pub struct Gateway {
    timeout: Duration,
    /// Only one of the threads has listeners.
    acceptors: Vec<Acceptor>,
    uplink: Uplink,
    waker: Waker,
    epoll: OwnedFd,
    core: ClientCore,
    keyspaces: FollowedKeyspaces,
    connections: Slab<Connection>,
    memory: ThreadMemory,
    origins: Origins,
    gets: TurnGets,
    hub: Hub,
    member: Member,
    hasher: RandomState,
    /// Connections to serve (`Connection::queued`).
    queue: Vec<usize>,
    /// Connections that are served in this turn.
    turn: Vec<usize>,
    /// Connections with a command that waits for room in the window.
    window_queue: Vec<usize>,
    /// Connections whose replies are delayed (`Connection::delayed`), and until when.
    delayed: Vec<usize>,
    delayed_until_ns: u64,
    /// Slots of connections with queued memory requests, by the numbers of these.
    memory_queue: HashMap<u64, usize>,
    /// When to check for slow peers; `None` while no request for memory is queued.
    check_peers_ns: Option<u64>,
    busy_poll: BusyPoll,
    handshakes: Handshakes,
    /// Version of the users that connections were last checked against.
    users_version: u64,
    /// Connections that take no commands for a while (`Connection::is_listed`), and when the first
    /// of them may continue.
    held: Vec<usize>,
    held_until_ns: Option<u64>,
    /// When to look for idle connections; `None` if all have already freed their unused memory.
    sweep_ns: Option<u64>,
}

impl Gateway {
    /// A gateway with one thread. The caller binds the listeners, so that it can report a port that
    /// is in use. `uplink`: the link of the gateway's client to the store.
    pub fn new(
        listeners: impl Into<Listeners>,
        uplink: impl Into<Uplink>,
        config: GatewayConfig,
    ) -> io::Result<Self> {
        let uplinks = vec![(config.client.client, uplink.into())];
        Ok(Self::threads(listeners, uplinks, &config)?.remove(0))
    }

    /// A gateway with several threads. Each has an uplink, and an id for its client. The caller
    /// [runs](Self::run) each on a thread. Limits hold for all threads together.
    pub fn threads(
        listeners: impl Into<Listeners>,
        uplinks: Vec<(ClientId, Uplink)>,
        config: &GatewayConfig,
    ) -> io::Result<Vec<Self>> {
        assert!((1..=THREADS_MAX).contains(&uplinks.len()), "a gateway has 1 to {THREADS_MAX} threads");
        assert!(config.large_bytes_max >= LARGE_BYTES_MIN, "large_bytes_max has room for a value");
        // When a large buffer is freed, its memory returns to the system at once.
        keep_large_buffers_apart();
        let wakers = uplinks.iter().map(|_| Waker::new()).collect::<io::Result<Vec<_>>>()?;
        let listeners = listeners.into();
        let server = Arc::new(ServerState {
            port: listeners.port()?,
            tls: listeners.tls(config)?,
            is_protected: config.protected_mode,
            started_unix_ms: now().unix_ms,
            connections_max: config.connections_max,
            memory: Arc::new(MemoryGovernor::new(
                config.memory_bytes_max,
                config.large_bytes_max,
                wakers.clone(),
            )),
            value_bytes_max: config.client.value_bytes_max,
            keyspaces: KnownKeyspaces::new(config.client.keyspaces.clone()),
            users: SharedUsers::new(config.users.clone()).map_err(io::Error::other)?,
            threads: wakers.iter().map(|waker| ThreadState::new(waker.clone(), COMMANDS.len())).collect(),
            ..ServerState::default()
        });
        let in_flight_max = config.client.in_flight_max.div_ceil(uplinks.len());
        let mut listeners = Some(listeners);
        let thread = |(index, ((client, uplink), waker)): (usize, ((ClientId, Uplink), Waker))| {
            let member = Member { server: server.clone(), index };
            let auto_read_bytes_max = SHORT_BYTES_MAX;
            let jitter_seed = client.0;
            let client =
                Config { client, in_flight_max, jitter_seed, auto_read_bytes_max, ..config.client.clone() };
            Self::thread(listeners.take().unwrap_or_default(), uplink, waker, member, client, config.timeout)
        };
        uplinks.into_iter().zip(wakers).enumerate().map(thread).collect()
    }

    /// The list of keyspaces, which all threads share.
    pub fn keyspaces(&self) -> KnownKeyspaces {
        self.member.server.keyspaces.clone()
    }

    /// A handle to observe the gateway, with all its threads.
    pub fn monitor(&self) -> GatewayMonitor {
        GatewayMonitor(self.member.server.clone())
    }

    fn thread(
        listeners: Listeners,
        mut uplink: Uplink,
        waker: Waker,
        member: Member,
        client: Config,
        timeout: Duration,
    ) -> io::Result<Self> {
        uplink.wake_with(&waker);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        epoll::add(&epoll, &uplink, epoll::EventData::new_u64(UPLINK), readable)?;
        epoll::add(&epoll, &waker, epoll::EventData::new_u64(WAKER), readable)?;
        let acceptors = listeners.acceptors(&epoll)?;
        Ok(Self {
            core: ClientCore::new(client),
            keyspaces: FollowedKeyspaces::default(),
            memory: ThreadMemory::new(member.clone()),
            timeout,
            acceptors,
            handshakes: Handshakes::new(member.server.threads.len()),
            uplink,
            waker,
            epoll,
            connections: Slab::new(),
            origins: Origins::default(),
            gets: TurnGets::default(),
            hub: Hub::default(),
            member,
            hasher: RandomState::new(),
            queue: Vec::new(),
            turn: Vec::new(),
            window_queue: Vec::new(),
            delayed: Vec::new(),
            delayed_until_ns: 0,
            memory_queue: HashMap::new(),
            check_peers_ns: None,
            busy_poll: BusyPoll::new(BusyPoll::DEFAULT),
            users_version: 1,
            held: Vec::new(),
            held_until_ns: None,
            sweep_ns: None,
        })
    }

    /// Serves connections until `stop`. Fails only if the gateway's own sockets fail; a connection
    /// that fails is closed.
    pub fn run(mut self, stop: &Stop) -> io::Result<()> {
        stop.register(&self.waker);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut buffer = Box::new([0; READ_BYTES]);
        while !stop.is_stopped() {
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), self.sleep().as_ref()).or_else(
                |errno| {
                    if errno == rustix::io::Errno::INTR { Ok(0) } else { Err(errno) }
                },
            )?;
            let now = now();
            for event in &events {
                match event.data.u64() {
                    token @ (LISTENER | TLS_LISTENER) => self.accept(token, now)?,
                    UPLINK => self.receive(now)?,
                    WAKER => self.on_wake(now),
                    token => self.on_event((token - FIRST_CONNECTION) as usize, event.flags),
                }
            }
            self.receive_local(now, !events.is_empty());
            renew_client_id(&mut self.core)?;
            self.keyspaces.follow(&self.member.server.keyspaces, &mut self.core);
            self.follow_users();
            self.on_time(now)?;
            self.deliver_messages();
            self.show_commands();
            self.deliver(now);
            self.follow_subscriptions(now);
            self.grant_memory(now);
            self.serve(now, &mut buffer);
            self.hub.submit(now, &mut self.core, self.timeout);
            // Requests leave before replies are written, so that replicas can work in the meantime.
            if self.leaves_at_ns().is_none_or(|at_ns| at_ns <= now.boot_ns) {
                self.gets.end_turn();
                self.uplink.send_with(|out| self.core.poll_transmit(out))?;
            }
            self.write_all(now);
        }
        Ok(())
    }

    /// Until when the requests of this turn wait for more; `None` if they leave at once.
    fn leaves_at_ns(&self) -> Option<u64> {
        self.gets.leaves_at_ns(self.core.in_flight())
    }

    /// How long to wait for events; `None`: without a timeout.
    fn sleep(&self) -> Option<Timespec> {
        const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !self.queue.is_empty() {
            return Some(NO_TIME);
        }
        if self.core.in_flight() > 0 && self.busy_poll.is_on() && !self.uplink.is_left(false) {
            std::thread::yield_now();
            return Some(NO_TIME);
        }
        if self.uplink.is_left(true) {
            return Some(NO_TIME);
        }
        let accept_ns = self.acceptors.iter().filter_map(Acceptor::next_deadline).min();
        let delayed_ns = (!self.delayed.is_empty()).then_some(self.delayed_until_ns);
        let deadlines = [
            self.core.next_deadline(),
            accept_ns,
            self.sweep_ns,
            delayed_ns,
            self.leaves_at_ns(),
            self.check_peers_ns,
            self.hub.next_deadline().filter(|_| self.core.room() > 0),
            self.held_until_ns,
            self.handshakes.next_deadline(),
        ];
        let deadline_ns = deadlines.into_iter().flatten().min()?;
        let left_ns = deadline_ns.saturating_sub(now().boot_ns);
        Some(Timespec { tv_sec: (left_ns / 1_000_000_000) as i64, tv_nsec: (left_ns % 1_000_000_000) as i64 })
    }

    fn accept(&mut self, token: u64, now: Now) -> io::Result<()> {
        let of_token = self.acceptors.iter_mut().filter(|acceptor| acceptor.token() == token);
        for acceptor in of_token {
            acceptor.accept(now, &self.epoll, &self.member.server)?;
        }
        Ok(())
    }

    /// Another thread has woken this one: it handed over connections, or the memory limit is
    /// exceeded.
    fn on_wake(&mut self, now: Now) {
        self.waker.clear();
        for new in self.member.own().take_handed_over() {
            self.add(new, now);
        }
        self.close_killed();
        self.enforce_memory_limit();
    }

    fn receive(&mut self, now: Now) -> io::Result<()> {
        for _ in 0..RECEIVE_ROUNDS_MAX {
            let core = &mut self.core;
            let left =
                self.uplink.receive(|message| core.handle_datagram(now, message.from, message.bytes))?;
            if left == Left::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// Takes the answers of nodes that run in this process. `is_busy`: this turn had other events.
    fn receive_local(&mut self, now: Now, mut is_busy: bool) {
        self.uplink.receive_local(|message| {
            is_busy = true;
            self.core.handle_datagram(now, message.from, message.bytes);
        });
        if is_busy {
            self.busy_poll.begin(now);
        }
    }

    fn on_event(&mut self, slot: usize, flags: epoll::EventFlags) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let end = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        connection.hung_up |= flags.intersects(end);
        connection.readable |= flags.intersects(end | epoll::EventFlags::IN);
        enqueue(&mut self.queue, slot, connection);
    }

    fn on_time(&mut self, now: Now) -> io::Result<()> {
        if self.core.next_deadline().is_some_and(|deadline_ns| deadline_ns <= now.boot_ns) {
            self.core.handle_deadline(now);
        }
        for acceptor in &mut self.acceptors {
            acceptor.on_time(now, &self.epoll)?;
        }
        if self.sweep_ns.is_some_and(|sweep_ns| sweep_ns <= now.boot_ns) {
            self.sweep(now);
        }
        self.close_slow_peers(now);
        self.release_held(now);
        self.expire_handshakes(now);
        Ok(())
    }

    /// Delivers answers to the commands that wait for them.
    fn deliver(&mut self, now: Now) {
        while self.deliver_one(now) {}
        if self.core.room() > 0 {
            for slot in self.window_queue.drain(..) {
                if let Some(connection) = self.connections.get_mut(slot) {
                    enqueue(&mut self.queue, slot, connection);
                }
            }
        }
    }

    /// Serves every queued connection: reads, and issues commands.
    fn serve(&mut self, now: Now, buffer: &mut [u8; READ_BYTES]) {
        self.member.own().set_client(&self.core.counters(), self.core.in_flight());
        std::mem::swap(&mut self.queue, &mut self.turn);
        if !self.turn.is_empty() && self.sweep_ns.is_none() {
            self.sweep_ns = Some(now.after(IDLE_AFTER));
        }
        let mut served = Vec::new();
        self.handshakes.begin_turn();
        for index in 0..self.turn.len() {
            let slot = self.turn[index];
            if self.must_delay_handshake(slot) {
                // The connection stays `queued`.
                self.queue.push(slot);
                continue;
            }
            let room = self.core.room();
            if self.advance(slot, now, buffer) == Progress::WindowFull {
                // Connections that used room of the window go behind those that found none.
                let list = if self.core.room() < room { &mut served } else { &mut self.window_queue };
                list.push(slot);
            }
        }
        self.window_queue.append(&mut served);
    }

    fn advance(&mut self, slot: usize, now: Now, buffer: &mut [u8; READ_BYTES]) -> Progress {
        // The connection may have been closed earlier in this turn to free memory.
        let Some(connection) = self.connections.get_mut(slot) else { return Progress::Waiting };
        (connection.queued, connection.active) = (false, true);
        if connection.wants_read()
            && let Some(bytes) = self.memory.read_bytes()
        {
            let was_handshaking = connection.stream.is_handshaking();
            connection.read(&mut buffer[..bytes]);
            if was_handshaking {
                self.after_handshake_step(slot);
            }
        }
        let Some(connection) = self.connections.get_mut(slot) else { return Progress::Waiting };
        let mut requests = Requests {
            now,
            core: &mut self.core,
            origins: &mut self.origins,
            gets: &mut self.gets,
            member: &self.member,
            hasher: &self.hasher,
            timeout: self.timeout,
            hub: &mut self.hub,
            memory_queue: &mut self.memory_queue,
        };
        connection.follow_users(&requests);
        connection.request_read_memory(slot, &mut requests);
        let progress = connection.advance(slot, &mut requests);
        connection.account(now, &self.member);
        self.memory.count(connection);
        self.note_held(slot);
        self.enforce_memory_limit();
        progress
    }
}

fn enqueue(queue: &mut Vec<usize>, slot: usize, connection: &mut Connection) {
    if !connection.queued {
        connection.queued = true;
        queue.push(slot);
    }
}

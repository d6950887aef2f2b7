//! [`ClientCore`]: keyspaces, and the datagrams that come and go.

use crate::exchange::Exchange;
use crate::in_flight::InFlight;
use crate::large::{Polled, SharedBytes};
use crate::pubsub::{Inbox, Message};
use crate::{Completion, Config, Counters, Keyspace, Request, SubmitError, Ticket};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::fragment::{FRAGMENT_BYTES, Fragment, Fragments};
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::route::leave_room;
use nicekv_proto::{
    ClientId, Datagram, DecodeError, Header, HeaderLayout, KeyOrder, KeyspaceId, Now, OpId, Replication,
};
use nicekv_transport::{Assembler, Malformed, Part, name_of};

/// Memory for incomplete replies, of which some fragments have arrived. One node may use a quarter:
/// enough for 64 replies at once.
const ASSEMBLED_BYTES_MAX: usize = 16 << 20;

/// A client of one or more keyspaces, without I/O. See the [crate documentation](crate).
///
/// Its driver owns a UDP socket and a clock, and after each input does three things:
///
/// 1. sends what [`Self::poll_transmit`] writes, until it returns `None`;
/// 2. takes completions from [`Self::poll_event`], messages from [`Self::poll_message`] and, if it limits memory, large
///    reads from [`Self::poll_pending_read`];
/// 3. waits for the next input: a datagram ([`Self::handle_datagram`]), a request ([`Self::submit`]), or the time of
///    [`Self::next_deadline`] ([`Self::handle_deadline`]).
///
/// All times are `boot_ns` of [`Now`], nanoseconds of a clock that never goes backwards. If [`Self::is_expired`], the
/// driver gives the client another id with [`Self::rename`].
///
/// Chunks of large values leave after everything else, several in a row to one address, as many as may leave at the time
/// of the last input.
///
/// ```
/// use nicekv_client::{ClientCore, Config, OPERATION_TIMEOUT, Request};
/// use nicekv_proto::placement::Vrings;
/// use nicekv_proto::{ClientId, KeyspaceId, Now};
///
/// let mut client = ClientCore::new(Config::new(ClientId::new(1_700_000_000_000, 7), Vrings::on_loopback(7400)));
/// let now = Now { boot_ns: 1_000, unix_ms: 1_700_000_000_000 };
/// let get = Request::Get { key: b"color" };
/// let ticket = client.submit(now, KeyspaceId::DEFAULT, get, now.after(OPERATION_TIMEOUT)).unwrap();
/// let mut datagram = Vec::new();
/// let vnode_address = client.poll_transmit(&mut datagram).unwrap();
/// assert_eq!(vnode_address.ip().octets()[..2], [127, 10]);
/// # let _ = ticket;
/// ```
#[derive(Clone, Debug)]
pub struct ClientCore {
    config: Config,
    /// By keyspace index: the keyspace was dropped. A new one reuses the index once no request to
    /// the dropped one is in flight.
    gone: Vec<bool>,
    pub(crate) in_flight: InFlight,
    /// A request that is being sent in fragments, its address, and whether a switch adds a chain
    /// header.
    fragments: Option<(SocketAddrV4, Fragments, bool)>,
    /// Reassembles replies from fragments.
    assembler: Assembler<SocketAddrV4>,
    inbox: Inbox,
}

impl ClientCore {
    /// A new client.
    pub fn new(config: Config) -> Self {
        let gone = alloc::vec![false; config.keyspaces.len()];
        let assembler = Assembler::new(FRAGMENT_BYTES, ASSEMBLED_BYTES_MAX);
        let in_flight = InFlight::new(&config);
        Self { in_flight, config, gone, fragments: None, assembler, inbox: Inbox::default() }
    }

    /// The client's settings. [`Config::client`] is its current id.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Replaces the list of keyspaces. They are identified by their ids, which are never reused.
    /// Requests in flight to a keyspace that is dropped are not aborted. A known keyspace keeps its
    /// settings, except [`Keyspace::holds_objects`], [`Keyspace::is_hot`] and
    /// [`Keyspace::partition_bits`], which are updated.
    pub fn set_keyspaces(&mut self, keyspaces: &[Keyspace]) {
        for (known, gone) in self.config.keyspaces.iter().zip(&mut self.gone) {
            *gone = keyspaces.iter().all(|keyspace| keyspace.id != known.id);
        }
        for keyspace in keyspaces {
            if let Some(place) = self.config.keyspaces.iter().position(|known| known.id == keyspace.id) {
                self.update_keyspace(place, keyspace);
                continue;
            }
            let is_free = |place: &usize| self.gone[*place] && !self.in_flight.has_requests_to(*place);
            let place = (0..self.gone.len()).find(is_free).unwrap_or(self.gone.len());
            self.in_flight.set_keyspace(place, keyspace, &self.config);
            if place == self.gone.len() {
                self.gone.push(false);
                self.config.keyspaces.push(*keyspace);
            }
            (self.gone[place], self.config.keyspaces[place]) = (false, *keyspace);
        }
    }

    /// Whether the keys of a keyspace are names of objects, according to the latest list of
    /// keyspaces.
    pub fn holds_objects(&self, keyspace: KeyspaceId) -> bool {
        self.config.keyspaces.iter().any(|known| known.id == keyspace && known.holds_objects)
    }

    fn update_keyspace(&mut self, place: usize, keyspace: &Keyspace) {
        let known = &mut self.config.keyspaces[place];
        known.holds_objects = keyspace.holds_objects;
        let Keyspace { is_hot, partition_bits, .. } = *keyspace;
        if (known.is_hot, known.partition_bits) != (is_hot, partition_bits) {
            (known.is_hot, known.partition_bits) = (is_hot, partition_bits);
            self.in_flight.update_keyspace(place, known);
        }
    }

    /// Counts since the client was made.
    pub fn counters(&self) -> Counters {
        self.in_flight.counters()
    }

    /// Number of requests whose completion has not been taken.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// How many requests may be submitted before [`SubmitError::WindowFull`].
    pub fn room(&self) -> usize {
        self.in_flight.room()
    }

    /// The op id of the next request.
    pub fn next_op(&self) -> OpId {
        self.in_flight.next_op()
    }

    /// Replicas have forgotten this client id (R10): every update under it would end with
    /// [`OperationError::OutcomeUnknown`](crate::OperationError::OutcomeUnknown). Call [`Self::rename`].
    pub fn is_expired(&self) -> bool {
        self.in_flight.is_expired()
    }

    /// Later requests are sent under this id, which no client has used before. Those in flight keep the old one.
    pub fn rename(&mut self, client: ClientId) {
        self.config.client = client;
        self.in_flight.rename(client);
    }

    /// Starts a request. It completes by about `deadline_ns`, or later by [`Config::extra_ns_per_byte`] for each byte of a
    /// large value.
    ///
    /// # Errors
    /// The request exceeds a limit, is of a kind that the keyspace does not support, or names an unknown keyspace; or too
    /// many requests are in flight. Nothing was sent.
    pub fn submit(
        &mut self,
        now: Now,
        keyspace: KeyspaceId,
        request: Request<'_>,
        deadline_ns: u64,
    ) -> Result<Ticket, SubmitError> {
        self.submit_shared(now, keyspace, request, deadline_ns, None)
    }

    /// As [`Self::submit`]. If the value of a set is all of `shared`, and long, it is not copied: the client holds `shared`
    /// until the replicas have the value.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn submit_shared(
        &mut self,
        now: Now,
        keyspace: KeyspaceId,
        request: Request<'_>,
        deadline_ns: u64,
        shared: Option<&SharedBytes>,
    ) -> Result<Ticket, SubmitError> {
        request.check_key()?;
        let mut keyspaces = self.config.keyspaces.iter().enumerate();
        let found = keyspaces.find(|(index, known)| known.id == keyspace && !self.gone[*index]);
        let keyspace = found.ok_or(SubmitError::NoSuchKeyspace { keyspace })?;
        request.check_value(request.value_limit(keyspace.1, self.config.value_bytes_max))?;
        if keyspace.1.is_hot && request.is_transaction() {
            return Err(SubmitError::TransactionOfHot);
        }
        let is_split = keyspace.1.order == KeyOrder::Range && self.in_flight.is_coordinated_by_switch();
        let request = if is_split { request } else { request.unsplit() };
        let exchange = Exchange::new(keyspace.1.replication, &request)?;
        self.in_flight.check_room()?;
        self.in_flight.set_now(now.boot_ns);
        Ok(self.in_flight.begin(now.boot_ns, keyspace, (&request, shared), exchange, deadline_ns))
    }

    /// A datagram arrived at the client's socket.
    pub fn handle_datagram(&mut self, now: Now, from: SocketAddrV4, bytes: &[u8]) {
        self.in_flight.set_now(now.boot_ns);
        match Datagram::decode(bytes) {
            Ok((header, Datagram::Bundle(bundle))) => {
                for (header, body) in bundle.datagrams(&header) {
                    self.on_answer(now, from, Datagram::of(&header, body).map(|datagram| (header, datagram)));
                }
            }
            Ok((_, Datagram::Fragment(fragment))) => self.on_fragment(now, from, &fragment),
            decoded => self.on_answer(now, from, decoded),
        }
    }

    fn on_fragment(&mut self, now: Now, from: SocketAddrV4, fragment: &Fragment<'_>) {
        let Fragment { name, count, index, bytes, .. } = *fragment;
        match self.assembler.take(now.boot_ns, from, &Part { name, count, index, bytes }) {
            Ok(Some(message)) => self.on_answer(now, from, Datagram::decode(&message)),
            Ok(None) => {}
            Err(Malformed) => self.in_flight.counters.count_malformed(from, None),
        }
    }

    fn on_answer(
        &mut self,
        now: Now,
        from: SocketAddrV4,
        decoded: Result<(Header, Datagram<'_>), DecodeError>,
    ) {
        let (header, datagram) = match decoded {
            Ok((
                header,
                datagram @ (Datagram::Reply(_)
                | Datagram::ScanPiece(_)
                | Datagram::Listening(_)
                | Datagram::QuorumHeld(_)),
            )) => (header, datagram),
            Ok((header, Datagram::Misdirected(_))) => {
                return self.in_flight.on_misdirected(now.boot_ns, header.op);
            }
            Ok((_, Datagram::Published(published))) => {
                let is_taken = self.inbox.push(&published);
                self.in_flight.counters.messages_dropped += u64::from(!is_taken);
                return;
            }
            Ok((_, Datagram::Chunk(chunk))) => return self.in_flight.on_chunk(now.boot_ns, &chunk),
            Ok((_, Datagram::TransferReport(report))) => {
                return self.in_flight.on_report(now.boot_ns, &report);
            }
            Ok((_, Datagram::DirectoryPage(page))) => {
                return self.in_flight.on_directory(now.boot_ns, from, &page);
            }
            other => return self.in_flight.counters.count_malformed(from, other.err()),
        };
        self.in_flight.on_answer(now.boot_ns, from, header.op, &datagram);
    }

    /// Takes the next message that was published to a channel or pattern that this client [subscribes](Request::Listen) to.
    pub fn poll_message(&mut self) -> Option<Message> {
        self.inbox.poll()
    }

    /// The time of [`Self::next_deadline`] has come: sends again, or gives up, what is due.
    pub fn handle_deadline(&mut self, now: Now) {
        self.in_flight.set_now(now.boot_ns);
        self.in_flight.on_deadline(now.boot_ns);
    }

    /// When to call [`Self::handle_deadline`], in nanoseconds of the boot-time clock; `None` if nothing is due.
    pub fn next_deadline(&self) -> Option<u64> {
        self.in_flight.next_deadline()
    }

    /// Writes the next datagram to `out`, replacing its content, and returns its address.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        if let Some(to) = self.poll_fragment(out) {
            return Some(to);
        }
        let Self { in_flight, config, .. } = self;
        if let Some(to) = in_flight.poll_query(out) {
            return Some(to);
        }
        let to = loop {
            if let Some(to) = in_flight.poll_transmit(out) {
                break to;
            }
            // Small requests go first. A transfer may queue its update to be sent again.
            match in_flight.poll_large(out)? {
                Polled::Sent(to) => return Some(to),
                Polled::Queued => {}
            }
        };
        // Switches add a chain header to requests that are sent to a ring, not to those that are
        // sent to a node.
        let network = |address: SocketAddrV4| [address.ip().octets()[0], address.ip().octets()[1]];
        let is_ring = |ring| network(ring) == network(to);
        let mut chains = config.keyspaces.iter().filter(|known| {
            known.replication == Replication::Chain
                && (is_ring(known.vrings.unicast_ring()) || is_ring(known.vrings.multicast_ring()))
        });
        let first = HeaderLayout::peek(out).map(|header| header.keyspace.get());
        let is_for_chain = chains.any(|known| Some(known.id.0) == first);
        if out.len() > DATAGRAM_BYTES_MAX {
            let message = core::mem::take(out);
            let name = name_of(&message);
            self.fragments = Some((to, Fragments::new(message, name, None), is_for_chain));
            return self.poll_fragment(out);
        }
        if is_for_chain {
            leave_room(out);
        }
        Some(to)
    }

    fn poll_fragment(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        let (to, fragments, is_for_chain) = self.fragments.as_mut()?;
        if fragments.poll(out) {
            if *is_for_chain {
                leave_room(out);
            }
            return Some(*to);
        }
        self.fragments = None;
        None
    }

    /// Takes a request that is to read a value of more than [`Config::auto_read_bytes_max`] bytes, with the value's length.
    /// Its deadline is suspended until the read is [allowed](Self::allow_read) or [cancelled](Self::cancel). It is yielded
    /// again if the key has a longer value by then.
    pub fn poll_pending_read(&mut self) -> Option<(Ticket, usize)> {
        self.in_flight.poll_pending_read()
    }

    /// Lets a pending request read a value of up to `bytes`, within the time that it had left.
    pub fn allow_read(&mut self, now: Now, ticket: Ticket, bytes: usize) {
        self.in_flight.set_now(now.boot_ns);
        self.in_flight.allow_read(now.boot_ns, ticket, bytes);
    }

    /// A pending read will not be allowed soon. A get gives up its op and is sent again when it is allowed. An update has
    /// taken effect and keeps waiting; its previous value may be gone after 10 s.
    pub fn suspend_read(&mut self, ticket: Ticket) {
        self.in_flight.suspend_read(ticket);
    }

    /// Ends a request: its answer is no longer wanted, or (`limit`) the driver has room for a value of `limit` bytes only. It
    /// completes with the error for that, or as if its deadline had passed.
    pub fn cancel(&mut self, ticket: Ticket, limit: Option<usize>) {
        self.in_flight.cancel(ticket, limit);
    }

    /// Takes the value of the last completion, without a copy. `None` if it is no longer than a datagram.
    pub fn take_value(&mut self) -> Option<Vec<u8>> {
        self.in_flight.take_delivered()
    }

    /// Takes the next completion. The index of its ticket may be used again from now on.
    pub fn poll_event(&mut self) -> Option<Completion<'_>> {
        self.in_flight.poll_event()
    }
}

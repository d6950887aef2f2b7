//! The client: keyspaces in front of [`InFlight`].

use crate::bundler::Bundler;
use crate::exchange::Exchange;
use crate::heard::{Heard, Message};
use crate::in_flight::InFlight;
use crate::large::{Polled, SharedBytes};
use crate::slot::State;
use crate::{Completion, Config, Counters, Keyspace, Request, SubmitError, Ticket};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::fragment::{FRAGMENT_BYTES, Fragment, Fragments};
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::route::leave_room;
use nicekv_proto::{
    ClientId, Datagram, DecodeError, Form, Header, HeaderLayout, KeyOrder, KeyspaceId, Now, OpId, Replication,
};
use nicekv_transport::{Assembler, Malformed, Part, name_of};

/// Memory for replies of which fragments have come: of one node a quarter, so that of 64 that come at once all have room.
const ASSEMBLED_BYTES_MAX: usize = 16 << 20;

/// A client of one or more keyspaces. See the [crate documentation](crate) and the driver's duties below.
///
/// The driver calls `handle_*` for input, then sends what [`Self::poll_transmit`] yields, takes what [`Self::poll_event`] yields, and
/// calls [`Self::handle_deadline`] no later than at [`Self::next_deadline`]. `now` must never go backwards. When
/// [`Self::is_expired`] says so, it gives the client another id.
///
/// Chunks of large values come out of [`Self::poll_transmit`] behind all else, several in a row to one address, as many as may leave at the time of the last input:
/// it is to be polled after [`Self::handle_deadline`], too.
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
    /// By the index of the keyspace, whether it is no more. Its place is taken by another one when nothing of it is under way.
    gone: Vec<bool>,
    pub(crate) in_flight: InFlight,
    bundler: Bundler,
    /// A request that is being sent in fragments, where it goes, and whether a switch fills in a chain header.
    fragments: Option<(SocketAddrV4, Fragments, bool)>,
    /// Replies of which fragments have come.
    assembler: Assembler<SocketAddrV4>,
    heard: Heard,
}

impl ClientCore {
    /// A client that has done nothing yet.
    pub fn new(config: Config) -> Self {
        let gone = alloc::vec![false; config.keyspaces.len()];
        let assembler = Assembler::new(FRAGMENT_BYTES, ASSEMBLED_BYTES_MAX);
        let (bundler, in_flight) = (Bundler::default(), InFlight::new(&config));
        Self { in_flight, config, gone, bundler, fragments: None, assembler, heard: Heard::default() }
    }

    /// Its settings; `client` is the id that it has now.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// From now on there are these keyspaces, which are known by their numbers: none is given twice. Requests that are under way to one that is no more
    /// end as they may. Of one that is known already, what is said now of its hot keys and its partitions wins over what was said before: a file may not have it, or be old.
    pub fn set_keyspaces(&mut self, keyspaces: &[Keyspace]) {
        for (known, gone) in self.config.keyspaces.iter().zip(&mut self.gone) {
            *gone = keyspaces.iter().all(|keyspace| keyspace.id != known.id);
        }
        for keyspace in keyspaces {
            if let Some(place) = self.config.keyspaces.iter().position(|known| known.id == keyspace.id) {
                self.update_keyspace(place, keyspace);
                continue;
            }
            let is_free = |place: &usize| self.gone[*place] && !self.has_requests_to(*place);
            let place = (0..self.gone.len()).find(is_free).unwrap_or(self.gone.len());
            self.in_flight.set_keyspace(place, keyspace, &self.config);
            if place == self.gone.len() {
                self.gone.push(false);
                self.config.keyspaces.push(*keyspace);
            }
            (self.gone[place], self.config.keyspaces[place]) = (false, *keyspace);
        }
    }

    /// Whether the keys of a keyspace are names of objects, as far as it has learnt.
    pub fn holds_objects(&self, keyspace: KeyspaceId) -> bool {
        self.config.keyspaces.iter().any(|known| known.id == keyspace && known.holds_objects)
    }

    fn update_keyspace(&mut self, place: usize, keyspace: &Keyspace) {
        let known = &mut self.config.keyspaces[place];
        known.holds_objects = keyspace.holds_objects;
        let Keyspace { is_hot, partition_bits, .. } = *keyspace;
        if (known.is_hot, known.partition_bits) != (is_hot, partition_bits) {
            (known.is_hot, known.partition_bits) = (is_hot, partition_bits);
            self.in_flight.set_company(place, known);
        }
    }

    fn has_requests_to(&self, keyspace: usize) -> bool {
        let mut slots = self.in_flight.slots.iter();
        slots.any(|slot| slot.keyspace == keyspace && slot.state != State::Free)
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        Counters { stragglers_refused: self.in_flight.due.stragglers.refused, ..self.in_flight.counters }
    }

    /// Requests that were submitted and whose completion has not been taken.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Requests that may be submitted now before one is refused with [`SubmitError::WindowFull`].
    pub fn room(&self) -> usize {
        self.in_flight.room()
    }

    /// The op id under which the next request is sent.
    pub fn next_op(&self) -> OpId {
        self.in_flight.next_op()
    }

    /// Replicas have told that they remember nothing of this client's id (R10), so that every update under it would end as "outcome
    /// unknown": it needs another one.
    pub fn is_expired(&self) -> bool {
        self.in_flight.is_expired
    }

    /// Sends requests from here on under another id, that no client has had before. Those in flight keep theirs, and end as they may.
    pub fn rename(&mut self, client: ClientId) {
        self.config.client = client;
        self.in_flight.rename(client);
    }

    /// Starts a request. It is answered, or fails, at about `deadline_ns` of the boot-time clock at the latest; about a large value later, as [`Config::extra_ns_per_byte`] says.
    ///
    /// # Errors
    /// The request is outside the limits, or of a kind that the keyspace has not, or the client has no such keyspace.
    pub fn submit(
        &mut self,
        now: Now,
        keyspace: KeyspaceId,
        request: Request<'_>,
        deadline_ns: u64,
    ) -> Result<Ticket, SubmitError> {
        self.submit_shared(now, keyspace, request, deadline_ns, None)
    }

    /// As [`Self::submit`]; of a set whose value is all of `kept`, a long one is not copied, and let go of when replicas need it no more.
    pub fn submit_shared(
        &mut self,
        now: Now,
        keyspace: KeyspaceId,
        request: Request<'_>,
        deadline_ns: u64,
        kept: Option<&SharedBytes>,
    ) -> Result<Ticket, SubmitError> {
        request.check_key()?;
        let mut keyspaces = self.config.keyspaces.iter().enumerate();
        let found = keyspaces.find(|(index, known)| known.id == keyspace && !self.gone[*index]);
        let keyspace = found.ok_or(SubmitError::NoSuchKeyspace { keyspace })?;
        request.check_value(request.value_limit(keyspace.1, self.config.value_bytes_max))?;
        if keyspace.1.is_hot && request.is_transaction() {
            return Err(SubmitError::TransactionOfHot);
        }
        let is_split = keyspace.1.order == KeyOrder::Range && self.in_flight.coordinator.is_switch();
        let request = if is_split { request } else { request.alone() };
        let exchange = Exchange::new(keyspace.1.replication, &request)?;
        self.in_flight.check_room()?;
        self.in_flight.due.now_ns = now.boot_ns;
        Ok(self.in_flight.begin(now.boot_ns, keyspace, (&request, kept), exchange, deadline_ns))
    }

    /// A datagram arrived at the client's socket, from there.
    pub fn handle_datagram(&mut self, now: Now, from: SocketAddrV4, bytes: &[u8]) {
        self.in_flight.due.now_ns = now.boot_ns;
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
                let is_taken = self.heard.take_in(&published);
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
        match self.in_flight.find(header.op) {
            Some(index) => {
                self.note_length(index, &datagram);
                self.in_flight.on_datagram(index, now.boot_ns, from, &datagram);
            }
            None => self.in_flight.counters.stray_replies += 1,
        }
    }

    /// An answer says how long gets are to be.
    fn note_length(&mut self, slot: u32, datagram: &Datagram<'_>) {
        let InFlight { slots, get_lengths, .. } = &mut self.in_flight;
        let slot = &slots[slot as usize];
        if let Datagram::Reply(reply) = datagram
            && slot.exchange.may_be_lengthened()
            && reply.form != Form::Large
            && slot.state != State::Reading
        {
            get_lengths[slot.keyspace].answered(reply.integer);
        }
    }

    /// Takes the next message that was published to what this client [listens](Request::Listen) to.
    pub fn poll_message(&mut self) -> Option<Message> {
        self.heard.poll()
    }

    /// Retries and gives up what is due.
    pub fn handle_deadline(&mut self, now: Now) {
        self.in_flight.due.now_ns = now.boot_ns;
        self.in_flight.coordinator.on_deadline(now.boot_ns);
        self.in_flight.on_deadline(now.boot_ns);
    }

    /// When to call [`Self::handle_deadline`], in nanoseconds of the boot-time clock.
    pub fn next_deadline(&self) -> Option<u64> {
        let asks_ns = self.in_flight.coordinator.next_deadline();
        asks_ns.into_iter().chain(self.in_flight.next_deadline()).min()
    }

    /// Writes the next datagram to `out`, which is cleared, and says where it goes.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        if let Some(to) = self.poll_fragment(out) {
            return Some(to);
        }
        let Self { bundler, in_flight, config, .. } = self;
        if let Some(to) = in_flight.coordinator.poll_query(out) {
            return Some(to);
        }
        let to = loop {
            if let Some(to) = bundler.poll(out, in_flight) {
                break to;
            }
            // What is small goes first. A transfer may have asked for its update to be sent again.
            match in_flight.poll_large(out)? {
                Polled::Sent(to) => return Some(to),
                Polled::Queued => {}
            }
        };
        // Most clients know no chains, and need not look. What goes to a node itself no switch fills.
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

    /// Takes a request that is to read a value of more than [`Config::auto_read_bytes_max`] bytes, and how many these are: it waits, without a deadline, until
    /// it is [allowed](Self::allow_read) or [given up](Self::cancel). It may be told again, if the key has a longer value by then.
    pub fn poll_pending_read(&mut self) -> Option<(Ticket, usize)> {
        self.in_flight.poll_pending_read()
    }

    /// Lets a request that waits read a value of so many bytes, within the time that it had left.
    pub fn allow_read(&mut self, now: Now, ticket: Ticket, bytes: usize) {
        self.in_flight.due.now_ns = now.boot_ns;
        self.in_flight.allow_read(now.boot_ns, ticket, bytes);
    }

    /// A request that waits is not allowed soon: if it is a get it is sent anew when it is, and takes nothing but its place until then. An update has taken effect;
    /// the value from before may be gone if it takes longer than 10 s.
    pub fn suspend_read(&mut self, ticket: Ticket) {
        self.in_flight.suspend_read(ticket);
    }

    /// Ends a request whose answer nobody waits for, or whose value is longer than its driver has room for, `limit`: with an error that says so, or as if its time was over.
    pub fn cancel(&mut self, ticket: Ticket, limit: Option<usize>) {
        self.in_flight.cancel(ticket, limit);
    }

    /// The value of the completion that was taken last, if it is longer than a datagram: whoever keeps it need not copy it.
    pub fn take_value(&mut self) -> Option<Vec<u8>> {
        self.in_flight.due.take_delivered()
    }

    /// Takes the next completion. Its ticket's index may be used again from here on.
    pub fn poll_event(&mut self) -> Option<Completion<'_>> {
        self.in_flight.poll_event()
    }
}

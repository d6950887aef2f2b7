//! A client with a simulated clock, and the datagrams that it sends.

use nicekv_client::{ClientCore, Completion, Config, OPERATION_TIMEOUT, OperationError, Outcome, Request};
use nicekv_proto::placement::Vrings;
use nicekv_proto::{ClientId, Datagram, Expiry, KeyspaceId, Now, OpId, Operation, Reply};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Source address of answers.
pub(crate) const REPLICA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7401);

pub(crate) struct World {
    pub(crate) client: ClientCore,
    pub(crate) now: Now,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(ClientId::new(1_700_000_000_000, 5), Vrings::on_loopback(7400));
        change(&mut config);
        let now = Now { boot_ns: 17_000_000_000, unix_ms: 1_700_000_000_000 };
        Self { client: ClientCore::new(config), now }
    }

    pub(crate) fn get(&mut self, key: &str) -> usize {
        let request = Request::Get { key: key.as_bytes() };
        self.client
            .submit(self.now, KeyspaceId::DEFAULT, request, self.now.after(OPERATION_TIMEOUT))
            .unwrap()
            .index()
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) -> usize {
        let operation = Operation::Set { value: value.as_bytes(), expiry: Expiry::Never };
        let request = Request::update(key.as_bytes(), operation);
        self.client
            .submit(self.now, KeyspaceId::DEFAULT, request, self.now.after(OPERATION_TIMEOUT))
            .unwrap()
            .index()
    }

    /// The datagrams that wait to be sent.
    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        let (mut all, mut out) = (Vec::new(), Vec::new());
        while self.client.poll_transmit(&mut out).is_some() {
            all.push(out.clone());
        }
        all
    }

    pub(crate) fn sent_ops(&mut self) -> Vec<OpId> {
        self.sent().iter().map(|bytes| Datagram::decode(bytes).unwrap().0.op).collect()
    }

    pub(crate) fn reply(&mut self, reply: Reply<'_>) {
        let mut out = Vec::new();
        reply.encode(&mut out);
        self.client.handle_datagram(self.now, REPLICA, &out);
    }

    /// Moves the clock to the next deadline. Returns by how much.
    pub(crate) fn advance(&mut self) -> u64 {
        let next = self.client.next_deadline().expect("something is in flight");
        let elapsed = next.saturating_sub(self.now.boot_ns);
        self.now.boot_ns = self.now.boot_ns.max(next);
        self.client.handle_deadline(self.now);
        elapsed
    }

    pub(crate) fn outcome(&mut self) -> Option<(usize, Result<Outcome, OperationError>)> {
        let Completion { ticket, result, .. } = self.client.poll_event()?;
        Some((ticket.index(), result.map(|answer| answer.outcome)))
    }
}

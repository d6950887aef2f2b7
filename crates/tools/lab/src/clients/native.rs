//! The native client: [`ClientCore`] on a socket, one op at a time.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use nicekv_client::{ClientCore, Config, Keyspace, OperationError, Outcome, Request, Scan};
use nicekv_history::{Action, Answer, Call};
use nicekv_proto::placement::{KeyOrder, match_digest};
use nicekv_proto::route::take_room;
use nicekv_proto::scan::ScanWants;
use nicekv_proto::{Form, Header, KeyspaceId, MatchRange, OpId, Status};
use nicekv_runtime::{Left, UdpEndpoint, new_client_id, now, readable, renew_client_id, wait};

/// How a request ended.
type Told<'a> = Result<nicekv_client::Answer<'a>, OperationError>;

/// Longer than every fault that heals: ops of unknown outcome make a history harder to judge.
const ANSWER_TIMEOUT_NS: u64 = 10_000_000_000;

/// A piece of a scan: of the keys in this range, between `after` and `through`, exactly the listed
/// ones existed at one moment.
pub(crate) struct Covered {
    /// When the piece was requested, and when it was answered.
    pub(crate) between: (u64, u64),
    range: MatchRange,
    order: KeyOrder,
    after: Vec<u8>,
    /// `None`: up to the end of the range.
    through: Option<Vec<u8>>,
    listed: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Covered {
    /// The result that a get of the key would have had; `None` if the piece does not cover the key.
    pub(crate) fn answer(&self, key: &[u8]) -> Option<Answer> {
        let is_before_end = self.through.as_deref().is_none_or(|through| key <= through);
        let is_of_range = self.range.contains(match_digest(self.order, key).match_value());
        (is_of_range && key > self.after.as_slice() && is_before_end).then(|| {
            let value = self.listed.get(key).cloned();
            let status = if value.is_some() { Status::Ok } else { Status::NotFound };
            let version = if value.is_some() { Answer::VERSION_NOT_TOLD } else { OpId::NONE };
            Answer { status, version, integer: 0, value, form: Form::Plain }
        })
    }
}

pub(crate) struct NativeClient {
    core: ClientCore,
    endpoint: UdpEndpoint,
    orders: BTreeMap<KeyspaceId, KeyOrder>,
}

impl NativeClient {
    /// A client with a new id, on a socket in the calling thread's network namespace. There is at
    /// least one keyspace.
    pub(crate) fn bind(keyspaces: Vec<Keyspace>) -> io::Result<Self> {
        let config = Config::new(new_client_id()?, keyspaces[0]);
        let orders = keyspaces.iter().map(|keyspace| (keyspace.id, keyspace.order)).collect();
        let core = ClientCore::new(Config { keyspaces, ..config });
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Ok(Self { core, endpoint: UdpEndpoint::bind(any)?, orders })
    }

    pub(crate) fn call(&mut self, keyspace: KeyspaceId, key: &[u8], mut action: Action) -> io::Result<Call> {
        let called = now();
        let deadline_ns = called.boot_ns + ANSWER_TIMEOUT_NS;
        let request = request(key, &action);
        self.core.submit(called, keyspace, request, deadline_ns).map_err(io::Error::other)?;
        let (sent, answer) = self.finish(answer)?;
        if let Action::Update { op, .. } = &mut action {
            *op = sent;
        }
        let answered = answer.map(|answer| (now().boot_ns, answer));
        Ok(Call { action, called: called.boot_ns, answered })
    }

    /// Lists the keys after `after`, up to `last`. If it fails, returns what it covered until then.
    pub(crate) fn scan(
        &mut self,
        keyspace: KeyspaceId,
        after: &[u8],
        last: &[u8],
    ) -> io::Result<Vec<Covered>> {
        let mut scan = Scan::new(ScanWants::Values, Some(after)).up_to(last);
        let mut covered = Vec::new();
        let order = self.orders.get(&keyspace).copied().unwrap_or_default();
        while let Some(part) = scan.unasked() {
            let (called, request) = (now(), scan.ask(part));
            let after = request.key().to_vec();
            let deadline_ns = called.boot_ns + ANSWER_TIMEOUT_NS;
            self.core.submit(called, keyspace, request, deadline_ns).map_err(io::Error::other)?;
            let (_, is_told) = self.finish(|told| {
                let Ok(told) = told else { return false };
                let between = (called.boot_ns, now().boot_ns);
                scan.take(part, told.pieces(), |piece| {
                    let entries =
                        piece.entries().map(|one| (one.key.into(), one.value.unwrap_or_default().into()));
                    let through = piece.more.then(|| piece.covered_through().unwrap_or_default().into());
                    let (range, after, listed) = (piece.range, after.clone(), entries.collect());
                    covered.push(Covered { between, range, order, after, through, listed });
                })
            })?;
            if !is_told {
                break;
            }
        }
        Ok(covered)
    }

    /// Drives the one op in flight to its end. Returns the op id under which it was last sent, and
    /// what `take` makes of the result. An op that busy replicas refused is retried under another
    /// id.
    fn finish<T>(&mut self, take: impl FnOnce(Told<'_>) -> T) -> io::Result<(OpId, T)> {
        let (mut sent, mut plain) = (OpId::NONE, Vec::new());
        loop {
            let core = &mut self.core;
            self.endpoint.send_with(|out| {
                let to = core.poll_transmit(out)?;
                // Requests to chains contain space that a switch fills (C5).
                let bytes = if take_room(out, &mut plain).is_some() { &plain } else { &*out };
                sent = Header::decode(bytes).expect("what the core has encoded").0.op;
                Some(to)
            })?;
            if let Some(completion) = self.core.poll_event() {
                return Ok((sent, take(completion.result)));
            }
            wait(&mut [readable(&self.endpoint)], self.core.next_deadline())?;
            let now = now();
            let core = &mut self.core;
            while self.endpoint.receive(|message| core.handle_datagram(now, message.from, message.bytes))?
                != Left::Nothing
            {}
            renew_client_id(&mut self.core)?;
            self.core.handle_deadline(now);
        }
    }
}

fn request<'a>(key: &'a [u8], action: &'a Action) -> Request<'a> {
    match action {
        Action::Get => Request::Get { key },
        Action::Update { condition, return_old, change, .. } => Request::Update {
            key,
            condition: condition.condition(),
            return_old: *return_old,
            operation: change.operation(),
        },
    }
}

/// `None` if the outcome is unknown, or if the op certainly had no effect.
fn answer(result: Told<'_>) -> Option<Answer> {
    let refused = |status| Answer { status, version: OpId::NONE, integer: 0, value: None, form: Form::Plain };
    match result {
        Ok(told) => {
            let status = match told.outcome {
                Outcome::Done => Status::Ok,
                Outcome::NotFound => Status::NotFound,
                Outcome::ConditionFailed => Status::ConditionFailed,
            };
            let value = told.value.map(<[u8]>::to_vec);
            Some(Answer { status, version: told.version, integer: told.integer, value, form: told.form })
        }
        Err(OperationError::NotAnInteger) => Some(refused(Status::NotAnInteger)),
        Err(OperationError::Overflow) => Some(refused(Status::Overflow)),
        Err(OperationError::ResultTooLong { .. }) => Some(refused(Status::ValueTooLong)),
        Err(_) => None,
    }
}

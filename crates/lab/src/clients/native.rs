//! The native client: [`ClientCore`] on a socket, one op at a time.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use nicekv_client::{Answer as Told, ClientCore, Config, Keyspace, OperationError, Outcome, Request};
use nicekv_history::{Action, Answer, Call};
use nicekv_runtime::{UdpEndpoint, new_client_id, now, readable, renew_client_id, wait};
use nicekv_wire::{Header, KeyspaceId, OpId, Status};

/// Longer than every fault that heals: an op whose outcome is unknown makes a history harder to judge.
const ANSWER_TIMEOUT_NS: u64 = 10_000_000_000;

pub(crate) struct NativeClient {
    core: ClientCore,
    endpoint: UdpEndpoint,
}

impl NativeClient {
    /// A client that nobody was before, on a socket of the calling thread's network namespace. There is at least one keyspace.
    pub(crate) fn bind(keyspaces: Vec<Keyspace>) -> io::Result<Self> {
        let config = Config::new(new_client_id()?, keyspaces[0]);
        let core = ClientCore::new(Config { keyspaces, ..config });
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Ok(Self { core, endpoint: UdpEndpoint::bind(any)? })
    }

    pub(crate) fn call(&mut self, keyspace: KeyspaceId, key: &[u8], mut action: Action) -> io::Result<Call> {
        let called = now();
        let deadline_ns = called.boot_ns + ANSWER_TIMEOUT_NS;
        let request = request(key, &action);
        self.core.submit(called, keyspace, request, deadline_ns).map_err(io::Error::other)?;
        let (sent, answer) = self.finish()?;
        if let Action::Update { op, .. } = &mut action {
            *op = sent;
        }
        let answered = answer.map(|answer| (now().boot_ns, answer));
        Ok(Call { action, called: called.boot_ns, answered })
    }

    /// Drives the one op in flight to its end: the op id that it was sent under last (one that replicas were too busy for is tried
    /// again under another), and what the client was told.
    fn finish(&mut self) -> io::Result<(OpId, Option<Answer>)> {
        let mut sent = OpId::NONE;
        loop {
            let core = &mut self.core;
            self.endpoint.send_with(|out| {
                let to = core.poll_transmit(out)?;
                sent = Header::decode(out).expect("what the core has encoded").0.op;
                Some(to)
            })?;
            if let Some(completion) = self.core.poll_event() {
                return Ok((sent, answer(completion.result)));
            }
            wait(&mut [readable(&self.endpoint)], self.core.next_deadline())?;
            let now = now();
            let core = &mut self.core;
            while self.endpoint.receive(|message| core.handle_datagram(now, message.from, message.bytes))? {}
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

/// `None`: the outcome is unknown, or it is known that nothing happened.
fn answer(result: std::result::Result<Told<'_>, OperationError>) -> Option<Answer> {
    let refused = |status| Answer { status, version: OpId::NONE, integer: 0, value: None };
    match result {
        Ok(told) => {
            let status = match told.outcome {
                Outcome::Done => Status::Ok,
                Outcome::NotFound => Status::NotFound,
                Outcome::ConditionFailed => Status::ConditionFailed,
            };
            let value = told.value.map(<[u8]>::to_vec);
            Some(Answer { status, version: told.version, integer: told.integer, value })
        }
        Err(OperationError::NotAnInteger) => Some(refused(Status::NotAnInteger)),
        Err(OperationError::Overflow) => Some(refused(Status::Overflow)),
        Err(OperationError::ResultTooLong { .. }) => Some(refused(Status::ValueTooLong)),
        Err(_) => None,
    }
}

//! A store in one process that answers as replicas do.

mod forms;
mod scripts;

use nicekv_numbers::Arithmetic;
use nicekv_proto::number::{LongDouble, parse_integer};
use nicekv_proto::placement::key_digest;
use nicekv_proto::publish::{Listen, ListenKind, Listening, Publish, Published};
use nicekv_proto::replication::Effect;
use nicekv_proto::scan::{Scan, ScanPiece, ScanWants, Scanned};
use nicekv_proto::transaction::{Act, Step, Taken};
use nicekv_proto::{
    Condition, Datagram, Epoch, ExpireCondition, Expiry, Form, KeyspaceId, MatchRange, OpId, Operation,
    PartitionId, Reply, Status, Update,
};
use nicekv_replica::{Registry, ScriptCall};
use nicekv_runtime::now;
use std::collections::HashMap;
use std::net::SocketAddrV4;

/// The first digest of the second partition.
const HALF: u128 = 1 << 127;

#[derive(Clone)]
struct Stored {
    value: Vec<u8>,
    version: OpId,
    expiry_ms: u64,
    form: Form,
}

/// The keys and values of all keyspaces, and a record of requests.
#[derive(Default)]
pub(crate) struct Store {
    /// The keys of the keyspace that the last request named.
    keys: HashMap<Vec<u8>, Stored>,
    /// The number of that keyspace, and the keys of the others.
    keyspace: KeyspaceId,
    other_keyspaces: HashMap<KeyspaceId, HashMap<Vec<u8>, Stored>>,
    /// Results of updates, as replicas remember them.
    pub(crate) answered: HashMap<OpId, Vec<u8>>,
    /// The keys of all requests, in the order of their first arrival.
    pub(crate) requests: Vec<Vec<u8>>,
    /// Replies to requests for keys that begin with "held"; they are sent when a request for
    /// "release" arrives.
    held: Vec<(SocketAddrV4, Vec<u8>)>,
    /// Subscribers of published messages.
    listeners: Listeners,
    /// If not 0, the seed by which requests that arrive together are reordered.
    pub(crate) disorder: u64,
}

/// The registry of subscriptions that every node has.
struct Listeners(Registry);

impl Default for Listeners {
    fn default() -> Self {
        Self(Registry::new(7))
    }
}

/// A number from 0 to `below` - 1, by xorshift, which is random enough to shuffle requests.
pub(crate) fn draw(seed: &mut u64, below: usize) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed % below as u64) as usize
}

impl Store {
    pub(crate) fn handle_all(
        &mut self,
        mut requests: Vec<(SocketAddrV4, Vec<u8>)>,
    ) -> Vec<(SocketAddrV4, Vec<u8>)> {
        let mut replies = Vec::new();
        while !requests.is_empty() {
            let mixed = self.disorder != 0;
            let index = if mixed { draw(&mut self.disorder, requests.len()) } else { 0 };
            let (from, bytes) = requests.remove(index);
            replies.append(&mut self.handle(from, &bytes));
        }
        replies
    }

    /// The replies to a request; none if its key begins with "silent".
    fn handle(&mut self, from: SocketAddrV4, bytes: &[u8]) -> Vec<(SocketAddrV4, Vec<u8>)> {
        let (header, message) = Datagram::decode(bytes).expect("the client sends valid datagrams");
        if let Some(reply) = self.answered.get(&header.op) {
            // The reply names the op. On a busy machine, the client sends a request again whose
            // reply is held.
            let is_held = self.held.iter().any(|(_, held)| held == reply);
            return if is_held { Vec::new() } else { vec![(from, reply.clone())] };
        }
        match message {
            Datagram::Listen(listen) => return self.listen(from, &listen),
            Datagram::Publish(publish) => return self.publish(from, &publish),
            _ => {}
        }
        if header.keyspace != self.keyspace {
            let keys = self.other_keyspaces.remove(&header.keyspace).unwrap_or_default();
            let before = std::mem::replace(&mut self.keys, keys);
            self.other_keyspaces.insert(std::mem::replace(&mut self.keyspace, header.keyspace), before);
        }
        let key = match &message {
            Datagram::Get(get) => get.key.to_vec(),
            Datagram::Update(update) => update.key.to_vec(),
            Datagram::Scan(scan) => scan.after.unwrap_or_default().to_vec(),
            other => panic!("{other:?}"),
        };
        self.requests.push(key.clone());
        self.remove_if_expired(&key);
        let mut reply = Vec::new();
        match message {
            Datagram::Get(get) => self.get(get.op, get.key).encode(&mut reply),
            Datagram::Update(update) => self.update(&update, &mut reply),
            Datagram::Scan(scan) => self.scan(&scan, &mut reply),
            _ => unreachable!(),
        }
        self.answered.insert(header.op, reply.clone());
        if key.starts_with(b"silent") {
            self.answered.remove(&header.op);
            return Vec::new();
        }
        if key.starts_with(b"held") {
            self.held.push((from, reply));
            return Vec::new();
        }
        let mut replies = vec![(from, reply)];
        if key == b"release" {
            replies.append(&mut self.held);
        }
        replies
    }

    /// Answers as two partitions would.
    fn listen(&mut self, from: SocketAddrV4, listen: &Listen<'_>) -> Vec<(SocketAddrV4, Vec<u8>)> {
        if listen.name.starts_with(b"silent") {
            return Vec::new();
        }
        self.listeners.0.listen(now(), listen, from).unwrap();
        let first = listen.digest.match_value();
        let last = if first < HALF { HALF - 1 } else { u128::MAX };
        if listen.kind == ListenKind::Pattern {
            assert!(first == 0 || first == HALF, "partition by partition");
        }
        let mut answer = Vec::new();
        Listening { op: listen.op, range: MatchRange::new(first, last).unwrap() }.encode(&mut answer);
        vec![(from, answer)]
    }

    /// Subscribers get the message before the publisher gets its reply, as with nodes.
    fn publish(&mut self, from: SocketAddrV4, publish: &Publish<'_>) -> Vec<(SocketAddrV4, Vec<u8>)> {
        let &Publish { keyspace, op, channel, message, .. } = publish;
        let (to, count) = match self.listeners.0.repeated(op) {
            Some(count) => (Vec::new(), count),
            None => {
                let published = Published { keyspace, op, channel, message };
                let (to, count) = self.listeners.0.publish(now(), &published).expect("few listen");
                (to.to_vec(), count)
            }
        };
        let (mut published, mut answer) = (Vec::new(), Vec::new());
        Published { keyspace, op, channel, message }.encode(&mut published);
        Reply { integer: count.into(), ..Reply::bare(op, Status::Ok) }.encode(&mut answer);
        to.into_iter().map(|to| (to, published.clone())).chain([(from, answer)]).collect()
    }

    fn remove_if_expired(&mut self, key: &[u8]) {
        let now_ms = now().unix_ms;
        if self.keys.get(key).is_some_and(|stored| stored.expiry_ms != 0 && stored.expiry_ms <= now_ms) {
            self.keys.remove(key);
        }
    }

    fn get(&self, op: OpId, key: &[u8]) -> Reply<'_> {
        match self.keys.get(key) {
            None => Reply::bare(op, Status::NotFound),
            Some(Stored { value, version, expiry_ms, form }) => Reply {
                form: *form,
                version: *version,
                expiry_ms: *expiry_ms,
                value: Some(value),
                ..Reply::bare(op, Status::Ok)
            },
        }
    }

    /// Answers as two partitions would, with at most three keys in a reply.
    fn scan(&self, scan: &Scan<'_>, reply: &mut Vec<u8>) {
        let first = scan.range.first();
        let last = if first < HALF { HALF - 1 } else { u128::MAX };
        let range = MatchRange::new(first, last.min(scan.range.last())).unwrap();
        let is_asked = |key: &&Vec<u8>| {
            range.contains(key_digest(key).match_value()) && Some(key.as_slice()) > scan.after
        };
        let mut keys: Vec<&Vec<u8>> = self.keys.keys().filter(is_asked).collect();
        keys.sort();
        let (mut listed, covered) = (Vec::new(), keys.len().min(3));
        for key in &keys[..covered] {
            Scanned { key, form: self.keys[*key].form, value: None }.append(&mut listed);
        }
        let more = covered < keys.len();
        let is_count = scan.wants == ScanWants::Count;
        let piece = ScanPiece {
            op: scan.op,
            partition: PartitionId(1),
            epoch: Epoch(1),
            range,
            more,
            count: covered as u32,
            through: more.then(|| keys[covered - 1].as_slice()),
            listed: if is_count { &[] } else { &listed },
        };
        piece.encode(reply);
    }

    /// Applies all steps of a transaction, or none.
    fn transaction(&mut self, update: &Update<'_>, steps: &[u8], reply: &mut Vec<u8>) {
        let before = self.keys.clone();
        let (mut taken, mut result) = (Vec::new(), Vec::new());
        let mut declared: Vec<&[u8]> = Vec::new();
        for Step { key, act } in Step::each(steps) {
            let version = self.keys.get(key).map_or(OpId::NONE, |stored| stored.version);
            let value =
                self.keys.get(key).map(|stored| (stored.value.clone(), stored.expiry_ms, stored.form));
            let mut answer = Taken {
                status: Status::Ok,
                effect: Effect::None,
                value_is_result: false,
                form: Form::Plain,
                value: &[],
                expiry_ms: 0,
                integer: 0,
            };
            match act {
                Act::Require(Condition::IfVersion(expected)) if expected == version => {}
                Act::Require(Condition::IfAbsent) if value.is_none() => {}
                Act::Declare => declared.push(key),
                Act::Run { unix_ms, is_read_only, source, arguments } => {
                    let keys = &std::mem::take(&mut declared);
                    let call = ScriptCall { unix_ms, is_read_only, source, keys, arguments };
                    result = scripts::run(self, update, &call);
                    answer = Taken { value_is_result: true, value: &result, ..answer };
                }
                Act::Require(Condition::IfPresent) if value.is_some() => {}
                Act::Require(_) => {
                    self.keys = before;
                    return Reply::bare(update.op, Status::ConditionFailed).encode(reply);
                }
                Act::Read => match &value {
                    Some((value, expiry_ms, form)) => {
                        let (expiry_ms, form) = (*expiry_ms, *form);
                        answer = Taken { value_is_result: true, value, form, expiry_ms, ..answer };
                    }
                    None => answer.status = Status::NotFound,
                },
                Act::Apply { operation, condition, return_old } => {
                    let step = Update { key, operation, condition, return_old, ..*update };
                    self.update(&step, &mut result);
                    let Ok((_, Datagram::Reply(told))) = Datagram::decode(&result) else { panic!("a reply") };
                    let (value_is_result, value) = (told.value.is_some(), told.value.unwrap_or_default());
                    let Reply { status, integer, expiry_ms, form, .. } = told;
                    answer = Taken { status, value_is_result, value, form, integer, expiry_ms, ..answer };
                }
            }
            answer.append(&mut taken);
        }
        Reply { value: Some(&taken), ..Reply::bare(update.op, Status::Ok) }.encode(reply);
    }

    fn update(&mut self, update: &Update<'_>, reply: &mut Vec<u8>) {
        if let Operation::Transaction(steps) = update.operation {
            return self.transaction(update, steps, reply);
        }
        let before = self.keys.get(update.key).cloned();
        let holds = match update.condition {
            Condition::Always => true,
            Condition::IfAbsent => before.is_none(),
            Condition::IfPresent => before.is_some(),
            Condition::Stamped(_) | Condition::StampedIfVersion { .. } => {
                unreachable!("gateways know no objects")
            }
            Condition::IfVersion(version) => {
                before.as_ref().map_or(OpId::NONE, |stored| stored.version) == version
            }
        };
        let mut result = Reply::bare(update.op, Status::ConditionFailed);
        let mut after = before.clone();
        let (mut shown, is_wrong) = (None, forms::is_wrong(update, before.as_ref()));
        if is_wrong {
            result.status = Status::WrongType;
        } else if holds {
            match apply(update, before.as_ref()) {
                Ok((stored, integer)) => {
                    result.status = Status::Ok;
                    result.integer = integer;
                    let tells = matches!(
                        update.operation,
                        Operation::IncrementFloat(_) | Operation::IncrementFieldFloat(_)
                    );
                    if let Some(stored) = stored.as_ref().filter(|_| tells) {
                        (shown, result.form) = (Some(stored.value.clone()), stored.form);
                    }
                    after = stored;
                }
                Err(status) => result.status = status,
            }
        }
        match after {
            Some(stored) => self.keys.insert(update.key.to_vec(), stored),
            None => self.keys.remove(update.key),
        };
        if update.return_old && !is_wrong {
            shown = before.map(|stored| stored.value);
        }
        Reply { value: shown.as_deref(), ..result }.encode(reply);
        self.remove_if_expired(update.key);
    }
}

/// The key's state after the update, and the integer of the reply.
fn apply(update: &Update<'_>, before: Option<&Stored>) -> Result<(Option<Stored>, i64), Status> {
    let expiry_before = before.map_or(0, |stored| stored.expiry_ms);
    let form = before.map_or(Form::Plain, |stored| stored.form);
    let stored = |value, expiry_ms, form| Some(Stored { value, version: update.op, expiry_ms, form });
    let store = |value: Vec<u8>, expiry_ms| stored(value, expiry_ms, form);
    match update.operation {
        Operation::Set { value, expiry } | Operation::SetHash { fields: value, expiry } => {
            let expiry_ms = match expiry {
                Expiry::Never => 0,
                Expiry::Keep => expiry_before,
                Expiry::At(at_ms) => at_ms,
            };
            Ok((stored(value.to_vec(), expiry_ms, update.operation.form()), 0))
        }
        Operation::SetLarge { .. } | Operation::AppendLarge(_) => unreachable!("values are short here"),
        Operation::Transaction(_) => unreachable!("its steps are taken one by one"),
        Operation::Delete => before.map(|_| (None, 0)).ok_or(Status::NotFound),
        Operation::Increment(delta) => {
            let value = before.map_or(Some(0), |stored| parse_integer(&stored.value));
            let sum = value.ok_or(Status::NotAnInteger)?.checked_add(delta).ok_or(Status::Overflow)?;
            Ok((store(sum.to_string().into_bytes(), expiry_before), sum))
        }
        Operation::IncrementFloat(delta) => {
            let value = LongDouble::parse(before.map_or(b"0", |stored| &stored.value));
            let sum = value.ok_or(Status::NotAFloat)?.checked_add(delta).ok_or(Status::Overflow)?;
            let text = sum.to_text().into_bytes();
            if text.len() > 1024 {
                return Err(Status::ValueTooLong);
            }
            Ok((store(text, expiry_before), 0))
        }
        Operation::Append(suffix) => {
            let value = [before.map_or(&[][..], |stored| &stored.value), suffix].concat();
            let length = value.len() as i64;
            if value.len() > 1024 {
                return Err(Status::ValueTooLong);
            }
            Ok((store(value, expiry_before), length))
        }
        Operation::Expire { at_ms, condition } => {
            let stored = before.ok_or(Status::NotFound)?;
            if !expires(condition, expiry_before, at_ms) {
                return Err(Status::ConditionFailed);
            }
            Ok((store(stored.value.clone(), at_ms.max(1)), 0))
        }
        Operation::Persist => match before {
            None => Err(Status::NotFound),
            Some(stored) if stored.expiry_ms == 0 => Err(Status::ConditionFailed),
            Some(stored) => Ok((store(stored.value.clone(), 0), 0)),
        },
        operation => {
            let (value, integer) = forms::apply(operation, before)?;
            let form = if operation.is_of_hash() { Form::Hash } else { form };
            Ok((value.and_then(|value| stored(value, expiry_before, form)), integer))
        }
    }
}

fn expires(condition: ExpireCondition, expiry_before: u64, at_ms: u64) -> bool {
    let (some, later) = (expiry_before != 0, expiry_before != 0 && at_ms > expiry_before);
    let earlier = expiry_before == 0 || at_ms < expiry_before;
    match condition {
        ExpireCondition::Always => true,
        ExpireCondition::IfNone => !some,
        ExpireCondition::IfSome => some,
        ExpireCondition::IfLater => later,
        ExpireCondition::IfEarlier => earlier,
        ExpireCondition::IfSomeAndLater => some && later,
        ExpireCondition::IfSomeAndEarlier => some && earlier,
    }
}

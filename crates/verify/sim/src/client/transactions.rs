//! Transactions of a client on co-located keys, and their results.

use crate::checker::model::{Action, Answer, Change, When};
use crate::checker::program::Program;
use crate::checker::together::{Step, Together, Told};
use crate::client::answers::not_applied;
use crate::features;
use crate::keyspace::Key;
use crate::node::START_UNIX_MS;
use crate::script_engine;
use nicekv_client::transaction::{Script, Transaction, results};
use nicekv_client::{Answer as ToldAnswer, OperationError, Outcome, Request, SubmitError};
use nicekv_proto::{Form, OpId, Status};
use nicekv_testkit::Random;
use std::collections::BTreeMap;

/// Prefix of the names of co-located keys. It is so long that ordered keys with this prefix have
/// the same match value.
pub(crate) const TAG: &[u8] = b"{kept together}-";
/// Length of a long value: two of them do not fit into a datagram.
const LONG_BYTES: usize = 800;
/// Length of some long values in runs with scripts: one does not fit into a datagram.
const LONGER_BYTES: usize = 3_000;
/// Maximum steps of a transaction.
const STEPS_MAX: u64 = 4;
/// Steps that a script counts as on the wire: its two keys, and the script.
const SCRIPT_STEPS: usize = 3;

/// How many of these keys are co-located: the leading ones with [`TAG`].
pub(crate) fn together(keys: &[Key]) -> usize {
    keys.iter().take_while(|key| key.keyspace == 0 && key.name.starts_with(TAG)).count()
}

/// The transactions of a client.
#[derive(Clone, Default)]
pub(crate) struct Transacting {
    calls: Vec<Together>,
    /// Indexes in `calls` of unanswered transactions, by the index of their ticket.
    open: BTreeMap<usize, usize>,
    /// Indexes of transactions that certainly took no effect.
    void: Vec<usize>,
}

/// Parameters by which a transaction is drawn.
pub(crate) struct Drawn<'a> {
    pub(crate) op: OpId,
    /// Number of co-located keys.
    pub(crate) keys: usize,
    /// The last version that the client has seen of each key.
    pub(crate) seen: &'a BTreeMap<usize, OpId>,
    /// Rate of sets with an expiry, per million sets.
    pub(crate) expiring: u64,
    /// Rate of updates of hash fields, per million updates.
    pub(crate) hashes: u64,
    /// Rate of scripts, per million steps.
    pub(crate) scripts: u64,
    pub(crate) at_ns: u64,
}

impl Transacting {
    /// Number of unanswered transactions.
    pub(crate) fn open_calls(&self) -> usize {
        self.open.len()
    }

    /// Whether the request with this ticket is a transaction.
    pub(crate) fn awaits(&self, ticket: usize) -> bool {
        self.open.contains_key(&ticket)
    }

    /// The transactions, except those that took no effect.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Together> {
        self.calls.iter().enumerate().filter(|(index, _)| !self.void.contains(index)).map(|(_, call)| call)
    }

    /// Submits a transaction. `name` gives the name of a key; `submit` returns the index of the
    /// ticket.
    pub(crate) fn call<'a>(
        &mut self,
        steps: Vec<Step>,
        tick: &mut u64,
        name: impl Fn(usize) -> &'a [u8],
        submit: impl FnOnce(Request<'_>) -> usize,
    ) {
        let mut transaction = Transaction::default();
        for step in &steps {
            add(&mut transaction, step, &name).expect("within limits");
        }
        let ticket = submit(transaction.request().expect("it has steps"));
        *tick += 1;
        self.open.insert(ticket, self.calls.len());
        self.calls.push(Together { steps, called: *tick, answered: None });
    }

    /// Takes the answer to a transaction.
    pub(crate) fn take(
        &mut self,
        ticket: usize,
        told: Result<ToldAnswer<'_>, OperationError>,
        tick: &mut u64,
    ) {
        let index = self.open.remove(&ticket).expect("the ticket is awaited");
        let told = match told {
            Ok(ToldAnswer { outcome: Outcome::ConditionFailed, .. }) => Told::Ended,
            Ok(answer) => Told::Taken(taken(&self.calls[index].steps, &answer)),
            Err(error) => {
                let status = not_applied(error);
                assert_ne!(
                    status,
                    Some(Status::CrossPartition),
                    "keys with the same hash tag are in one partition"
                );
                self.void.extend(status.map(|_| index));
                return;
            }
        };
        *tick += 1;
        self.calls[index].answered = Some((*tick, told));
    }
}

fn add<'a>(
    transaction: &mut Transaction,
    step: &Step,
    name: impl Fn(usize) -> &'a [u8],
) -> Result<(), SubmitError> {
    match step {
        Step::Require { key, condition } => transaction.require(name(*key), condition.condition()),
        Step::Take { key, action } => transaction.add(&request(name(*key), action)),
        Step::Run { program, keys: (from, to), unix_ms, .. } => {
            let keys = &[name(*from), name(*to)];
            let (source, arguments) = (script_engine::source(*program), &[][..]);
            let script = Script { unix_ms: *unix_ms, is_read_only: false, source, keys, arguments };
            let steps = transaction.run(&script, name(*from))?;
            assert_eq!(steps, SCRIPT_STEPS);
            Ok(())
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

/// The results of a transaction's steps. Steps that only require a condition have none.
fn taken(steps: &[Step], answer: &ToldAnswer<'_>) -> Vec<Answer> {
    let mut told = results(answer);
    let mut taken = Vec::new();
    for step in steps {
        let behind = if matches!(step, Step::Run { .. }) { SCRIPT_STEPS - 1 } else { 0 };
        let told = told.nth(behind).expect("each step has a result");
        if !matches!(step, Step::Require { .. }) {
            taken.push(of_step(told));
        }
    }
    assert!(told.next().is_none(), "no other step has one");
    taken
}

fn of_step(told: Result<ToldAnswer<'_>, OperationError>) -> Answer {
    let version = Answer::VERSION_NOT_TOLD;
    match told {
        Ok(told) => Answer { version, ..crate::client::answers::answer(&told) },
        Err(error) => {
            let status = not_applied(error).expect("a step has an outcome");
            Answer { status, version, integer: 0, value: None, form: Form::Plain }
        }
    }
}

/// Draws the steps of a transaction. Keys are drawn uniformly, so some steps are on the same key;
/// some steps require a condition, and some fail.
pub(crate) fn draw(drawn: &Drawn<'_>, random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    if random.below(3) == 0 {
        let key = random.below(drawn.keys as u64) as usize;
        steps.push(Step::Require { key, condition: draw_condition(key, drawn, random) });
    }
    for number in 0..random.between(1, STEPS_MAX) {
        let key = random.below(drawn.keys as u64) as usize;
        if drawn.scripts > 0 && random.chance(drawn.scripts) {
            steps.push(draw_script(key, drawn, random));
            continue;
        }
        let action = if random.below(4) == 0 { Action::Get } else { draw_update(key, number, drawn, random) };
        steps.push(Step::Take { key, action });
    }
    steps
}

fn draw_script(from: usize, drawn: &Drawn<'_>, random: &mut Random) -> Step {
    let program = random.pick(&[Program::Copy, Program::Copy, Program::Count, Program::Count, Program::Fail]);
    let to = random.below(drawn.keys as u64) as usize;
    // The script's clock is up to one second ahead.
    let unix_ms = START_UNIX_MS + drawn.at_ns / 1_000_000 + random.below(1_000);
    Step::Run { op: drawn.op, program, keys: (from, to), unix_ms }
}

fn draw_condition(key: usize, drawn: &Drawn<'_>, random: &mut Random) -> When {
    match random.below(6) {
        0 => When::IfAbsent,
        1 => When::IfPresent,
        _ => When::IfVersion(drawn.seen.get(&key).copied().unwrap_or(OpId::NONE)),
    }
}

fn long_bytes(drawn: &Drawn<'_>) -> usize {
    match drawn.op.sequence % 4 {
        1 => LONG_BYTES,
        3 if drawn.scripts > 0 => LONGER_BYTES,
        3 => LONG_BYTES,
        _ => 0,
    }
}

fn draw_update(key: usize, number: u64, drawn: &Drawn<'_>, random: &mut Random) -> Action {
    let op = drawn.op;
    let value = format!("{}{number}", (op.client.0 & 0xff) * 1000 + op.sequence).into_bytes();
    let change = match random.below(8) {
        _ if drawn.hashes > 0 && random.chance(drawn.hashes) => features::hashes::change(op, value, random),
        0..2 if random.chance(drawn.expiring) => {
            let at_ms = START_UNIX_MS + drawn.at_ns / 1_000_000 + random.below(600);
            Change::SetExpiring { value, at_ms }
        }
        0 | 1 => Change::Set(value),
        // A value that is not a number, so increments of it fail. Some are so long that
        // transactions and their results need several fragments.
        2 => Change::Set([b"t", &value[..], &vec![b'x'; long_bytes(drawn)]].concat()),
        3 => Change::Delete,
        4 => Change::Append(b"7".to_vec()),
        _ => Change::Increment(1),
    };
    let condition = if random.below(3) == 0 { draw_condition(key, drawn, random) } else { When::Always };
    let return_old = random.below(4) == 0 && !change.is_of_fields();
    Action::Update { op, condition, return_old, change }
}

//! Users of a gateway who transfer amounts between the accounts of one partition during faults, by
//! transactions and by scripts: each transfer takes effect as a whole or not at all.
//!
//! Accounts are keys with one hash tag, and each transfer also increments its user's counter in a
//! hash with the same tag. So when all of them are read at once, the accounts must add up to 0, and
//! a user's counter must be at least the number of its acknowledged transfers, and at most that
//! number plus those of unknown outcome.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nicekv_proto::KeyspaceId;
use nicekv_testkit::Random;

use redis::Value;

use crate::clients::RespClient;
use crate::error::Result;

/// Concurrent users of a keyspace.
pub(super) const MOVERS: u64 = 2;
/// Accounts of a phase in each keyspace.
const ACCOUNTS: u64 = 5;
/// Percentage of reads among calls, and of scripts among transfers.
const READS: u64 = 30;
const SCRIPTS: u64 = 50;
const AMOUNT_MAX: u64 = 1_000;
/// Longest pause between two calls.
const PAUSE_US_MAX: u64 = 8_000;
/// A transfer: `KEYS` are the accounts and the hash, `ARGV` the amount and the user.
const SCRIPT: &[u8] = b"local from = tonumber(redis.call('GET', KEYS[1]) or '0')
local to = tonumber(redis.call('GET', KEYS[2]) or '0')
redis.call('SET', KEYS[1], string.format('%d', from - ARGV[1]))
redis.call('SET', KEYS[2], string.format('%d', to + ARGV[1]))
return redis.call('HINCRBY', KEYS[3], ARGV[2], 1)";

/// Counts of a phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transfers {
    by_transaction: u64,
    by_script: u64,
    unknown: u64,
    read: u64,
    wrong: Vec<String>,
}

impl Transfers {
    pub(crate) fn add(&mut self, other: &Self) {
        self.by_transaction += other.by_transaction;
        self.by_script += other.by_script;
        self.unknown += other.unknown;
        self.read += other.read;
        self.wrong.extend(other.wrong.iter().cloned());
    }

    pub(crate) fn is_failure(&self) -> bool {
        !self.wrong.is_empty()
    }
}

impl fmt::Display for Transfers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by_transaction, by_script, unknown, read, wrong } = self;
        write!(
            formatter,
            "transfers: {by_transaction} by transactions, {by_script} by scripts, {unknown} unknown outcomes, all accounts read {read} times"
        )?;
        wrong.iter().try_for_each(|line| write!(formatter, "; WRONG: {line}"))
    }
}

/// How a transfer or a read ended.
enum End {
    Done(Value),
    /// Nothing was sent that could have an effect.
    Nothing,
    Unknown,
}

/// A user of one keyspace.
pub(super) struct Mover {
    client: RespClient,
    keyspace: KeyspaceId,
    tag: String,
    name: String,
    acknowledged: u64,
    unknown: u64,
    pub(super) seen: Transfers,
}

impl Mover {
    /// `phase` is part of the accounts' names.
    pub(super) fn new(client: RespClient, keyspace: KeyspaceId, phase: &str, number: u64) -> Self {
        let (tag, name) = (format!("{{{phase}-accounts}}"), format!("mover-{number}"));
        Self { client, keyspace, tag, name, acknowledged: 0, unknown: 0, seen: Transfers::default() }
    }

    /// Makes calls until it is stopped.
    pub(super) fn work(&mut self, random: &mut Random, stopped: &AtomicBool) -> Result<()> {
        while !stopped.load(Ordering::Relaxed) && !self.seen.is_failure() {
            match random.below(100) {
                0..READS => drop(self.read()?),
                _ => self.transfer(random)?,
            }
            std::thread::sleep(Duration::from_micros(random.below(PAUSE_US_MAX)));
        }
        Ok(())
    }

    fn account(&self, number: u64) -> Vec<u8> {
        format!("{}-{number}", self.tag).into_bytes()
    }

    fn ledger(&self) -> Vec<u8> {
        format!("{}-ledger", self.tag).into_bytes()
    }

    fn transfer(&mut self, random: &mut Random) -> Result<()> {
        let from = random.below(ACCOUNTS);
        let to = (from + random.between(1, ACCOUNTS - 1)) % ACCOUNTS;
        let amount = random.below(AMOUNT_MAX).to_string().into_bytes();
        let (from, to, ledger, name) =
            (self.account(from), self.account(to), self.ledger(), self.name.clone().into_bytes());
        let is_script = random.below(100) < SCRIPTS;
        let end = match is_script {
            true => self.script(&[&from, &to, &ledger, &amount, &name])?,
            false => self.transaction(&[
                &[b"DECRBY", &from, &amount],
                &[b"INCRBY", &to, &amount],
                &[b"HINCRBY", &ledger, &name, b"1"],
            ])?,
        };
        match end {
            End::Done(_) => {
                self.acknowledged += 1;
                self.seen.by_script += u64::from(is_script);
                self.seen.by_transaction += u64::from(!is_script);
            }
            End::Unknown => {
                self.unknown += 1;
                self.seen.unknown += 1;
            }
            End::Nothing => {}
        }
        Ok(())
    }

    fn script(&mut self, words: &[&[u8]; 5]) -> Result<End> {
        if !self.client.select(self.keyspace)? {
            return Ok(End::Nothing);
        }
        let [from, to, ledger, amount, name] = *words;
        let reply = self.client.ask(&[b"EVAL", SCRIPT, b"3", from, to, ledger, amount, name])?;
        Ok(match reply {
            Ok(reply @ Value::Int(_)) => End::Done(reply),
            _ => End::Unknown,
        })
    }

    /// Sends the commands as a transaction.
    fn transaction(&mut self, commands: &[&[&[u8]]]) -> Result<End> {
        if !self.client.select(self.keyspace)? {
            return Ok(End::Nothing);
        }
        let begin = [&b"MULTI"[..]];
        for command in std::iter::once(&begin[..]).chain(commands.iter().copied()) {
            // If a command is not queued, the transaction must not be executed: close the
            // connection.
            if !matches!(self.client.ask(command)?, Ok(Value::Okay | Value::SimpleString(_))) {
                self.client.disconnect();
                return Ok(End::Nothing);
            }
        }
        Ok(match self.client.ask(&[b"EXEC"])? {
            Ok(reply @ Value::Array(_)) => End::Done(reply),
            _ => End::Unknown,
        })
    }

    /// Reads all accounts at once and checks them; false if they could not be read.
    fn read(&mut self) -> Result<bool> {
        let (keys, ledger, name) = (
            (0..ACCOUNTS).map(|number| self.account(number)).collect::<Vec<_>>(),
            self.ledger(),
            self.name.clone(),
        );
        let get = &b"GET"[..];
        let gets: Vec<[&[u8]; 2]> = keys.iter().map(|key| [get, key]).collect();
        let count = [&b"HGET"[..], &ledger, name.as_bytes()];
        let commands: Vec<&[&[u8]]> = gets.iter().map(|words| &words[..]).chain([&count[..]]).collect();
        let End::Done(Value::Array(replies)) = self.transaction(&commands)? else { return Ok(false) };
        self.seen.read += 1;
        if let Err(why) = judge((self.acknowledged, self.unknown), &replies) {
            self.seen.wrong.push(format!("{} of {}: {why}: {replies:?}", self.name, self.tag));
        }
        Ok(true)
    }

    /// Reads all accounts, after the faults.
    pub(super) fn read_back(&mut self) -> Result<()> {
        if !self.seen.is_failure() && !self.read()? {
            self.seen.wrong.push(format!("the accounts of {} cannot be read", self.tag));
        }
        Ok(())
    }
}

/// Checks the accounts and the counter of a user with this many acknowledged and unknown transfers.
fn judge((acknowledged, unknown): (u64, u64), replies: &[Value]) -> std::result::Result<(), String> {
    let numbers: Option<Vec<i64>> = replies.iter().map(number).collect();
    let numbers = numbers.ok_or("a value is not a number")?;
    let (count, accounts) = numbers.split_last().ok_or("there are no values")?;
    let sum: i64 = accounts.iter().sum();
    if accounts.len() as u64 != ACCOUNTS || sum != 0 {
        return Err(format!("the accounts add up to {sum}"));
    }
    let possible = acknowledged..=acknowledged + unknown;
    match u64::try_from(*count).is_ok_and(|count| possible.contains(&count)) {
        true => Ok(()),
        false => Err(format!("the counter is {count}, but possible is {possible:?}")),
    }
}

fn number(reply: &Value) -> Option<i64> {
    match reply {
        Value::Nil => Some(0),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(accounts: [i64; ACCOUNTS as usize], count: i64) -> Vec<Value> {
        let bulk = |number: i64| match number {
            0 => Value::Nil,
            _ => Value::BulkString(number.to_string().into_bytes()),
        };
        accounts.into_iter().chain([count]).map(bulk).collect()
    }

    #[test]
    fn partial_lost_and_repeated_transfers_are_detected() {
        let shown =
            |acknowledged, unknown, replies: &[Value]| judge((acknowledged, unknown), replies).is_ok();
        assert!(shown(0, 0, &replies([0; 5], 0)), "no transfers");
        assert!(shown(2, 0, &replies([5, -7, 2, 0, 0], 2)));
        assert!(!shown(2, 0, &replies([5, -7, 3, 0, 0], 2)), "partial");
        assert!(!shown(3, 0, &replies([5, -7, 2, 0, 0], 2)), "lost");
        assert!(!shown(1, 0, &replies([5, -7, 2, 0, 0], 2)), "repeated");
        assert!(shown(1, 1, &replies([5, -7, 2, 0, 0], 2)) && shown(1, 1, &replies([5, -7, 2, 0, 0], 1)));
        assert!(!shown(0, 0, &replies([0; 5], 0)[1..]));
        assert!(!shown(0, 0, &[&replies([0; 5], 0)[1..], &[Value::SimpleString("no".into())]].concat()));
    }
}

//! The keys that a script works on, with the states in which it has left them.
//!
//! The keys can be sent to another process as bytes, and changes come back in the same way. Bytes
//! that come back are checked like those of a peer.

use crate::modes::ordered::evaluate::{KeyValue, Verdict, after, evaluate, read};
use crate::{DamagedStates, ScriptKeys, ScriptStates, ScriptTold};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{ClientId, Condition, Form, KeyDigest, KeyspaceId, OpId, Operation, Status, Update};

#[derive(Debug)]
pub struct LentKeys<'a> {
    op: OpId,
    unix_ms: u64,
    now: BTreeMap<&'a [u8], Option<KeyValue>>,
    written: BTreeSet<&'a [u8]>,
}

impl<'a> LentKeys<'a> {
    pub(crate) fn new(op: OpId, unix_ms: u64, now: BTreeMap<&'a [u8], Option<KeyValue>>) -> Self {
        Self { op, unix_ms, now, written: BTreeSet::new() }
    }

    /// Decodes keys that were [exported](ScriptStates::export).
    pub fn decode(mut bytes: &'a [u8]) -> Result<Self, DamagedStates> {
        let client = ClientId(take_u64(&mut bytes)?);
        let op = OpId { client, sequence: take_u64(&mut bytes)? };
        let unix_ms = take_u64(&mut bytes)?;
        Ok(Self::new(op, unix_ms, take_states(bytes)?))
    }

    /// Appends the changed keys, in the encoding that [`ScriptStates::import`] reads.
    pub fn append_written(&self, out: &mut Vec<u8>) {
        for key in &self.written {
            append_state(key, self.now.get(key).and_then(Option::as_ref), out);
        }
    }

    /// The keys that were changed or removed, with their present states.
    pub(crate) fn into_written(self) -> Vec<(&'a [u8], Option<KeyValue>)> {
        let Self { now, written, .. } = self;
        now.into_iter().filter(|(key, _)| written.contains(key)).collect()
    }
}

impl ScriptKeys for LentKeys<'_> {
    fn has(&self, key: &[u8]) -> bool {
        self.now.contains_key(key)
    }

    fn get(&self, key: &[u8]) -> ScriptTold {
        told(read(self.now.get(key).and_then(Option::as_ref)))
    }

    fn work_bytes(&self, key: &[u8]) -> usize {
        self.now.get(key).and_then(Option::as_ref).map_or(0, work_bytes)
    }

    fn update(
        &mut self,
        key: &[u8],
        operation: &Operation<'_>,
        condition: Condition,
        return_old: bool,
    ) -> ScriptTold {
        let Some((&own, state)) = self.now.get_key_value(key) else {
            return told(Verdict::unchanged(Status::CrossPartition, None));
        };
        let operation = operation.in_one_message(own.len());
        if operation.check_beside(own.len()).is_err() {
            return told(Verdict::unchanged(Status::ValueTooLong, None));
        }
        let update = Update {
            keyspace: KeyspaceId(0),
            op: self.op,
            digest: KeyDigest::default(),
            reply_to: None,
            watermark: 0,
            key: own,
            operation,
            condition,
            return_old,
        };
        let verdict = evaluate(&update, state.as_ref());
        if verdict.tells_large() {
            return told(Verdict::unchanged(Status::ValueTooLong, None));
        }
        if let Some(after) = after(&verdict, &operation) {
            // A value whose expiry was past when the script was called counts as absent.
            let is_over = |state: &KeyValue| state.expiry_ms != 0 && state.expiry_ms <= self.unix_ms;
            self.now.insert(own, after.filter(|state| !is_over(state)));
            self.written.insert(own);
        }
        told(verdict)
    }
}

impl ScriptStates for LentKeys<'_> {
    fn export(&self, out: &mut Vec<u8>) {
        for number in [self.op.client.0, self.op.sequence, self.unix_ms] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for (key, state) in &self.now {
            append_state(key, state.as_ref(), out);
        }
    }

    fn import(&mut self, written: &[u8]) -> Result<(), DamagedStates> {
        let states = take_states(written)?;
        // A script may leave a large value as it is, but cannot make one.
        let is_possible = |(key, state): (&&[u8], &Option<KeyValue>)| {
            let Some(before) = self.now.get(*key) else { return false };
            let Some(state) = state else { return true };
            let is_kept = before.as_ref().is_some_and(|before| before.value == state.value);
            let is_known = before.as_ref().is_some_and(|before| before.version == state.version);
            (is_known || state.version == self.op) && (state.form != Form::Large || is_kept)
        };
        if !states.iter().all(is_possible) {
            return Err(DamagedStates);
        }
        for (key, state) in states {
            let Some((&own, _)) = self.now.get_key_value(key) else { return Err(DamagedStates) };
            self.now.insert(own, state);
            self.written.insert(own);
        }
        Ok(())
    }
}

/// Bytes to count for one access to a key. A hash is decoded and encoded as a whole, field by
/// field, so it counts eightfold.
fn work_bytes(state: &KeyValue) -> usize {
    if state.form == Form::Hash { 8 * state.value.len() } else { state.value.len() }
}

fn told(verdict: Verdict) -> ScriptTold {
    let Verdict { status, value, value_is_result, form, expiry_ms, integer, .. } = verdict;
    let (value, form) = if value_is_result { (Some(value), form) } else { (None, Form::Plain) };
    ScriptTold { status, value, form, expiry_ms, integer }
}

/// Appends a key and its entry, each preceded by its length.
fn append_state(key: &[u8], state: Option<&KeyValue>, out: &mut Vec<u8>) {
    append_counted(key, out);
    let mut entry = Vec::new();
    Entry {
        index: 0,
        version: state.map_or(OpId::NONE, |state| state.version),
        expiry_ms: state.map_or(0, |state| state.expiry_ms),
        form: state.map_or(Form::Plain, |state| state.form),
        value: state.map(|state| &state.value[..]),
    }
    .append(&mut entry);
    append_counted(&entry, out);
}

fn append_counted(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_states(mut bytes: &[u8]) -> Result<BTreeMap<&[u8], Option<KeyValue>>, DamagedStates> {
    let mut states = BTreeMap::new();
    while !bytes.is_empty() {
        let key = take_counted(&mut bytes)?;
        let entry = Entry::decode(take_counted(&mut bytes)?).map_err(|_| DamagedStates)?;
        if !entry.may_be_of(key) {
            return Err(DamagedStates);
        }
        states.insert(key, KeyValue::from_entry(&entry));
    }
    Ok(states)
}

fn take_counted<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], DamagedStates> {
    let (count, rest) = bytes.split_first_chunk().ok_or(DamagedStates)?;
    let (taken, rest) = rest.split_at_checked(u32::from_le_bytes(*count) as usize).ok_or(DamagedStates)?;
    *bytes = rest;
    Ok(taken)
}

fn take_u64(bytes: &mut &[u8]) -> Result<u64, DamagedStates> {
    let (number, rest) = bytes.split_first_chunk().ok_or(DamagedStates)?;
    *bytes = rest;
    Ok(u64::from_le_bytes(*number))
}

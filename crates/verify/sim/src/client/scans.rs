//! Scans of a client. What a piece lists, and what it omits, is checked as gets of all keys in its range at one moment (C11).

use crate::checker::Call;
use crate::checker::model::{Action, Answer};
use crate::client::{KeyCall, Workload};
use nicekv_client::{Answer as Told, Keyspace, OperationError, Request, Scan};
use nicekv_proto::placement::{KeyOrder, match_digest};
use nicekv_proto::scan::{ScanPiece, ScanWants};
use nicekv_proto::{Form, KeyspaceId, OpId, Status};
use nicekv_testkit::Random;
use std::collections::{BTreeMap, BTreeSet};

/// Parts that it asks for at a time.
const ASKED_MAX: usize = 2;

/// Chooses the seeds in which clients scan.
const SCANS: u64 = 0x73_6361_6e73;

/// How the clients of a seed scan: [`Workload::scans`].
pub(crate) fn drawn(seed: u64) -> (usize, usize, u8) {
    let (calls, piece_bytes) = Random::new(seed ^ SCANS).pick(&[(0, 0), (10, 0), (30, 1_472)]);
    (calls, piece_bytes, Random::new(seed ^ !SCANS).pick(&[1, 2, 3, 8]))
}

/// A scan under way.
#[derive(Clone)]
pub(crate) struct Scanning {
    keyspace: KeyspaceId,
    order: KeyOrder,
    scan: Scan,
    /// By the ticket's index.
    open: BTreeMap<usize, Asked>,
    has_failed: bool,
    /// Keys that pieces have covered, by their index.
    covered: BTreeSet<usize>,
}

#[derive(Clone)]
struct Asked {
    part: u32,
    after: Option<Vec<u8>>,
    called: u64,
}

impl Scanning {
    pub(crate) fn new(keyspace: &Keyspace, (piece_bytes, pieces): (usize, u8)) -> Self {
        let scan = Scan::new(ScanWants::Values, None).in_pieces_of(piece_bytes).split_into(pieces);
        let (keyspace, order) = (keyspace.id, keyspace.order);
        Self { keyspace, order, scan, open: BTreeMap::new(), has_failed: false, covered: BTreeSet::new() }
    }

    /// Whether the request with this ticket is one of its own.
    pub(crate) fn awaits(&self, ticket: usize) -> bool {
        self.open.contains_key(&ticket)
    }

    /// Whether anything is left of it.
    pub(crate) fn goes_on(&self) -> bool {
        !self.open.is_empty() || !(self.has_failed || self.scan.is_done())
    }

    /// Requests the rest; `submit` returns the index of the ticket.
    pub(crate) fn ask(&mut self, tick: &mut u64, mut submit: impl FnMut(KeyspaceId, Request<'_>) -> usize) {
        while let Some(part) = self.scan.unasked().filter(|_| self.open.len() < ASKED_MAX && !self.has_failed)
        {
            *tick += 1;
            let request = self.scan.ask(part);
            let Request::Scan { after, .. } = request else { unreachable!("scans ask for pieces") };
            let asked = Asked { part, after: after.map(<[u8]>::to_vec), called: *tick };
            self.open.insert(submit(self.keyspace, request), asked);
        }
    }

    /// A request has ended: the gets that its answer stands for.
    pub(crate) fn take(
        &mut self,
        ticket: usize,
        told: Result<Told<'_>, OperationError>,
        workload: &Workload,
        (at_ns, tick): (u64, &mut u64),
    ) -> Vec<KeyCall> {
        let asked = self.open.remove(&ticket).expect("it is one of these");
        let Ok(told) = told else {
            self.has_failed = true;
            return Vec::new();
        };
        let mut pieces = Vec::new();
        let is_told = self.scan.take(asked.part, told.pieces(), |piece| pieces.push(*piece));
        assert!(is_told, "{:?} say nothing of what was asked for", told.pieces().collect::<Vec<_>>());
        *tick += 1;
        let answered = *tick;
        let seen = |(key, answer)| KeyCall {
            key,
            call: Call { action: Action::Get, called: asked.called, answered: Some((answered, answer)) },
            called_ns: at_ns,
            ended_ns: Some(at_ns),
        };
        let answers: Vec<_> = pieces.iter().flat_map(|piece| self.answers(piece, &asked, workload)).collect();
        self.covered.extend(answers.iter().map(|(key, _)| *key));
        if self.scan.is_done() {
            self.check_covered(workload);
        }
        answers.into_iter().filter_map(|(key, answer)| Some(seen((key, answer?)))).collect()
    }

    /// A scan that ends has covered all that it was asked for (C11).
    fn check_covered(&self, workload: &Workload) {
        let of_keyspace = workload.keys.iter().enumerate().filter(|(_, key)| key.keyspace == self.keyspace.0);
        for (index, key) in of_keyspace {
            let name = key.name.escape_ascii();
            assert!(self.covered.contains(&index), "a scan ends short: no piece covers {name}");
        }
    }

    /// What the piece says of the keys that it covers, by their index; of a large value no more than that there is one.
    fn answers(
        &self,
        piece: &ScanPiece<'_>,
        asked: &Asked,
        workload: &Workload,
    ) -> Vec<(usize, Option<Answer>)> {
        for entry in piece.entries() {
            assert_eq!(
                entry.value.is_some(),
                entry.form == Form::Plain,
                "only plain values are told: {entry:?}"
            );
        }
        // A large value, or a hash, is for a get.
        let mut listed: BTreeMap<&[u8], Option<&[u8]>> =
            piece.entries().map(|entry| (entry.key, entry.value)).collect();
        assert_eq!(listed.len(), piece.count as usize, "{piece:?} lists a key twice, or counts wrongly");
        let is_covered = |name: &[u8]| {
            let is_before_end = !piece.more || Some(name) <= piece.covered_through();
            piece.range.contains(match_digest(self.order, name).match_value())
                && Some(name) > asked.after.as_deref()
                && is_before_end
        };
        let mut answers = Vec::new();
        for (index, key) in workload.keys.iter().enumerate() {
            if key.keyspace != self.keyspace.0 || !is_covered(&key.name) {
                continue;
            }
            let value = match listed.remove(key.name.as_slice()) {
                Some(None) => {
                    answers.push((index, None));
                    continue;
                }
                found => found.flatten().map(<[u8]>::to_vec),
            };
            let status = if value.is_some() { Status::Ok } else { Status::NotFound };
            let version = if value.is_some() { Answer::VERSION_NOT_TOLD } else { OpId::NONE };
            answers.push((index, Some(Answer { status, version, integer: 0, value, form: Form::Plain })));
        }
        assert!(listed.is_empty(), "a scan lists what it does not cover, or nobody has put: {listed:?}");
        answers
    }
}

//! Scans of a client. What a piece lists, and what it omits, is checked as gets of all keys in its
//! range at one moment (C11).

use crate::checker::Call;
use crate::checker::model::{Action, Answer};
use crate::client::{KeyCall, Workload};
use nicekv_client::{Answer as Told, Keyspace, OperationError, Request, Scan};
use nicekv_proto::placement::{KeyOrder, match_digest};
use nicekv_proto::scan::{ScanPiece, ScanWants};
use nicekv_proto::{Form, KeyspaceId, OpId, Status};
use nicekv_testkit::Random;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum outstanding requests of a scan.
const ASKED_MAX: usize = 2;

/// Chooses the seeds in which clients scan.
const SCANS: u64 = 0x73_6361_6e73;

/// How the clients of a seed scan, in the form of [`Workload::scans`].
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
    /// Outstanding requests, by the index of their ticket.
    open: BTreeMap<usize, Asked>,
    has_failed: bool,
    /// Indexes of the keys that the received pieces cover.
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

    /// Whether the scan waits for the request with this ticket.
    pub(crate) fn awaits(&self, ticket: usize) -> bool {
        self.open.contains_key(&ticket)
    }

    /// Whether the scan still waits for answers or has more to request.
    pub(crate) fn goes_on(&self) -> bool {
        !self.open.is_empty() || !(self.has_failed || self.scan.is_done())
    }

    /// Requests the next parts; `submit` returns the index of the ticket.
    pub(crate) fn ask(&mut self, tick: &mut u64, mut submit: impl FnMut(KeyspaceId, Request<'_>) -> usize) {
        while let Some(part) = self.scan.unasked().filter(|_| self.open.len() < ASKED_MAX && !self.has_failed)
        {
            *tick += 1;
            let request = self.scan.ask(part);
            let Request::Scan { after, .. } = request else { unreachable!("a scan requests pieces only") };
            let asked = Asked { part, after: after.map(<[u8]>::to_vec), called: *tick };
            self.open.insert(submit(self.keyspace, request), asked);
        }
    }

    /// Takes the answer to a request. Returns one get for each key that the answer covers.
    pub(crate) fn take(
        &mut self,
        ticket: usize,
        told: Result<Told<'_>, OperationError>,
        workload: &Workload,
        (at_ns, tick): (u64, &mut u64),
    ) -> Vec<KeyCall> {
        let asked = self.open.remove(&ticket).expect("the scan awaits this ticket");
        let Ok(told) = told else {
            self.has_failed = true;
            return Vec::new();
        };
        let mut pieces = Vec::new();
        let is_told = self.scan.take(asked.part, told.pieces(), |piece| pieces.push(*piece));
        assert!(is_told, "{:?} cover nothing of the requested range", told.pieces().collect::<Vec<_>>());
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

    /// A completed scan has covered all keys of its keyspace (C11).
    fn check_covered(&self, workload: &Workload) {
        let of_keyspace = workload.keys.iter().enumerate().filter(|(_, key)| key.keyspace == self.keyspace.0);
        for (index, key) in of_keyspace {
            let name = key.name.escape_ascii();
            assert!(self.covered.contains(&index), "a scan ends short: no piece covers {name}");
        }
    }

    /// What the piece says about each key that it covers: index of the key and its answer. `None`
    /// for a key that is listed without its value (a large value, or a hash).
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
                "a scan returns plain values only: {entry:?}"
            );
        }
        // Large values and hashes are listed without a value.
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
        assert!(
            listed.is_empty(),
            "a scan lists keys that it does not cover, or that no client has put: {listed:?}"
        );
        answers
    }
}

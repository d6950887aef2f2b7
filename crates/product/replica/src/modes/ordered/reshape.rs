//! A partition ends, and others go on with what it held (R17): its last decisions, and the first state of what takes its place.
//!
//! ```text
//!   parent's primary, in a sealed epoch:   no op of a client is taken in ─▶ what is open is decided ─▶ all have forced all ─▶ drained at D
//!   every member of the parents:           logged = D? all of it takes effect; what is known of clients goes to the child
//!   child:                                 begins after D' = the greatest D, and one: a decision that nobody made, of no epoch
//! ```
//!
//! Why nothing is lost, and nothing done twice:
//! * D includes every decision that was shown: shown is what all have forced or what the primary has decided (R2), and it decides nothing after D.
//!   What is undecided at D is an op of which nobody was told anything. It ends with the partition, and its client sends it again, to the child.
//! * The child knows all clients of all parents. Whom one of them had forgotten is forgotten: no op of it is executed (R10).
//! * All members of the child hold the same at D', under an origin that no epoch has: who compares with another one that was born at D' holds
//!   what it holds, and who was not born has nothing in common with any (R7).
//! * Entries keep the indexes of their parents' decisions, none of which is above D'.

use super::contents::Contents;
use super::history::History;
use super::lead::Lead;
use super::partition::{Agreement, OrderedPartition};
use super::record::Record;
use super::replay::CLIENTS_RECORD_BYTES;
use crate::Host;
use crate::modes::ordered::clients::ExportCursor;
use alloc::vec::Vec;
use nicekv_proto::{Epoch, Now};

/// Where the decision comes from with which a partition begins that takes the place of others.
const BORN: Epoch = Epoch(0);

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Primary: whether the metadata service may have been told that nothing is decided any more.
    pub(crate) fn is_drained(&self) -> bool {
        self.lead.as_ref().is_some_and(Lead::is_drained)
    }

    /// Primary of a sealed epoch: the last decision, if nothing is open and all members hold it. From then on nothing is decided.
    pub(crate) fn drained_at(&mut self, host: &Host) -> Option<u64> {
        let is_settled = self.locks.count() == 0 && self.sequence.unreleased().len() == 0;
        // What takes its place knows of no copies.
        let is_quiet = host.hot.is_quiet(self.id());
        let may_end = self.membership.sealed && self.may_decide() && is_quiet && is_settled;
        let (through, lead) = (self.sequence.logged(), self.lead.as_mut()?);
        if may_end && lead.wanted().is_empty() {
            lead.end();
        }
        lead.is_drained().then_some(through)
    }

    /// This decision is the last one, and every member has forced it. Whether this replica holds it, and no other; then it takes effect, with all before.
    pub(crate) fn end_through(&mut self, host: &mut Host, now: Now, index: u64) -> bool {
        let is_last = self.former.is_none() && self.sequence.logged() == index;
        if is_last {
            self.release(host, now, index);
        }
        is_last
    }

    /// Logs that everything has taken effect. Else the log, read back, leaves contended decisions open for somebody who says that they are released, and
    /// what takes the partition's place does without them.
    pub(crate) fn log_end(&self, host: &mut Host) {
        let record = Record::Released { through: self.sequence.logged() };
        host.append(self.id(), |out| record.append(out));
    }

    /// What is known of clients, in pieces.
    pub(crate) fn legacy(&self) -> Vec<Vec<u8>> {
        let (mut pieces, mut cursor, mut more) = (Vec::new(), ExportCursor::START, true);
        while more {
            let piece;
            (piece, cursor, more) = self.clients.export(cursor, CLIENTS_RECORD_BYTES);
            pieces.push(piece);
        }
        pieces
    }

    /// All entries up to this decision are here; with these legacies it is all that there was.
    pub(crate) fn be_born(&mut self, host: &mut Host, index: u64, legacies: &[Vec<u8>]) {
        let record = Record::Born { index };
        host.append(self.id(), |out| record.append(out));
        self.begin_born(host, index);
        for piece in legacies {
            let record = Record::Clients { payload: piece };
            host.append(self.id(), |out| record.append(out));
            self.clients.import(piece).expect("just written");
        }
        self.keep_named(host);
    }

    /// The part of [`Self::be_born`] that replaying the log shares.
    pub(crate) fn begin_born(&mut self, host: &mut Host, index: u64) {
        self.give_up_ops(host);
        self.sequence.take();
        self.sequence.skip_to(index);
        let mut history = History::default();
        history.note(index, BORN);
        self.sequence.set_history(history);
        self.clients.clear();
        self.keep_named(host);
        self.contents = Contents::new(self.id(), host);
        self.contents.recent_mut().begin_after(index);
        self.former = None;
    }
}

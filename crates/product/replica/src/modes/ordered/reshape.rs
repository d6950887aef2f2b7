//! A partition ends, and others take over its keys (R17): its last decisions, and the first state
//! of the child.
//!
//! ```text
//!   parent's primary, in a sealed epoch:   clients start no op ─▶ open ops are decided ─▶ all have synced all ─▶ drained at D
//!   every member of the parents:           logged = D? everything takes effect; client records go to the child
//!   child:                                 begins at D' = the greatest D plus one: a decision of no epoch that nobody made
//! ```
//!
//! Why nothing is lost, and no op executed twice:
//! * D includes every decision that was shown: those are synced by all, or decided by the primary
//!   (R2), which decides nothing after D. An op that is undecided at D was not reported to anyone.
//!   It ends with the partition, and its client sends it again, to the child.
//! * The child knows the clients of all parents. A client that one of them had forgotten is
//!   forgotten: none of its ops is executed (R10).
//! * All members of the child hold the same at D', under an origin that no epoch has. So members
//!   that took over at D' have everything through it in common, and a node that did not take over
//!   has nothing in common with them (R7).
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

/// Origin of the first decision of a partition that takes over others.
const TAKEOVER: Epoch = Epoch(0);

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Primary: whether the metadata service may have been told that nothing is decided any more.
    pub(crate) fn is_drained(&self) -> bool {
        self.lead.as_ref().is_some_and(Lead::is_drained)
    }

    /// Primary of a sealed epoch: the last decision, if nothing is open and all members hold it.
    /// After that nothing is decided.
    pub(crate) fn drain(&mut self, host: &Host) -> Option<u64> {
        let is_settled = self.locks.count() == 0 && self.sequence.unreleased().len() == 0;
        // The child knows of no copies of hot keys.
        let is_quiet = host.hot.is_quiet(self.id());
        let may_end = self.membership.sealed && self.may_decide() && is_quiet && is_settled;
        let (through, lead) = (self.sequence.logged(), self.lead.as_mut()?);
        if may_end && lead.wanted().is_empty() {
            lead.end();
        }
        lead.is_drained().then_some(through)
    }

    /// Decision `index` is the last one, and every member has synced it. If this replica holds it
    /// and nothing after it, everything takes effect, and this returns true.
    pub(crate) fn end_at(&mut self, host: &mut Host, now: Now, index: u64) -> bool {
        let is_last = self.former.is_none() && self.sequence.logged() == index;
        if is_last {
            self.release(host, now, index);
        }
        is_last
    }

    /// Logs that everything has taken effect. Otherwise replaying the log would leave contended
    /// decisions open until someone reports them released, and the child does not know of them.
    pub(crate) fn log_end(&self, host: &mut Host) {
        let record = Record::Released { through: self.sequence.logged() };
        host.append(self.id(), |out| record.append(out));
    }

    /// The client records, in pieces.
    pub(crate) fn client_records(&self) -> Vec<Vec<u8>> {
        let (mut pieces, mut cursor, mut more) = (Vec::new(), ExportCursor::START, true);
        while more {
            let piece;
            (piece, cursor, more) = self.clients.export(cursor, CLIENTS_RECORD_BYTES);
            pieces.push(piece);
        }
        pieces
    }

    /// The partition takes over: all entries through decision `index` are here, and these are the
    /// parents' client records.
    pub(crate) fn take_over(&mut self, host: &mut Host, index: u64, client_records: &[Vec<u8>]) {
        let record = Record::TookOver { index };
        host.append(self.id(), |out| record.append(out));
        self.restart_after(host, index);
        for piece in client_records {
            let record = Record::Clients { payload: piece };
            host.append(self.id(), |out| record.append(out));
            self.clients.import(piece).expect("just written");
        }
        self.keep_named(host);
    }

    /// The part of [`Self::take_over`] that replaying the log shares.
    pub(crate) fn restart_after(&mut self, host: &mut Host, index: u64) {
        self.give_up_ops(host);
        self.sequence.take();
        self.sequence.skip_to(index);
        let mut history = History::default();
        history.note(index, TAKEOVER);
        self.sequence.set_history(history);
        self.clients.clear();
        self.keep_named(host);
        self.contents = Contents::new(self.id(), host);
        self.contents.recent_mut().begin_after(index);
        self.former = None;
    }
}

//! The end of a partition whose keys go to others (R17), and the start of the child: the parent's
//! last decision, and the child's first state.
//!
//! ```text
//!   parent's primary, in a sealed epoch:   clients start no op ─▶ open ops are decided ─▶ all have synced all ─▶ drained at D
//!   every member of the parents:           logged = D? everything takes effect; client records go to the child
//!   child:                                 begins at D' = the greatest D plus one: an index that no parent has used
//! ```
//!
//! Why nothing is lost, and no op is executed twice:
//! * D includes every decision that was shown: such a decision is synced by all, or was made by the
//!   primary (R2), which decides nothing after D. An op that is undecided at D was confirmed to
//!   nobody. It ends with the partition, and its client sends it again, to the child.
//! * The child knows the clients of all parents. If one parent had forgotten a client, the child
//!   has forgotten it, too, and executes none of its ops (R10).
//! * All members of the child hold the same state at D', under an origin that no epoch has. So
//!   members that took over at D' have everything up to it in common, and a node that did not take
//!   over has nothing in common with them (R7).
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

/// Origin of the decision after which a child begins; no epoch has this number.
const TAKEOVER: Epoch = Epoch(0);

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Primary: whether the partition was drained, so that the metadata service may rely on nothing
    /// more being decided.
    pub(crate) fn is_drained(&self) -> bool {
        self.lead.as_ref().is_some_and(Lead::is_drained)
    }

    /// Primary of a sealed epoch: returns the last decision once no op is open and all members hold
    /// it. From then on nothing is decided.
    pub(crate) fn drain(&mut self, host: &Host) -> Option<u64> {
        let is_settled = self.locks.count() == 0 && self.sequence.unreleased().len() == 0;
        // The child will not know of any copies of hot keys, so none may be left.
        let is_quiet = host.hot.is_quiet(self.id());
        let may_end = self.membership.sealed && self.may_decide() && is_quiet && is_settled;
        let (through, lead) = (self.sequence.logged(), self.lead.as_mut()?);
        if may_end && lead.wanted().is_empty() {
            lead.end();
        }
        lead.is_drained().then_some(through)
    }

    /// Decision `index` is the last one, and every member has synced it. If this replica has logged
    /// exactly up to it, applies everything and returns true.
    pub(crate) fn end_at(&mut self, host: &mut Host, now: Now, index: u64) -> bool {
        let is_last = self.former.is_none() && self.sequence.logged() == index;
        if is_last {
            self.release(host, now, index);
        }
        is_last
    }

    /// Logs that everything has taken effect. Without this record, a replay of the log would leave
    /// contended decisions open until another member reports them as released; but the child does
    /// not know these decisions.
    pub(crate) fn log_end(&self, host: &mut Host) {
        let record = Record::Released { through: self.sequence.logged() };
        host.append(self.id(), |out| record.append(out));
    }

    /// All client records, in pieces.
    pub(crate) fn client_records(&self) -> Vec<Vec<u8>> {
        let (mut pieces, mut cursor, mut more) = (Vec::new(), ExportCursor::START, true);
        while more {
            let piece;
            (piece, cursor, more) = self.clients.export(cursor, CLIENTS_RECORD_BYTES);
            pieces.push(piece);
        }
        pieces
    }

    /// Takes the place of the parents: all their entries up to decision `index` are here;
    /// `client_records` are their client records.
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

    /// The part of [`Self::take_over`] that also runs when the log is replayed.
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

//! Handles messages of the metadata service: leases, probes, and epochs. Effects of an epoch on
//! other partitions are handled here, too.

use crate::modes::Partition;
use crate::node::Replica;
use crate::node::host::Host;
use core::net::SocketAddrV4;
use nicekv_proto::control::{Assign, AssignAck};
use nicekv_proto::{Datagram, Epoch, Now, PartitionId};

impl Replica {
    /// Handles a message of the metadata service. It counts as refused if it comes from another
    /// address, or is not accepted.
    pub(crate) fn on_control(&mut self, now: Now, from: SocketAddrV4, datagram: &Datagram<'_>) {
        let Host { session, config, .. } = &mut self.host;
        let is_heard = config.metadata.contains(&from)
            && match datagram {
                Datagram::HeartbeatReply(reply) => {
                    session.accept_reply(config, reply) && {
                        session.note_leader(from);
                        true
                    }
                }
                Datagram::Probe(probe) => match session.answer_probe(config, probe) {
                    Some(reply) => {
                        session.note_leader(from);
                        self.host.outbox.send(from, |out| reply.encode(out));
                        true
                    }
                    None => false,
                },
                Datagram::Assign(assign) => {
                    session.accept_assign(config, assign) && {
                        session.note_leader(from);
                        self.on_assign(now, assign)
                    }
                }
                _ => false,
            };
        self.host.counters.refused += u64::from(!is_heard);
    }

    /// An epoch is assigned. Returns whether this node accepts the partition.
    pub(crate) fn on_assign(&mut self, now: Now, assign: &Assign) -> bool {
        self.host.visibility.epochs += 1;
        if let Some(epoch) = self.discards.fence(assign) {
            return self.on_fenced(assign, epoch);
        }
        if !self.admit_child(now, assign) {
            return true;
        }
        if self.holds_back(now, assign) {
            return true;
        }
        let (id, host) = (assign.partition, &self.host);
        let made = || Some(Partition::new(id, assign.replication, host));
        let Some(slot) = self.partitions.get_or_insert(id, made) else { return false };
        let partition = &mut self.partitions[slot];
        if !partition.is(assign.replication) {
            return false;
        }
        if partition.on_assign(&mut self.host, now, assign) {
            let membership = partition.membership();
            let (epoch, activated) = (membership.epoch, membership.activated);
            if self.takeovers.is_durable(id) {
                self.acknowledge(id, epoch, activated, false);
            }
            self.note_assigned(slot, assign);
            self.entered(slot);
            self.note_children(now, slot, assign);
        } else {
            let epoch = self.partitions[slot].epoch_min();
            if epoch > assign.epoch && self.takeovers.is_durable(id) {
                // A leader that does not know this node's epoch has an old state; the
                // acknowledgement tells it so (R13).
                self.acknowledge(id, epoch, false, false);
            }
        }
        self.partitions.set_route(slot);
        true
    }

    /// Acknowledges that this node is in the epoch, and reports whether it has discarded the
    /// partition.
    pub(crate) fn acknowledge(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
        activated: bool,
        discarded: bool,
    ) {
        let (node, incarnation) = (self.host.config.node, self.host.config.incarnation);
        let ack = AssignAck { node, incarnation, partition, epoch, activated, discarded };
        self.host.tell_metadata(|out| ack.encode(out));
    }
}

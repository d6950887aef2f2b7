//! Origin of a forwarded get or scan.

use crate::bytes::{Reader, reserved_bytes};
use crate::codec::Codec;
#[cfg(test)]
use crate::samples::Random;
use crate::{DecodeError, Epoch, NodeId, PartitionId};
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Partition, epoch and name of the forwarding replica; zeros in a client's request, since no epoch is 0.
pub(crate) struct Forwarded;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ForwardedLayout {
    partition: U32,
    epoch: U32,
    node: U16,
}

impl Codec for Forwarded {
    type Value<'a> = Option<(PartitionId, Epoch, NodeId)>;
    type Layout = ForwardedLayout;

    fn layout(forwarded: &Self::Value<'_>) -> ForwardedLayout {
        let (partition, epoch, node) = forwarded.unwrap_or_default();
        ForwardedLayout { partition: partition.0.into(), epoch: epoch.0.into(), node: node.0.into() }
    }

    fn read<'a>(
        field: &'static str,
        layout: &ForwardedLayout,
        _: &mut Reader<'a>,
    ) -> Result<Self::Value<'a>, DecodeError> {
        if layout.epoch.get() == 0 {
            return reserved_bytes(field, layout.as_bytes()).map(|()| None);
        }
        let epoch = Epoch(layout.epoch.get());
        Ok(Some((PartitionId(layout.partition.get()), epoch, NodeId(layout.node.get()))))
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Self::Value<'static> {
        random.layout(|layout| Self::read("forwarded", layout, &mut Reader::new(&[])))
    }
}

//! What a test leaves out of the pipeline.

/// One step to leave out, to prove that the fixtures notice. Only tests can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each names the step that is left out")]
pub enum Mutation {
    Ethernet,
    Destination,
    Ipv4Checksum,
    UdpChecksum,
    ExcludeIngress,
    AsItIsByTrunks,
    EthernetSource,
    Source,
    Address,
    Admission,
    VnodeOfHeader,
    ChainHeader,
    CutByClient,
    RestOfScan,
    CutOfPiece,
    Stamp,
    Turned,
    MaskOfAddress,
    AddressOfGroup,
    TargetPort,
}

//! Where a bug may be planted.

use nicekv_chunks::Plant;

/// Where a bug is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// In the cores.
    Core(Plant),
    /// P8: names take manifests whose stamps are older than the round that they have adopted.
    StaleStampTaken,
    /// P8: names are listed before all of them have adopted the round.
    MarksBeforeAdoption,
    /// P8: what has no mark is deleted before all names are listed.
    SweptBeforeAllMarks,
    /// P9: a manifest is put before its chunks are.
    ManifestFirst,
}

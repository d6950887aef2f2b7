//! Kinds of keyspaces and sizes of values, to be tested with every data plane.

/// A kind of keyspace; its index in [`KINDS`] is its database number.
pub(crate) struct Kind {
    /// The settings of `--keyspace`. The first kind is the default keyspace, which always exists.
    pub(crate) spec: &'static str,
    pub(crate) is: Is,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Is {
    /// The partitions have primaries; large values are allowed.
    Plain,
    /// Each value is sent in a single message.
    Chain,
    /// The partitions have no primaries.
    Quorum,
    /// The switch spreads gets of hot keys; transactions are not supported.
    Hot,
}

pub(crate) const KINDS: [Kind; 12] = [
    Kind { spec: "default", is: Is::Plain },
    Kind { spec: "chain", is: Is::Chain },
    Kind { spec: "quorum,write-set=2", is: Is::Quorum },
    Kind { spec: "range", is: Is::Plain },
    Kind { spec: "range,chain", is: Is::Chain },
    Kind { spec: "balancing=hot", is: Is::Hot },
    Kind { spec: "balancing=migrate", is: Is::Plain },
    Kind { spec: "partitions=1", is: Is::Plain },
    Kind { spec: "replicas=1", is: Is::Plain },
    Kind { spec: "replicas=2", is: Is::Plain },
    Kind { spec: "quorum,replicas=2,write-set=1", is: Is::Quorum },
    Kind { spec: "chain,replicas=2", is: Is::Chain },
];

/// Longest value that fits into a message, in bytes.
pub(crate) const LONG_VALUE_BYTES_MAX: usize = 57_344;
pub(crate) const SIZE_MAX: usize = 1_000_000;
/// Sizes to test, in addition to those around one datagram and around two fragments.
const SIZES: [usize; 11] = [0, 1, 1_023, 1_024, 1_025, 4_096, 4_097, 57_343, 57_344, 57_345, SIZE_MAX];
const AROUND_A_DATAGRAM: std::ops::Range<usize> = 1_270..1_420;
const AROUND_TWO_FRAGMENTS: std::ops::Range<usize> = 2_440..2_500;

/// The arguments of `up` that create the keyspaces.
pub(crate) fn keyspace_arguments() -> Vec<String> {
    let further = KINDS.iter().enumerate().skip(1);
    further.flat_map(|(number, kind)| ["--keyspace".into(), format!("k{number}={}", kind.spec)]).collect()
}

/// Sets, reads and measures values of all sizes in a keyspace of this kind; the values are prefixes
/// of `all`. Each is read as it was set, or is refused with an error that names the limit.
pub(crate) fn check_sizes(kind: &Kind, all: &str, mut ask: impl FnMut(&[&str]) -> Result<String, String>) {
    for size in SIZES.into_iter().chain(AROUND_A_DATAGRAM).chain(AROUND_TWO_FRAGMENTS) {
        let (value, of) = (&all[..size], format!("{size} bytes in {}", kind.spec));
        let reply = ask(&["SET", "k", value]);
        if kind.is == Is::Chain && size > LONG_VALUE_BYTES_MAX {
            assert!(reply.as_ref().is_err_and(|error| error.contains("57344")), "{of}: {reply:?}");
            continue;
        }
        assert_eq!(reply, Ok("OK".into()), "{of}");
        assert!(ask(&["GET", "k"]).as_deref() == Ok(value), "{of} come back otherwise");
        assert_eq!(ask(&["STRLEN", "k"]), Ok(size.to_string()), "{of}");
    }
}

//! `nicekv put`, `get` and `delete`.

use crate::client::{TargetArguments, failed, with_checked_client, with_client};
use crate::discovery::Purpose;
use crate::failure::Failure;
use crate::output::print;
use nicekv_metadata::KeyspaceInfo;
use nicekv_proto::Expiry;
use nicekv_proto::limits::LARGE_BYTES_MAX;
use std::io::{IsTerminal, Read};

/// `nicekv put`
#[derive(clap::Args)]
pub struct PutArguments {
    /// Key, at most 1024 bytes
    key: String,
    /// Value, at most 512 MiB (56 KiB in chain keyspaces); gateways may have a lower limit
    /// [default: read from standard input]
    value: Option<String>,
    #[command(flatten)]
    target: TargetArguments,
}

impl PutArguments {
    /// The value. From standard input, at most one byte more than the limit is read, so that the
    /// client refuses a longer value.
    fn value(&self) -> Result<Vec<u8>, Failure> {
        if let Some(value) = &self.value {
            return Ok(value.clone().into_bytes());
        }
        let mut value = Vec::new();
        let input = std::io::stdin().take(u64::from(LARGE_BYTES_MAX) + 1).read_to_end(&mut value);
        input.map_err(|error| Failure::Environment(format!("cannot read the value: {error}")))?;
        Ok(value)
    }
}

/// `nicekv get`
#[derive(clap::Args)]
pub struct GetArguments {
    /// Key, at most 1024 bytes
    key: String,
    /// Print no newline after the value, even at a terminal
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    target: TargetArguments,
}

/// `nicekv delete`
#[derive(clap::Args)]
pub struct DeleteArguments {
    /// Key, at most 1024 bytes
    key: String,
    #[command(flatten)]
    target: TargetArguments,
}

pub fn put(arguments: &PutArguments) -> Result<(), Failure> {
    let value = arguments.value()?;
    with_client(&arguments.target, Purpose::Change, async |client| {
        client.put(arguments.key.as_bytes(), &value, Expiry::Never).await.map_err(failed)?;
        Ok(())
    })
}

pub fn get(arguments: &GetArguments) -> Result<(), Failure> {
    with_client(&arguments.target, Purpose::Read, async |client| {
        let value = client.get(arguments.key.as_bytes()).await.map_err(failed)?;
        let value = value.ok_or_else(|| Failure::Operation(format!("{:?} has no value", arguments.key)))?;
        let mut bytes = value.bytes;
        if !arguments.raw && std::io::stdout().is_terminal() {
            bytes.push(b'\n');
        }
        print(&bytes)
    })
}

pub fn delete(arguments: &DeleteArguments) -> Result<(), Failure> {
    let refuse_objects = |known: &KeyspaceInfo| match known.chunks {
        Some(_) => Err(Failure::Environment(format!(
            "keyspace {} holds objects: use `nicekv object delete`",
            known.name
        ))),
        None => Ok(()),
    };
    with_checked_client(&arguments.target, Purpose::Change, refuse_objects, async |client| {
        let existed = client.delete(arguments.key.as_bytes()).await.map_err(failed)?;
        print(if existed { b"deleted\n" } else { b"had no value\n" })
    })
}

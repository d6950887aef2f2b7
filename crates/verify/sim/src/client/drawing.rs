//! Draws a client's next call at random.

use super::Client;
use crate::checker::model::{Action, Change, When};
use crate::features::{self, long_keys};
use crate::keyspace::Key;
use crate::node::START_UNIX_MS;
use crate::workload::Workload;
use nicekv_client::Keyspace;
use nicekv_proto::{KeyspaceId, OpId};
use nicekv_testkit::Random;

impl Client {
    pub(super) fn draw(&self, key: usize, at_ns: u64, workload: &Workload, random: &mut Random) -> Action {
        let reads = workload.gets > 0 && random.chance(workload.gets);
        if reads || random.below(3) == 0 {
            return Action::Get;
        }
        let op = self.next_op();
        let value = format!("{}", (self.core.config().client.0 & 0xff) * 1000 + op.sequence).into_bytes();
        let change = match random.below(8) {
            _ if workload.hashes > 0 && random.chance(workload.hashes) => {
                features::hashes::change(op, value, random)
            }
            _ if self.is_appended_to(key, workload, random) => {
                Change::Append(features::large_values::suffix(op, &value))
            }
            0..3 if random.chance(workload.expiring) => {
                let at_ms = START_UNIX_MS + at_ns / 1_000_000 + random.below(600);
                Change::SetExpiring { value, at_ms }
            }
            0..3 if self.is_large(key, workload, random) => {
                Change::Set(features::large_values::value(op, &value))
            }
            0..3 => Change::Set(long_keys::value(value, op, self.key_of(key, workload))),
            3 => Change::Delete,
            4 => Change::Append(b"7".to_vec()),
            _ => Change::Increment(1),
        };
        let version = self.seen.get(&key).copied().unwrap_or(OpId::NONE);
        let condition = match random.below(6) {
            0 => When::IfAbsent,
            1 => When::IfPresent,
            2 => When::IfVersion(version),
            _ => When::Always,
        };
        // An update of hash fields cannot return the old value.
        let return_old = random.below(4) == 0 && !change.is_of_fields();
        Action::Update { op, condition, return_old, change }
    }

    /// Whether the next set puts a large value.
    fn is_large(&self, key: usize, workload: &Workload, random: &mut Random) -> bool {
        workload.large > 0 && self.has_large_values(key, workload) && random.chance(workload.large)
    }

    /// Whether the next update is an append in a run with large values.
    fn is_appended_to(&self, key: usize, workload: &Workload, random: &mut Random) -> bool {
        workload.appends > 0 && self.has_large_values(key, workload) && random.chance(workload.appends)
    }

    fn key_of<'a>(&self, key: usize, workload: &'a Workload) -> (&'a Key, bool) {
        (&workload.keys[key], self.has_large_values(key, workload))
    }

    fn has_large_values(&self, key: usize, workload: &Workload) -> bool {
        let id = KeyspaceId(workload.keys[key].keyspace);
        let is_home = |known: &Keyspace| known.id == id && known.has_large_values();
        self.core.config().keyspaces.iter().any(is_home)
    }

    /// Draws an action that quorum keyspaces support.
    pub(super) fn draw_for_quorum(&self, key: usize, workload: &Workload, random: &mut Random) -> Action {
        let op = self.next_op();
        let value = format!("{}/{}", op.client.0 & 0xff, op.sequence).into_bytes();
        let change = match random.below(5) {
            0 => Change::Erase,
            1 | 2 if self.is_large(key, workload, random) => {
                Change::Set(features::large_values::value(op, &value))
            }
            1 | 2 => Change::Set(long_keys::value(value, op, self.key_of(key, workload))),
            _ => return Action::Get,
        };
        Action::Update { op, condition: When::Always, return_old: false, change }
    }
}

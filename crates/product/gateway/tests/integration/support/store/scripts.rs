//! Runs scripts; they may access the keys that they declare.

use super::Store;
use nicekv_proto::{Condition, Datagram, Form, Operation, Status, Update};
use nicekv_replica::{ScriptCall, ScriptKeys, ScriptTold};
use nicekv_scripts::LuaScripts;

struct Lent<'a> {
    store: &'a mut Store,
    keys: &'a [&'a [u8]],
    update: &'a Update<'a>,
}

impl ScriptKeys for Lent<'_> {
    fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(&key)
    }

    fn get(&self, key: &[u8]) -> ScriptTold {
        match self.store.keys.get(key) {
            Some(stored) => ScriptTold {
                status: Status::Ok,
                value: Some(stored.value.clone()),
                form: stored.form,
                expiry_ms: stored.expiry_ms,
                integer: 0,
            },
            None => {
                let (status, form) = (Status::NotFound, Form::Plain);
                ScriptTold { status, value: None, form, expiry_ms: 0, integer: 0 }
            }
        }
    }

    fn work_bytes(&self, key: &[u8]) -> usize {
        self.store.keys.get(key).map_or(0, |stored| stored.value.len())
    }

    fn update(
        &mut self,
        key: &[u8],
        operation: &Operation<'_>,
        condition: Condition,
        return_old: bool,
    ) -> ScriptTold {
        let update = Update { key, operation: *operation, condition, return_old, ..*self.update };
        let mut reply = Vec::new();
        self.store.update(&update, &mut reply);
        let Ok((_, Datagram::Reply(told))) = Datagram::decode(&reply) else { panic!("a reply") };
        ScriptTold {
            status: told.status,
            value: told.value.map(<[u8]>::to_vec),
            form: told.form,
            expiry_ms: told.expiry_ms,
            integer: told.integer,
        }
    }
}

/// Runs a script. It takes effect as a whole, or not at all.
pub(super) fn run(store: &mut Store, update: &Update<'_>, call: &ScriptCall<'_>) -> Vec<u8> {
    call.keys.iter().for_each(|key| store.remove_if_expired(key));
    let before = store.keys.clone();
    let end = LuaScripts.run(call, &mut Lent { store, keys: call.keys, update });
    if end.has_failed {
        store.keys = before;
    }
    end.reply
}

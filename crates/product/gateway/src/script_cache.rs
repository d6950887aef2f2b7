//! The source of scripts, by its digest.
//!
//! A gateway remembers sources, and forgets the least recently used ones if there are too many.
//! Each request to a node carries the source, and nodes remember none. A client handles NOSCRIPT as
//! it would after a restart of a Redis server.

use nicekv_redis::script_reply::Digest;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of remembered scripts, and maximum bytes of their sources.
const SCRIPTS_MAX: usize = 4_096;
const BYTES_MAX: usize = 16 << 20;

/// The SHA-1 of a source, in lower-case hex.
fn digest(source: &[u8]) -> Digest {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, source);
    let mut digits = [0; 40];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(digest.as_ref()) {
        for (digit, half) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
            *digit = b"0123456789abcdef"[usize::from(half)];
        }
    }
    digits
}

#[derive(Debug, Default)]
pub(crate) struct ScriptCache(Mutex<Cached>);

#[derive(Debug, Default)]
struct Cached {
    /// Sources, each with the sequence number of its last use.
    sources: HashMap<Digest, (u64, Arc<[u8]>)>,
    bytes: usize,
    uses: u64,
}

impl ScriptCache {
    fn lock(&self) -> MutexGuard<'_, Cached> {
        // No operation panics halfway, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a script, and returns its digest.
    pub(crate) fn add(&self, source: &[u8]) -> Digest {
        let digest = digest(source);
        let mut cache = self.lock();
        if cache.touch(&digest).is_none() {
            cache.make_room(source.len());
            cache.uses += 1;
            cache.bytes += source.len();
            let used = cache.uses;
            cache.sources.insert(digest, (used, source.into()));
        }
        digest
    }

    /// The script with this digest, given in upper or lower case.
    pub(crate) fn find(&self, digest: &[u8]) -> Option<(Digest, Arc<[u8]>)> {
        let digest = lower(digest)?;
        Some((digest, self.lock().touch(&digest)?))
    }

    pub(crate) fn has(&self, digest: &[u8]) -> bool {
        lower(digest).is_some_and(|digest| self.lock().sources.contains_key(&digest))
    }

    pub(crate) fn forget_all(&self) {
        *self.lock() = Cached::default();
    }
}

impl Cached {
    /// The script with this digest; marks it as the most recently used one.
    fn touch(&mut self, digest: &Digest) -> Option<Arc<[u8]>> {
        self.uses += 1;
        let (used, source) = self.sources.get_mut(digest)?;
        *used = self.uses;
        Some(source.clone())
    }

    fn make_room(&mut self, bytes: usize) {
        while self.sources.len() >= SCRIPTS_MAX || self.bytes + bytes > BYTES_MAX {
            let oldest = self.sources.iter().min_by_key(|(_, (used, _))| *used).map(|(digest, _)| *digest);
            let Some((_, source)) = oldest.and_then(|oldest| self.sources.remove(&oldest)) else { return };
            self.bytes -= source.len();
        }
    }
}

fn lower(digest: &[u8]) -> Option<Digest> {
    Some(Digest::try_from(digest).ok()?.map(|digit| digit.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_equal_those_of_redis() {
        assert_eq!(&digest(b"return 1"), b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn the_least_recently_used_script_is_forgotten() {
        let cache = ScriptCache::default();
        let first = cache.add(b"return 1");
        let source = |number: usize| format!("return {number} --{}", "x".repeat(BYTES_MAX / 64)).into_bytes();
        let second = cache.add(&source(2));
        for number in 3..100 {
            cache.add(&source(number));
            assert!(cache.find(&first.map(|digit| digit.to_ascii_uppercase())).is_some());
        }
        assert!(cache.has(&first) && !cache.has(&second) && !cache.has(b"short"));
        assert!(cache.lock().bytes <= BYTES_MAX);
        cache.forget_all();
        assert!(!cache.has(&first));
        for number in 0..2 * SCRIPTS_MAX {
            cache.add(number.to_string().as_bytes());
        }
        assert_eq!(cache.lock().sources.len(), SCRIPTS_MAX);
    }
}

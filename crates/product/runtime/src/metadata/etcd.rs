//! Leader lease and state in etcd (3.4 or newer), accessed by its JSON gateway. Each
//! [`LeaseRequest`] is one transaction, except that a long state needs several.
//!
//! ```text
//!   PREFIX/cluster               the cluster that owns these keys
//!   PREFIX/leader_lease          the holder; the key exists while the lease is held
//!   PREFIX/renewal               written with each renewal and step: its revision identifies the renewal
//!   PREFIX/version               version of the current state
//!   PREFIX/state/VERSION/PART    the state, in parts, because etcd limits the length of a request
//! ```
//!
//! A state of several parts is written part by part under its own version. With the last part, that
//! version becomes the current one and all older parts are deleted. Every write requires that the
//! writer still holds the lease and that the version is still the previous one. So a late part is
//! refused, or stored where it is never read.
//!
//! Requests go to the endpoint that answered last; if it does not answer, to the next one.

use super::tls::EtcdTls;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use nicekv_metadata::{LeaderLease, LeaseAnswer, LeaseRequest};
use nicekv_proto::Duration;
use serde_json::{Value, json};
use thiserror::Error;
use ureq::tls::{RootCerts, TlsConfig};

/// Longest part of a state per request; etcd's own limit is 1.5 MiB.
const PART_BYTES_MAX: usize = 1 << 20;
/// Longest state. The state of 4,096 partitions is shorter.
const STATE_BYTES_MAX: usize = 16 * PART_BYTES_MAX;
/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 4 * STATE_BYTES_MAX as u64;

/// How to reach etcd, and which keys to use.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// URLs of etcd members, `http://HOST:PORT` or `https://HOST:PORT`, at least one.
    pub endpoints: Vec<String>,
    /// Prefix of all keys.
    pub prefix: String,
    /// Id of the cluster that owns the state.
    pub cluster: u128,
    /// Timeout of a request to one endpoint.
    pub timeout: Duration,
    /// Trusted certificates for `https` endpoints. If `None`, no `https` endpoint is trusted.
    pub tls: Option<EtcdTls>,
}

/// Why etcd cannot be used.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// No endpoint answers as etcd does. This may be temporary.
    #[error("etcd: {0}")]
    Unreachable(String),
    /// The keys belong to another cluster.
    #[error("etcd: {prefix}/cluster is {found}, this is cluster {expected:032x}; choose another prefix")]
    OtherCluster {
        /// Prefix of the keys.
        prefix: String,
        /// Id of the cluster that owns the keys.
        found: String,
        /// Id of this cluster.
        expected: u128,
    },
    /// The keys are inconsistent.
    #[error("etcd: {key} holds {what}")]
    Malformed {
        /// The inconsistent key.
        key: String,
        /// The value of the key.
        what: &'static str,
    },
    /// The state is longer than the limit.
    #[error("etcd: the metadata state has {bytes} bytes, the limit is {STATE_BYTES_MAX}")]
    TooLarge {
        /// Length of the state in bytes.
        bytes: usize,
    },
}

/// An etcd client for elections.
pub struct Etcd {
    config: EtcdConfig,
    agent: ureq::Agent,
    /// Index of the endpoint that answered last.
    current: usize,
    /// etcd's revision, from its last answer.
    revision: u64,
}

/// Values of the keys that [`Etcd::look`] reads.
struct Found {
    leader_lease: Option<u128>,
    renewal: u64,
    version: u64,
    has_cluster: bool,
}

impl Etcd {
    /// A client that connects with its first request.
    pub fn new(config: EtcdConfig) -> Self {
        let nobody = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[])).build();
        let limits = ureq::Agent::config_builder()
            .timeout_global(Some(config.timeout))
            .http_status_as_error(false)
            .proxy(None)
            .tls_config(config.tls.clone().map_or(nobody, |EtcdTls(tls)| tls))
            .build();
        Self { config, agent: limits.into(), current: 0, revision: 0 }
    }

    /// Reads the stored state. Fails if it belongs to another cluster.
    pub fn load(&mut self) -> Result<Option<Vec<u8>>, EtcdError> {
        let mut look = self.look();
        look.as_array_mut().expect("a list").push(json!({"request_range": self.state_range(None)}));
        let answer = self.transact(&json!([]), &look, &json!([]))?;
        let responses = &answer["responses"];
        match self.found(responses)?.version {
            0 => Ok(None),
            version => self.state(version, &responses[4]["response_range"]["kvs"]).map(Some),
        }
    }

    /// Executes a request of the election. If no endpoint answers, the result is
    /// [`LeaseAnswer::Silence`] with the reason.
    pub fn execute(&mut self, request: &LeaseRequest) -> Result<(LeaseAnswer, Option<String>), EtcdError> {
        let answer = match request {
            LeaseRequest::Observe => self.observe(),
            LeaseRequest::Take { seen, holder } => self.take(*seen, *holder),
            LeaseRequest::Renew { holder } => self.guarded(*holder, &[], json!([self.put("renewal", "")])),
            LeaseRequest::Persist { holder, version, bytes } => self.persist(*holder, *version, bytes),
            LeaseRequest::Release { holder } => {
                self.guarded(*holder, &[], json!([self.delete("leader_lease")]))
            }
        };
        match answer {
            Err(EtcdError::Unreachable(reason)) => Ok((LeaseAnswer::Silence, Some(reason))),
            answer => Ok((answer?, None)),
        }
    }

    fn observe(&mut self) -> Result<LeaseAnswer, EtcdError> {
        let found = self.find()?;
        Ok(LeaseAnswer::Seen(LeaderLease { holder: found.leader_lease.unwrap_or(0), renewal: found.renewal }))
    }

    fn find(&mut self) -> Result<Found, EtcdError> {
        let answer = self.transact(&json!([]), &self.look(), &json!([]))?;
        self.found(&answer["responses"])
    }

    /// Operations that read all keys but the state's, in the order that [`Self::found`] expects.
    fn look(&self) -> Value {
        json!(["cluster", "leader_lease", "renewal", "version"].map(|name| self.range(name)))
    }

    fn found(&self, responses: &Value) -> Result<Found, EtcdError> {
        let kv = |index: usize| &responses[index]["response_range"]["kvs"][0];
        let text = |index, name: &str| {
            let kv = kv(index);
            if kv.is_null() { Ok(None) } else { self.text(kv, name).map(Some) }
        };
        let cluster = text(0, "cluster")?;
        if let Some(found) = cluster.as_ref().filter(|found| **found != self.cluster()) {
            let (prefix, expected) = (self.config.prefix.clone(), self.config.cluster);
            return Err(EtcdError::OtherCluster { prefix, found: found.clone(), expected });
        }
        let number = |index, name: &str, parse: fn(&str) -> Option<u128>| match text(index, name)? {
            Some(text) => parse(&text).map(Some).ok_or_else(|| self.malformed(name, "no number")),
            None => Ok(None),
        };
        let leader_lease = number(1, "leader_lease", |text| {
            u128::from_str_radix(text, 16).ok().filter(|holder| *holder > 0)
        })?;
        let version = number(3, "version", |text| text.parse::<u64>().ok().map(u128::from))?;
        Ok(Found {
            leader_lease,
            renewal: integer(&kv(2)["mod_revision"]),
            version: version.map_or(0, |version| version as u64),
            has_cluster: cluster.is_some(),
        })
    }

    fn take(&mut self, seen: LeaderLease, holder: u128) -> Result<LeaseAnswer, EtcdError> {
        let has_cluster = self.find()?.has_cluster;
        let leader_lease = match seen.holder {
            0 => self.is_absent("leader_lease"),
            known => self.is("leader_lease", &hex(known)),
        };
        let cluster =
            if has_cluster { self.is("cluster", &self.cluster()) } else { self.is_absent("cluster") };
        let renewal =
            json!({"key": self.key("renewal"), "target": "MOD", "mod_revision": seen.renewal.to_string()});
        let state = json!({"request_range": self.state_range(None)});
        let then = json!([
            self.put("leader_lease", &hex(holder)),
            self.put("cluster", &self.cluster()),
            self.put("renewal", ""),
            self.range("version"),
            state,
        ]);
        let answer = self.transact(&json!([leader_lease, cluster, renewal]), &then, &self.look())?;
        if answer["succeeded"] != true {
            return self.refused(&answer);
        }
        let found = &answer["responses"];
        let version = &found[3]["response_range"]["kvs"][0];
        let state = match version.is_null() {
            true => None,
            false => {
                let version = self.text(version, "version")?.parse();
                let version = version.map_err(|_| self.malformed("version", "no number"))?;
                Some(self.state(version, &found[4]["response_range"]["kvs"])?)
            }
        };
        Ok(LeaseAnswer::Taken { state })
    }

    /// Joins the parts of the state of this version.
    fn state(&self, version: u64, kvs: &Value) -> Result<Vec<u8>, EtcdError> {
        let malformed = |what| self.malformed("state", what);
        let mut state = Vec::new();
        for (kv, index) in
            kvs.as_array().into_iter().flatten().filter(|kv| self.is_part_of(kv, version)).zip(0..)
        {
            if kv["key"] != self.key(&part_name(version, index)) {
                return Err(malformed("not all parts of the state"));
            }
            let part = BASE64.decode(kv["value"].as_str().unwrap_or_default());
            state.extend(part.map_err(|_| malformed("what is not in base64"))?);
        }
        if state.is_empty() { Err(malformed("no part of the state")) } else { Ok(state) }
    }

    fn is_part_of(&self, kv: &Value, version: u64) -> bool {
        let key = BASE64.decode(kv["key"].as_str().unwrap_or_default()).unwrap_or_default();
        key.starts_with(format!("{}/{}", self.config.prefix, version_name(version)).as_bytes())
    }

    fn persist(&mut self, holder: u128, version: u64, bytes: &[u8]) -> Result<LeaseAnswer, EtcdError> {
        if bytes.len() > STATE_BYTES_MAX {
            return Err(EtcdError::TooLarge { bytes: bytes.len() });
        }
        let before = match version - 1 {
            0 => self.is_absent("version"),
            before => self.is("version", &before.to_string()),
        };
        let parts: Vec<_> = bytes.chunks(PART_BYTES_MAX).collect();
        for (part, index) in parts.iter().zip(0..) {
            let mut then = vec![self.put_bytes(&part_name(version, index), part), self.put("renewal", "")];
            if index + 1 == parts.len() {
                then.push(self.put("version", &version.to_string()));
                then.push(json!({"request_delete_range": self.state_range(Some(version))}));
            }
            let answer = self.guarded(holder, core::slice::from_ref(&before), json!(then))?;
            if answer != LeaseAnswer::Done {
                return Ok(answer);
            }
        }
        Ok(LeaseAnswer::Done)
    }

    /// Runs a transaction of the lease's holder. It is executed only if the lease is still held and
    /// all `conditions` hold.
    fn guarded(&mut self, holder: u128, conditions: &[Value], then: Value) -> Result<LeaseAnswer, EtcdError> {
        let mut compare = vec![self.is("leader_lease", &hex(holder))];
        compare.extend_from_slice(conditions);
        let answer = self.transact(&json!(compare), &then, &self.look())?;
        if answer["succeeded"] == true { Ok(LeaseAnswer::Done) } else { self.refused(&answer) }
    }

    fn refused(&self, answer: &Value) -> Result<LeaseAnswer, EtcdError> {
        let found = self.found(&answer["responses"])?;
        Ok(LeaseAnswer::Refused { holder: found.leader_lease.unwrap_or(0), version: found.version })
    }

    /// etcd's current revision, from its last answer.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Makes etcd forget revisions before `revision`: every renewal creates one.
    pub fn compact(&mut self, revision: u64) -> Result<(), EtcdError> {
        // etcd returns an error if the revision was compacted already.
        self.ask("/v3/kv/compaction", &json!({"revision": revision.to_string()})).map(|_| ())
    }

    fn transact(&mut self, compare: &Value, success: &Value, failure: &Value) -> Result<Value, EtcdError> {
        let request = json!({"compare": compare, "success": success, "failure": failure});
        let answer = self.ask("/v3/kv/txn", &request)?;
        self.revision = integer(&answer["header"]["revision"]);
        Ok(answer)
    }

    /// Sends a request to the endpoint that answered last; if it fails, to the others in turn.
    fn ask(&mut self, path: &str, request: &Value) -> Result<Value, EtcdError> {
        let mut reasons = Vec::new();
        for _ in 0..self.config.endpoints.len() {
            let endpoint = &self.config.endpoints[self.current];
            match self.ask_one(&format!("{endpoint}{path}"), request) {
                Ok(answer) => return Ok(answer),
                Err(reason) => reasons.push(format!("{endpoint}: {reason}")),
            }
            self.current = (self.current + 1) % self.config.endpoints.len();
        }
        Err(EtcdError::Unreachable(reasons.join("; ")))
    }

    fn ask_one(&self, url: &str, request: &Value) -> Result<Value, String> {
        let body = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        let mut response = self.agent.post(url).send(&body[..]).map_err(|error| error.to_string())?;
        let answer = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let answer = answer.map_err(|error| error.to_string())?;
        if response.status() != 200 {
            let told: Value = serde_json::from_slice(&answer).unwrap_or_default();
            let told =
                told["message"].as_str().or(told["error"].as_str()).unwrap_or("not etcd's JSON gateway");
            return Err(format!("{}: {told}", response.status()));
        }
        let answer: Value =
            serde_json::from_slice(&answer).map_err(|_| "not etcd's JSON gateway".to_owned())?;
        if answer["header"].is_object() { Ok(answer) } else { Err("not etcd's JSON gateway".into()) }
    }

    fn cluster(&self) -> String {
        hex(self.config.cluster)
    }

    fn key(&self, name: &str) -> String {
        BASE64.encode(format!("{}/{name}", self.config.prefix))
    }

    fn range(&self, name: &str) -> Value {
        json!({"request_range": {"key": self.key(name)}})
    }

    /// Key range of all parts of all states, or of those before this version.
    fn state_range(&self, before: Option<u64>) -> Value {
        let end = before.map_or_else(|| self.key("state0"), |version| self.key(&version_name(version)));
        json!({"key": self.key("state/"), "range_end": end})
    }

    fn put(&self, name: &str, text: &str) -> Value {
        self.put_bytes(name, text.as_bytes())
    }

    fn put_bytes(&self, name: &str, bytes: &[u8]) -> Value {
        json!({"request_put": {"key": self.key(name), "value": BASE64.encode(bytes)}})
    }

    fn delete(&self, name: &str) -> Value {
        json!({"request_delete_range": {"key": self.key(name)}})
    }

    fn is(&self, name: &str, text: &str) -> Value {
        json!({"key": self.key(name), "target": "VALUE", "value": BASE64.encode(text)})
    }

    fn is_absent(&self, name: &str) -> Value {
        json!({"key": self.key(name), "target": "CREATE", "create_revision": "0"})
    }

    fn text(&self, kv: &Value, name: &str) -> Result<String, EtcdError> {
        let bytes = BASE64.decode(kv["value"].as_str().unwrap_or_default()).ok();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.ok_or_else(|| self.malformed(name, "no text"))
    }

    fn malformed(&self, name: &str, what: &'static str) -> EtcdError {
        EtcdError::Malformed { key: format!("{}/{name}", self.config.prefix), what }
    }
}

fn hex(number: u128) -> String {
    format!("{number:032x}")
}

/// The number is zero-padded, so that keys sort by version.
fn version_name(version: u64) -> String {
    format!("state/{version:020}/")
}

fn part_name(version: u64, index: usize) -> String {
    format!("{}{index:02}", version_name(version))
}

/// Reads a 64-bit number, which etcd's JSON encodes as a string, and omits if it is 0.
fn integer(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

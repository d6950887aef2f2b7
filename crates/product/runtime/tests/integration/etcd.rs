//! Leader lease and state in a real etcd: requests of an election are executed or refused as
//! documented. Without the server (Debian package `etcd-server`), the tests report that they did
//! not run.

use nicekv_metadata::{LeaderLease, LeaseAnswer, LeaseRequest};
use nicekv_runtime::metadata::{Etcd, EtcdConfig, EtcdError, EtcdTls};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An etcd cluster of one member, killed when dropped.
struct Server {
    process: Child,
    endpoint: String,
    tls: Option<EtcdTls>,
    _directory: tempfile::TempDir,
}

impl Server {
    /// Starts etcd; `None` if it is not installed.
    fn start() -> Option<Self> {
        Self::start_with("http", &[], None)
    }

    fn start_with(scheme: &str, arguments: &[&str], tls: Option<EtcdTls>) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (clients, peers) = (format!("{scheme}://{}", free()), format!("http://{}", free()));
        let mut command = Command::new("etcd");
        command.args(arguments);
        command.arg("--data-dir").arg(directory.path());
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args([
            "--initial-cluster",
            &format!("default={peers}"),
            "--log-level",
            "error",
            "--logger",
            "zap",
        ]);
        let process = match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                nicekv_testkit::needs(&["etcd"], "the metadata service's state in etcd");
                return None;
            }
            process => process.unwrap(),
        };
        let server = Self { process, endpoint: clients, tls, _directory: directory };
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Err(error) = server.client("/test", 7).load() {
            assert!(Instant::now() < deadline, "{error}");
        }
        Some(server)
    }

    /// A client with two endpoints, of which the first does not answer.
    fn client(&self, prefix: &str, cluster: u128) -> Etcd {
        Etcd::new(EtcdConfig {
            endpoints: vec!["http://127.0.0.1:9".into(), self.endpoint.clone()],
            prefix: prefix.into(),
            cluster,
            timeout: Duration::from_secs(5),
            tls: self.tls.clone(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ask(etcd: &mut Etcd, request: LeaseRequest) -> LeaseAnswer {
    let (answer, reason) = etcd.execute(&request).unwrap();
    assert_eq!(reason, None);
    answer
}

fn observe(etcd: &mut Etcd) -> LeaderLease {
    let LeaseAnswer::Seen(leader_lease) = ask(etcd, LeaseRequest::Observe) else {
        panic!("unexpected answer to Observe")
    };
    leader_lease
}

fn persist(etcd: &mut Etcd, holder: u128, version: u64, bytes: &[u8]) -> LeaseAnswer {
    ask(etcd, LeaseRequest::Persist { holder, version, bytes: bytes.to_vec() })
}

#[test]
fn etcd_keeps_leader_lease_and_state() {
    let Some(server) = Server::start() else { return };
    let mut etcd = server.client("/test", 7);
    assert_eq!(etcd.load().unwrap(), None);
    let free = observe(&mut etcd);
    assert_eq!(free, LeaderLease { holder: 0, renewal: 0 });
    let take = |seen, holder| LeaseRequest::Take { seen, holder };
    assert_eq!(ask(&mut etcd, take(free, 1)), LeaseAnswer::Taken { state: None });
    assert_eq!(ask(&mut etcd, take(free, 2)), LeaseAnswer::Refused { holder: 1, version: 0 });

    let before = observe(&mut etcd);
    assert_eq!(ask(&mut etcd, LeaseRequest::Renew { holder: 1 }), LeaseAnswer::Done);
    assert_eq!(
        ask(&mut etcd, take(before, 2)),
        LeaseAnswer::Refused { holder: 1, version: 0 },
        "the lease was renewed since it was observed"
    );
    assert_eq!(
        ask(&mut etcd, LeaseRequest::Renew { holder: 2 }),
        LeaseAnswer::Refused { holder: 1, version: 0 }
    );

    // The third state has several parts, and the fourth one has fewer, so old parts must be
    // deleted.
    let large: Vec<u8> = (0..(5 << 19)).map(|index: u32| (index % 251) as u8).collect();
    for (version, state) in [(1, &b"one"[..]), (2, b"two"), (3, &large), (4, b"four")] {
        let before = observe(&mut etcd);
        assert_eq!(
            persist(&mut etcd, 2, version, b"x"),
            LeaseAnswer::Refused { holder: 1, version: version - 1 }
        );
        assert_eq!(persist(&mut etcd, 1, version, state), LeaseAnswer::Done);
        assert_eq!(persist(&mut etcd, 1, version, b"x"), LeaseAnswer::Refused { holder: 1, version });
        assert_ne!(observe(&mut etcd), before, "a step is a renewal");
        assert_eq!(etcd.load().unwrap().as_deref(), Some(state));
    }

    let seen = observe(&mut etcd);
    assert_eq!(ask(&mut etcd, take(seen, 2)), LeaseAnswer::Taken { state: Some(b"four".to_vec()) });
    assert_eq!(persist(&mut etcd, 1, 5, b"x"), LeaseAnswer::Refused { holder: 2, version: 4 });
    assert_eq!(
        ask(&mut etcd, LeaseRequest::Release { holder: 1 }),
        LeaseAnswer::Refused { holder: 2, version: 4 }
    );
    assert_eq!(ask(&mut etcd, LeaseRequest::Release { holder: 2 }), LeaseAnswer::Done);
    assert_eq!(observe(&mut etcd).holder, 0);
    let revision = etcd.revision();
    etcd.compact(revision - 1).unwrap();
    assert_eq!(etcd.load().unwrap().as_deref(), Some(&b"four"[..]));
}

#[test]
fn keys_of_another_cluster_are_untouched() {
    let Some(server) = Server::start() else { return };
    let mut etcd = server.client("/test", 7);
    ask(&mut etcd, LeaseRequest::Take { seen: LeaderLease::default(), holder: 1 });
    persist(&mut etcd, 1, 1, b"one");
    let mut other = server.client("/test", 8);
    let is_refused = |error: EtcdError| {
        matches!(&error, EtcdError::OtherCluster { .. }) && !error.to_string().contains('\n')
    };
    assert!(is_refused(other.load().unwrap_err()));
    let seen = observe(&mut etcd);
    for request in [LeaseRequest::Observe, LeaseRequest::Take { seen, holder: 2 }] {
        assert!(is_refused(other.execute(&request).unwrap_err()), "{request:?}");
    }
    assert_eq!(observe(&mut etcd), seen);
    // Another cluster can use another prefix in the same etcd.
    assert_eq!(server.client("/other", 8).load().unwrap(), None);
}

#[test]
fn missing_answer_is_silence_with_a_reason() {
    let Some(mut server) = Server::start() else { return };
    let mut etcd = server.client("/test", 7);
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let (answer, reason) = etcd.execute(&LeaseRequest::Observe).unwrap();
    assert_eq!(answer, LeaseAnswer::Silence);
    assert!(reason.unwrap().contains(&server.endpoint));
    // A server that is not etcd answers at the second endpoint.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    server.endpoint = format!("http://{}", listener.local_addr().unwrap());
    let told = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        // The answer does not depend on the request, so its first bytes are enough.
        stream.read_exact(&mut [0; 64]).unwrap();
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone").unwrap();
        // If the connection were closed with unread input, TCP would reset it, and the client would
        // lose the answer.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let error = server.client("/test", 7).load().unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("JSON gateway"), "{error}");
    told.join().unwrap();
}

/// A certificate and its private key, in PEM.
struct Certified {
    certificate: String,
    key: String,
}

impl Certified {
    fn tls(&self, authority: &str) -> EtcdTls {
        let own = (("own", self.certificate.as_bytes()), ("key", self.key.as_bytes()));
        EtcdTls::new(("authority", authority.as_bytes()), Some(own)).unwrap()
    }
}

/// An authority's certificate, and a certificate that it has issued for the loopback address. The
/// latter is valid for servers and for clients, because etcd's JSON gateway is a client of etcd.
fn authority() -> (String, Certified) {
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let mut own = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let own = own.signed_by(&key, &issuer).unwrap();
    (certificate, Certified { certificate: own.pem(), key: key.serialize_pem() })
}

#[test]
fn etcd_tls_checks_certificates_on_both_sides() {
    let ((trusted, own), (foreign, stranger)) = (authority(), authority());
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (ca, certificate, key) =
        (file("ca.pem", &trusted), file("own.pem", &own.certificate), file("own.key", &own.key));
    let arguments =
        ["--cert-file", &certificate, "--key-file", &key, "--trusted-ca-file", &ca, "--client-cert-auth"];
    let Some(mut server) = Server::start_with("https", &arguments, Some(own.tls(&trusted))) else { return };
    let mut etcd = server.client("/test", 7);
    let free = observe(&mut etcd);
    let take = LeaseRequest::Take { seen: free, holder: 1 };
    assert_eq!(ask(&mut etcd, take), LeaseAnswer::Taken { state: None });
    assert_eq!(persist(&mut etcd, 1, 1, b"state"), LeaseAnswer::Done);
    assert_eq!(server.client("/test", 7).load().unwrap(), Some(b"state".to_vec()));

    let without = EtcdTls::new(("authority", trusted.as_bytes()), None).unwrap();
    // If etcd rejects the client's certificate, it may just close the connection, so any reason
    // will do. If the client rejects etcd's certificate, the reason must name it.
    for (tls, part) in [
        (Some(stranger.tls(&trusted)), ""),
        (Some(without), ""),
        (Some(own.tls(&foreign)), "certificate"),
        (None, "certificate"),
    ] {
        server.tls = tls;
        let (answer, reason) = server.client("/test", 7).execute(&LeaseRequest::Observe).unwrap();
        assert_eq!(answer, LeaseAnswer::Silence);
        assert!(reason.as_ref().is_some_and(|reason| reason.contains(part)), "{part}: {reason:?}");
    }
}

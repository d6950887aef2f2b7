//! TLS connections: commands, and peers that do not complete the handshake.

use crate::support;

use nicekv_gateway::{GatewayMonitor, Listeners, TlsFiles, UserSource};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Resp, World, request};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, as PEM.
fn issued(by: &Authority, usage: ExtendedKeyUsagePurpose) -> (String, KeyPair) {
    let mut parameters = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
    parameters.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    (parameters.signed_by(&key, by).unwrap().pem(), key)
}

/// A gateway with a plain and a TLS listener, and what clients need to connect.
struct Gateways {
    _world: World,
    scratch: tempfile::TempDir,
    authority: Authority,
    plain: SocketAddr,
    tls: SocketAddr,
    monitor: GatewayMonitor,
}

fn start(threads: usize, clients: Option<&Authority>) -> Gateways {
    let (mut world, scratch, authority) = (World::new(), tempfile::tempdir().unwrap(), authority());
    let (certificate, key) = issued(&authority, ExtendedKeyUsagePurpose::ServerAuth);
    let write = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let files = TlsFiles {
        certificate: write("certificate.pem", &certificate),
        key: write("key.pem", &key.serialize_pem()),
        ca: clients.map(|clients| write("clients.pem", &clients.pem())),
    };
    assert_eq!(files.check(), Ok(()));
    let (plain, tls) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let [plain_address, tls_address] = [&plain, &tls].map(|listener| listener.local_addr().unwrap());
    let listeners = Listeners { plain: Some(plain), tls: Some(tls) };
    let monitor = world.gateway_on(listeners, threads, |config| config.tls = Some(files));
    Gateways { _world: world, scratch, authority, plain: plain_address, tls: tls_address, monitor }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

impl Gateways {
    /// Connects with TLS. `shows`: the client's certificate and key, if it has one.
    fn connect(&self, shows: Option<(&str, &KeyPair)>) -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let config = match shows {
            None => builder.with_no_client_auth(),
            Some((pem, key)) => {
                use rustls::pki_types::pem::PemObject;
                let chain = vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        StreamOwned::new(session, patient(self.tls))
    }

    fn handshakes(&self, outcome: &str) -> u64 {
        let told = self.monitor.observe().handshakes;
        told.into_iter().find(|(name, _)| *name == outcome).expect("every outcome is reported").1
    }
}

fn patient(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn words(command: &str) -> Vec<u8> {
    request(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Sends a command and checks the reply.
#[track_caller]
fn talk(stream: &mut (impl Read + Write), command: &str, expected: &str) {
    stream.write_all(&words(command)).unwrap();
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found).unwrap();
    let is_right = found == expected.as_bytes();
    assert!(is_right, "{:.100}: {:.100}", command, String::from_utf8_lossy(&found));
}

/// How long it takes until the gateway closes the connection, and what it sends before.
fn closed_after(mut stream: TcpStream) -> (Duration, Vec<u8>) {
    let (started, mut said) = (Instant::now(), Vec::new());
    match stream.read_to_end(&mut said) {
        Ok(_) => (),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    (started.elapsed(), said)
}

#[test]
fn commands_large_values_and_pipelines_work_over_tls() {
    let gateways = start(2, None);
    let mut client = gateways.connect(None);
    talk(&mut client, "PING", "+PONG\r\n");
    let value = "v".repeat(5_000_000);
    talk(&mut client, &format!("ECHO {value}"), &format!("$5000000\r\n{value}\r\n"));
    let commands: Vec<u8> = (0..5_000).flat_map(|_| words("INCR counter")).collect();
    let expected: String = (1..=5_000).map(|number| format!(":{number}\r\n")).collect();
    let mut found = vec![0; expected.len()];
    client.write_all(&commands).unwrap();
    client.read_exact(&mut found).unwrap();
    assert!(found == expected.as_bytes());
    assert_eq!(
        Resp::connect(gateways.plain).call("GET counter"),
        "$4\r\n5000\r\n",
        "the plain listener serves the same keys"
    );
    talk(&mut client, "QUIT", "+OK\r\n");
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the gateway sends TLS's close message");
    assert_eq!((gateways.handshakes("done"), gateways.handshakes("failed")), (1, 0));
    assert_eq!(gateways.monitor.observe().handshakes_open, 0);
}

#[test]
fn a_slow_reader_is_held_back_and_gets_every_reply() {
    let gateways = start(1, None);
    let mut client = gateways.connect(None);
    let value = "v".repeat(1_000);
    talk(&mut client, &format!("SET key {value}"), "+OK\r\n");
    // Five times as many reply bytes as may wait.
    (0..5_000).for_each(|_| client.write_all(&words("GET key")).unwrap());
    let mut other = gateways.connect(None);
    (0..100).for_each(|_| talk(&mut other, "PING", "+PONG\r\n"));
    let expected = format!("$1000\r\n{value}\r\n");
    let mut found = vec![0; expected.len()];
    for _ in 0..5_000 {
        client.read_exact(&mut found).unwrap();
        assert!(found == expected.as_bytes());
    }
}

#[test]
fn client_certificates_are_required_if_configured() {
    let clients = authority();
    let gateways = start(1, Some(&clients));
    let (pem, key) = issued(&clients, ExtendedKeyUsagePurpose::ClientAuth);
    talk(&mut gateways.connect(Some((&pem, &key))), "PING", "+PONG\r\n");
    let (strange_pem, strange_key) = issued(&authority(), ExtendedKeyUsagePurpose::ClientAuth);
    for shows in [None, Some((strange_pem.as_str(), &strange_key))] {
        let mut client = gateways.connect(shows);
        let refused = client.write_all(&words("SET k v")).and_then(|()| client.read_exact(&mut [0; 5]));
        assert!(refused.is_err(), "{shows:?}");
    }
    talk(&mut gateways.connect(Some((&pem, &key))), "EXISTS k", ":0\r\n");
    // The gateway's only thread still runs, and has counted the failures.
    assert_eq!(gateways.handshakes("failed"), 2);
}

#[test]
fn invalid_handshakes_are_closed_at_once_and_stalled_ones_after_a_timeout() {
    let gateways = start(1, None);
    let silent = patient(gateways.tls);
    let mut half = patient(gateways.tls);
    // The first message of a TLS client.
    let mut hello = Vec::new();
    let mut session = gateways.connect(None).conn;
    session.write_tls(&mut hello).unwrap();
    half.write_all(&hello[..hello.len() / 2]).unwrap();
    for garbage in [&b"*1\r\n$4\r\nPING\r\n"[..], b"PING\r\n", &[0; 600], &[255; 600]] {
        let mut stream = patient(gateways.tls);
        stream.write_all(garbage).unwrap();
        let (took, said) = closed_after(stream);
        assert!(took < Duration::from_secs(3) && !said.starts_with(b"+"), "{took:?} {said:?}");
    }
    // A TLS client at the plain port.
    let mut stream = patient(gateways.plain);
    stream.write_all(&hello).unwrap();
    let (took, said) = closed_after(stream);
    let told = "-ERR Protocol error: this is TLS, and the port is one without\r\n";
    assert_eq!((said.as_slice(), took < Duration::from_secs(3)), (told.as_bytes(), true), "{took:?}");
    let mut client = gateways.connect(None);
    talk(&mut client, "PING", "+PONG\r\n");
    for stream in [silent, half] {
        let (took, _) = closed_after(stream);
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
    talk(&mut client, "PING", "+PONG\r\n");
    assert_eq!((gateways.handshakes("timed_out"), gateways.monitor.observe().handshakes_open), (2, 0));
}

#[test]
fn a_thousand_stalled_handshakes_lock_nobody_out() {
    const COUNT: usize = 1_000;
    if !support::may_connect(COUNT, "half-open handshakes") {
        return;
    }
    let gateways = start(2, None);
    let mut before = (gateways.connect(None), Resp::connect(gateways.plain));
    talk(&mut before.0, "PING", "+PONG\r\n");
    let mut hello = Vec::new();
    gateways.connect(None).conn.write_tls(&mut hello).unwrap();
    let half_open: Vec<_> = (0..COUNT)
        .map(|number| {
            let mut stream = patient(gateways.tls);
            // Some peers send their whole first message, so that the gateway answers, and then
            // nothing more.
            let sent = [0, hello.len() / 2, hello.len()][number % 3];
            stream.write_all(&hello[..sent]).unwrap();
            stream
        })
        .collect();
    let started = Instant::now();
    let mut slowest = Duration::ZERO;
    while started.elapsed() < Duration::from_secs(2) {
        let began = Instant::now();
        talk(&mut before.0, "SET k v", "+OK\r\n");
        assert_eq!(before.1.call("GET k"), "$1\r\nv\r\n");
        talk(&mut gateways.connect(None), "GET k", "$1\r\nv\r\n");
        slowest = slowest.max(began.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let told = gateways.monitor.observe();
    assert!(told.handshakes_open <= nicekv_gateway::limits::HANDSHAKES_MAX, "{}", told.handshakes_open);
    assert!(gateways.handshakes("displaced") >= 480, "{told:?}");
    assert!(told.memory_bytes < 64 << 20, "{}", told.memory_bytes);
    half_open.into_iter().for_each(|stream| drop(closed_after(stream)));
    assert_eq!(gateways.monitor.observe().handshakes_open, 0);
    talk(&mut before.0, "GET k", "$1\r\nv\r\n");
}

#[test]
fn mismatched_tls_files_are_named() {
    let gateways = start(1, None);
    let path = |name: &str| gateways.scratch.path().join(name);
    std::fs::write(path("empty.pem"), "").unwrap();
    std::fs::write(path("other-key.pem"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    for (certificate, key, ca, told) in [
        ("none.pem", "key.pem", None, "none.pem"),
        ("empty.pem", "key.pem", None, "empty.pem: no certificate in it"),
        ("certificate.pem", "empty.pem", None, "empty.pem"),
        ("certificate.pem", "other-key.pem", None, "certificate.pem"),
        ("certificate.pem", "key.pem", Some("empty.pem"), "empty.pem: no certificate in it"),
    ] {
        let files = TlsFiles { certificate: path(certificate), key: path(key), ca: ca.map(path) };
        let error = files.check().unwrap_err();
        assert!(error.contains(told) && !error.contains('\n'), "{told}: {error}");
    }
    assert!(UserSource::AclFile(Path::new("/none").into()).check().is_err());
}

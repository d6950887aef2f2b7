//! Passwords, users and TLS, through the real binary and redis-cli.

use crate::cluster::{Redis, Up, nicekv, outcome};
use crate::refusals::refused;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair,
};
use std::fs;
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SMALL: [&str; 6] = ["--engine", "memory", "--nodes", "1", "--replicas", "1"];
const NO_AUTH: &str = "-NOAUTH Authentication required.";

fn up(scratch: &Path, arguments: &[&str]) -> Up {
    Up::start(scratch, &[&SMALL[..], arguments].concat())
}

/// Output of redis-cli; `None` if it is not installed.
fn redis_cli(address: &str, arguments: &[&str]) -> Option<String> {
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut command = Command::new("redis-cli");
    let said = command.args(["-h", host, "-p", port, "--no-auth-warning"]).args(arguments).output();
    let Ok(said) = said else {
        nicekv_testkit::needs(&["redis-cli"], "redis-cli at a gateway with users or TLS");
        return None;
    };
    let text = [said.stdout, said.stderr].concat();
    Some(String::from_utf8(text).unwrap().trim_end().to_owned())
}

/// A subject with this name. The names must differ, because OpenSSL takes a certificate for
/// self-signed if subject and issuer have the same name.
fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Writes the certificate of an authority (`ca.pem`), and for each name a certificate issued by it
/// and its key (`NAME.pem`, `NAME.key`).
fn certificates(scratch: &Path, names: &[&str]) {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name = named("authority");
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    fs::write(scratch.join("ca.pem"), authority.pem()).unwrap();
    for name in names {
        let mut parameters = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.extended_key_usages = usages.into();
        parameters.distinguished_name = named(name);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &authority).unwrap();
        fs::write(scratch.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(scratch.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// The command line of the process, as every user of the machine can see it.
fn shown_by_ps(up: &Up) -> String {
    let arguments = fs::read(format!("/proc/{}/cmdline", up.process_id())).unwrap();
    String::from_utf8_lossy(&arguments).replace('\0', " ")
}

#[test]
fn password_is_required_and_read_from_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("password"), "hunter2\n").unwrap();
    let mut up = up(scratch.path(), &["--password-file", "password"]);
    assert!(up.hear("connect").contains("--askpass"), "{:?}", up.said);
    assert_eq!(up.redis().call(&["GET", "k"]), NO_AUTH);
    let mut redis = up.redis();
    assert_eq!(redis.call(&["AUTH", "hunter2"]), "+OK");
    assert_eq!(redis.call(&["SET", "k", "v"]), "+OK");
    if let Some(said) = redis_cli(&up.resp, &["-a", "hunter2", "get", "k"]) {
        assert_eq!(said, "v");
        assert!(redis_cli(&up.resp, &["get", "k"]).unwrap().contains("NOAUTH"));
    }
    assert!(!shown_by_ps(&up).contains("hunter2"));
    assert!(up.said.iter().all(|line| !line.contains("hunter2")));
}

#[test]
fn users_are_read_from_a_file_that_can_be_reloaded() {
    let scratch = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(scratch.path().join("users.acl"), text).unwrap();
    let users = "user default off\nuser admin on >root ~* +@all\nuser alice on >secret ~a:* +@read +set\n";
    write(users);
    let up = up(scratch.path(), &["--acl-file", "users.acl", "--gateway-threads", "2"]);
    let login = |name: &str, password: &str| {
        let mut redis = up.redis();
        (redis.call(&["AUTH", name, password]), redis)
    };
    let (mut alice, mut admin) = (login("alice", "secret").1, login("admin", "root").1);
    assert_eq!(alice.call(&["SET", "a:1", "v"]), "+OK");
    assert_eq!(alice.call(&["SET", "b:1", "v"]), "-NOPERM No permissions to access a key");
    let refusal = "-NOPERM User alice has no permissions to run the 'del' command";
    assert_eq!(alice.call(&["DEL", "a:1"]), refusal);
    assert_eq!(alice.call(&["MGET", "a:1", "b:1"]), "-NOPERM No permissions to access a key");
    write("user default off\nuser admin on >root ~* +@al");
    let refusal = admin.call(&["ACL", "LOAD"]);
    assert!(refusal.starts_with("-ERR users.acl:2: Error in applying operation '+@al'"), "{refusal}");
    assert_eq!(alice.call(&["GET", "a:1"]), "$v", "a file with an error changes nothing");
    write(&users.replace("secret", "other"));
    assert_eq!(admin.call(&["ACL", "LOAD"]), "+OK");
    assert!(alice.try_call(&["GET", "a:1"]).is_err(), "the old password is no longer valid");
    assert!(login("alice", "secret").0.starts_with("-WRONGPASS") && login("alice", "other").0 == "+OK");
    if let Some(said) = redis_cli(&up.resp, &["--user", "admin", "--pass", "root", "acl", "whoami"]) {
        assert_eq!(said, "admin");
    }
}

#[test]
fn invalid_access_options_are_refused_before_anything_is_created() {
    let scratch = tempfile::tempdir().unwrap();
    certificates(scratch.path(), &["gateway"]);
    for (name, text) in
        [("users.acl", "user default on\nuser x >hunter2 bogus"), ("empty", "\n"), ("password", "hunter2")]
    {
        fs::write(scratch.path().join(name), text).unwrap();
    }
    for (arguments, reason) in [
        (&["--acl-file", "users.acl"][..], "users.acl:2: Error in applying operation 'bogus': Syntax error"),
        (&["--acl-file", "none.acl"], "none.acl"),
        (&["--password-file", "empty"], "empty: no password in it"),
        (&["--password-file", "password", "--acl-file", "users.acl"], "--acl-file"),
        (&["--tls-resp", "127.0.0.1:0"], "--tls-resp needs --tls-certificate and --tls-key"),
        (&["--tls-certificate", "gateway.pem"], "need --tls-resp"),
        (
            &["--tls-resp", "127.0.0.1:0", "--tls-certificate", "gateway.key", "--tls-key", "gateway.key"],
            "gateway.key: no certificate in it",
        ),
    ] {
        refused(scratch.path(), &[&["--data-dir", "data"], arguments].concat(), reason);
        assert!(!scratch.path().join("data").exists());
    }
    let (_, help, _) = outcome(nicekv(scratch.path(), &["up", "--help"]));
    for flag in ["--password-file", "--acl-file", "--no-protected-mode", "--tls-resp", "--tls-ca"] {
        assert!(help.contains(flag), "{flag}");
    }
}

/// An address of this host that is not on the loopback interface.
fn other_address() -> Option<String> {
    let all = if_addrs::get_if_addrs().unwrap();
    let mut v4 = all.iter().map(if_addrs::Interface::ip).filter(|ip| ip.is_ipv4() && !ip.is_loopback());
    v4.next().as_ref().map(IpAddr::to_string)
}

#[test]
fn protected_mode_refuses_other_hosts_until_a_password_is_set() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(address) = other_address() else {
        eprintln!("NOT RUN: this host has no address but those of loopback");
        return;
    };
    fs::write(scratch.path().join("password"), "hunter2").unwrap();
    let everywhere = |arguments: &[&str]| {
        let up = Up::start_on(scratch.path(), "0.0.0.0:0", &[&SMALL[..], arguments].concat());
        let port: u16 = up.resp.rsplit_once(':').unwrap().1.parse().unwrap();
        (up, port)
    };
    let call = |ip: &str, port: u16, command: &[&str]| {
        let stream = TcpStream::connect((ip, port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Redis::new(stream).call(command)
    };
    let (up, port) = everywhere(&[]);
    let refusal = call(&address, port, &["PING"]);
    assert!(refusal.starts_with("-DENIED this gateway is in protected mode"), "{refusal}");
    for part in ["--password-file", "--acl-file", "--no-protected-mode"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    assert_eq!(call("127.0.0.1", port, &["PING"]), "+PONG");
    assert_eq!(call("127.0.0.1", port, &["ACL", "SETUSER", "default", ">hunter2"]), "+OK");
    assert_eq!(call(&address, port, &["PING"]), NO_AUTH, "a password is needed now");
    drop(up);
    let (up, port) = everywhere(&["--password-file", "password"]);
    assert_eq!(call(&address, port, &["AUTH", "hunter2"]), "+OK");
    drop(up);
    let (up, port) = everywhere(&["--no-protected-mode"]);
    assert_eq!(call(&address, port, &["PING"]), "+PONG");
    drop(up);
}

#[test]
fn redis_tools_connect_with_tls() {
    let scratch = tempfile::tempdir().unwrap();
    certificates(scratch.path(), &["gateway", "client"]);
    let files = ["--tls-certificate", "gateway.pem", "--tls-key", "gateway.key"];
    let both = up(scratch.path(), &[&["--tls-resp", "127.0.0.1:0"], &files[..]].concat());
    let tls = both.tls_resp.clone().expect("it is told");
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let ca = path("ca.pem");
    assert_eq!(both.redis().call(&["SET", "k", "v"]), "+OK");
    let Some(said) = redis_cli(&tls, &["--tls", "--cacert", &ca, "get", "k"]) else { return };
    assert_eq!(said, "v");
    let (host, port) = tls.rsplit_once(':').unwrap();
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args(["-h", host, "-p", port, "--tls", "--cacert", &ca, "-t", "set,get", "-n", "2000", "-q"]);
    let (code, said, error) = outcome(benchmark);
    assert!(code == Some(0) && said.matches("requests per second").count() == 2, "{said} {error}");
    drop(both);
    // With TLS only, and with client certificates.
    fs::write(scratch.path().join("password"), "hunter2").unwrap();
    let arguments = [&["--password-file", "password", "--tls-ca", "ca.pem"], &files[..], &SMALL].concat();
    let mut alone = Up::start_by_tls(scratch.path(), &arguments);
    let tls = alone.tls_resp.clone().expect("it is told");
    assert!(alone.resp.is_empty() && alone.hear("connect").contains("--tls --cacert FILE --askpass"));
    let (certificate, key) = (path("client.pem"), path("client.key"));
    let shown = ["--tls", "--cacert", &ca, "--cert", &certificate, "--key", &key, "-a", "hunter2", "ping"];
    assert_eq!(redis_cli(&tls, &shown).unwrap(), "PONG");
    let without = redis_cli(&tls, &["--tls", "--cacert", &ca, "-a", "hunter2", "ping"]).unwrap();
    assert!(!without.contains("PONG"), "{without}");
}

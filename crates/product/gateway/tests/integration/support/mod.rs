//! A gateway in front of a store that runs in the test's process.

mod store;

use nicekv_client::Config;
use nicekv_gateway::{Gateway, GatewayConfig, GatewayMonitor, KnownKeyspaces, Listeners};
use nicekv_proto::Datagram;
use nicekv_proto::fragment::{FRAGMENT_BYTES, Fragment, Fragments};
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::placement::Vrings;
use nicekv_runtime::{Stop, UdpEndpoint, Waker, new_client_id, readable, wait};
use nicekv_transport::{Assembler, Part, name_of};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
pub(crate) use store::{Store, draw};

/// Raises the limit on open files for `count` connections with both ends in this process. If the
/// hard limit is too low, prints NOT RUN and returns false.
pub(crate) fn may_connect(count: usize, what: &str) -> bool {
    // With a reserve for the other open files of the process.
    let wanted = 2 * count as u64 + 1_000;
    let limit = getrlimit(Resource::Nofile);
    let is_enough = |bound: Option<u64>| bound.is_none_or(|bound| bound >= wanted);
    if !is_enough(limit.current) && is_enough(limit.maximum) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).unwrap();
    }
    let may = is_enough(getrlimit(Resource::Nofile).current);
    if !may {
        nicekv_testkit::not_run(&format!("a hard limit of {wanted} open files"), what);
    }
    may
}

/// A store with gateways in front of it; all of them end when it is dropped.
pub(crate) struct World {
    pub(crate) store: Arc<Mutex<Store>>,
    /// The list of keyspaces of the gateway that was started last.
    pub(crate) known: KnownKeyspaces,
    vrings: Vrings,
    stop: Stop,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
}

impl World {
    pub(crate) fn new() -> Self {
        // Bound to every address: all vnodes of 127.10/16 and 127.11/16 lead to this socket.
        let endpoint = UdpEndpoint::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let vrings = Vrings::on_loopback(endpoint.local_address().port());
        let (store, stop) = (Arc::new(Mutex::new(Store::default())), Stop::new());
        let thread = {
            let (store, stop) = (store.clone(), stop.clone());
            std::thread::spawn(move || run_store(&store, endpoint, &stop))
        };
        Self { store, vrings, stop, threads: vec![thread], known: KnownKeyspaces::default() }
    }

    /// Starts a gateway and returns the address that it listens on.
    pub(crate) fn gateway(&mut self, change: impl FnOnce(&mut GatewayConfig)) -> SocketAddr {
        self.gateway_of(1, change)
    }

    /// Starts a gateway with this number of threads and returns the address that it listens on.
    pub(crate) fn gateway_of(
        &mut self,
        threads: usize,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        self.gateway_on(listener.into(), threads, change);
        address
    }

    /// Starts a gateway with this number of threads on these listeners.
    pub(crate) fn gateway_on(
        &mut self,
        listeners: Listeners,
        threads: usize,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> GatewayMonitor {
        let endpoint = || UdpEndpoint::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut config = GatewayConfig::new(Config::new(new_client_id().unwrap(), self.vrings));
        change(&mut config);
        let uplinks = (0..threads).map(|_| (new_client_id().unwrap(), endpoint().into())).collect();
        let gateways = Gateway::threads(listeners, uplinks, &config).unwrap();
        let monitor = gateways[0].monitor();
        self.known = gateways[0].keyspaces();
        for gateway in gateways {
            let stop = self.stop.clone();
            self.threads.push(std::thread::spawn(move || gateway.run(&stop)));
        }
        monitor
    }

    /// How many different clients, as replicas count them, have sent updates or gets.
    pub(crate) fn clients(&self) -> usize {
        let store = self.store.lock().unwrap();
        store.answered.keys().map(|op| op.client).collect::<HashSet<_>>().len()
    }

    /// Stops the store and all gateways.
    pub(crate) fn stop(&self) {
        self.stop.stop();
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        let store = self.store.lock().unwrap();
        store.requests.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.stop();
        for thread in self.threads.drain(..) {
            // If the test itself is panicking, a second panic would abort the process.
            if let Err(panic) = thread.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

fn run_store(store: &Mutex<Store>, mut endpoint: UdpEndpoint, stop: &Stop) -> std::io::Result<()> {
    let waker = Waker::new()?;
    stop.register(&waker);
    let mut assembler = Assembler::new(FRAGMENT_BYTES, 16 << 20);
    while !stop.is_stopped() {
        wait(&mut [readable(&endpoint), readable(&waker)], None)?;
        let mut requests = Vec::new();
        endpoint.receive(|message| match Datagram::decode(message.bytes) {
            Ok((_, Datagram::Fragment(Fragment { name, count, index, bytes, .. }))) => {
                let part = Part { name, count, index, bytes };
                let whole = assembler.take(0, message.from, &part).expect("the client sends valid datagrams");
                requests.extend(whole.map(|whole| (message.from, whole)));
            }
            _ => requests.push((message.from, message.bytes.to_vec())),
        })?;
        let replies = store.lock().unwrap().handle_all(requests);
        let mut replies = replies.into_iter().flat_map(|(to, reply)| sent(reply).map(move |sent| (to, sent)));
        endpoint.send_with(|out| {
            let (to, reply) = replies.next()?;
            out.extend_from_slice(&reply);
            Some(to)
        })?;
    }
    Ok(())
}

/// Splits a reply into the datagrams that carry it.
fn sent(reply: Vec<u8>) -> impl Iterator<Item = Vec<u8>> {
    let mut whole = Some(reply);
    let long = whole.take_if(|reply| reply.len() > DATAGRAM_BYTES_MAX);
    let mut fragments = long.map(|reply| {
        let name = name_of(&reply);
        Fragments::new(reply, name, None)
    });
    let next = move || {
        let mut out = Vec::new();
        fragments.as_mut()?.poll(&mut out).then_some(out)
    };
    whole.into_iter().chain(std::iter::from_fn(next))
}

/// A redis-server to compare with; it is stopped when it is dropped.
pub(crate) struct RedisServer {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl RedisServer {
    /// `None` if redis-server is not installed.
    pub(crate) fn start() -> Option<Self> {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let process = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""])
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let server = Self { process, address };
        while TcpStream::connect(address).is_err() {
            std::thread::yield_now();
        }
        Some(server)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection that sends and receives RESP.
pub(crate) struct Resp {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Resp {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        // A reply that never comes fails the test instead of hanging it.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) fn send(&mut self, words: &[&[u8]]) {
        self.stream.write_all(&request(words)).unwrap();
    }

    /// Sends these commands at once.
    pub(crate) fn send_all(&mut self, commands: &[Vec<&[u8]>]) {
        let requests: Vec<_> = commands.iter().map(|words| request(words)).collect();
        self.stream.write_all(&requests.concat()).unwrap();
    }

    /// The bytes of the next reply.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        self.reply_or_end().expect("a reply, not the end")
    }

    /// The next reply, or `None` if the connection ends before it.
    pub(crate) fn reply_or_end(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = reply_end(&self.buffer, 0) {
                return Some(self.buffer.drain(..end).collect());
            }
            let mut chunk = [0; 65_536];
            let count = match self.stream.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
                read => read.expect("a reply"),
            };
            if count == 0 {
                assert!(self.buffer.is_empty(), "closed after {:?}", String::from_utf8_lossy(&self.buffer));
                return None;
            }
            self.buffer.extend_from_slice(&chunk[..count]);
        }
    }

    /// Whether bytes have arrived, or arrive within the read timeout.
    pub(crate) fn has_input(&self) -> bool {
        !self.buffer.is_empty() || self.stream.peek(&mut [0]).is_ok()
    }

    /// Sends one command of plain words and returns its reply.
    pub(crate) fn call(&mut self, command: &str) -> String {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        self.send(&words);
        String::from_utf8(self.reply()).unwrap()
    }

    /// Reads until the connection is closed.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.buffer);
        // A reset after the last reply also counts as the end.
        let _ = self.stream.read_to_end(&mut rest);
        String::from_utf8(rest).unwrap()
    }
}

/// The number in a field of INFO.
pub(crate) fn info(connection: &mut Resp, field: &str) -> usize {
    let text = connection.call("INFO");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .expect("INFO has the field");
    line.parse().unwrap()
}

pub(crate) fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend_from_slice(word);
        out.extend(b"\r\n");
    }
    out
}

/// The end of the reply that begins at `start`; `None` if it is incomplete.
fn reply_end(bytes: &[u8], start: usize) -> Option<usize> {
    let line_end = start + bytes.get(start..)?.windows(2).position(|two| two == b"\r\n")?;
    let number = || std::str::from_utf8(&bytes[start + 1..line_end]).unwrap().parse::<i64>().unwrap();
    let after = line_end + 2;
    match bytes[start] {
        b'+' | b'-' | b':' | b'_' | b',' => Some(after),
        b'$' | b'=' if number() < 0 => Some(after),
        b'$' | b'=' => Some(after + number() as usize + 2).filter(|end| *end <= bytes.len()),
        kind @ (b'*' | b'%' | b'~' | b'>') => {
            let count = number().max(0) * if kind == b'%' { 2 } else { 1 };
            (0..count).try_fold(after, |at, _| reply_end(bytes, at))
        }
        other => panic!("no reply begins with {:?}", char::from(other)),
    }
}

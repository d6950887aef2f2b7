//! These tests use real sockets and a simulated clock, so that they need not wait for timeouts.

use super::*;
use crate::control_plane::AdminRequest;
use crate::metadata::state_file::tests::config;
use crate::{PollFd, listen, readable, wait};
use nicekv_proto::Duration;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

/// Turns a hang into a failure.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

struct Service {
    listener: TcpListener,
    connections: Connections,
    core: Metadata,
    now: Now,
}

impl Service {
    fn start() -> Self {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let connections = Connections::new(vec![("switch".into(), SwitchId(0))]);
        let core = Metadata::new(config(), None, Now::default()).unwrap();
        Self { listener, connections, core, now: Now::default() }
    }

    fn connect_from(&self, source: Ipv4Addr) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        socket.connect(&self.listener.local_addr().unwrap().into()).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.into()
    }

    /// Runs one turn of the service's loop once input has arrived.
    fn turn(&mut self) {
        let mut descriptors: Vec<PollFd<'_>> =
            std::iter::once(readable(&self.listener)).chain(self.connections.interests()).collect();
        wait(&mut descriptors, None).unwrap();
        let ready: Vec<bool> = descriptors[1..].iter().map(crate::is_ready).collect();
        drop(descriptors);
        self.connections.note_ready(&ready);
        self.act();
    }

    fn act(&mut self) {
        self.connections.accept(self.now, &self.listener).unwrap();
        self.connections.receive(self.now, Some(&mut self.core));
        self.connections.send(self.now, Some(&mut self.core));
    }

    fn connect(&mut self, source: Ipv4Addr) -> TcpStream {
        let stream = self.connect_from(source);
        self.turn();
        stream
    }

    fn later(&mut self, by: Duration) {
        self.now.boot_ns += by.as_nanos() as u64;
        self.connections.note_ready(&[false; 1 + VISITORS_MAX]);
        self.act();
    }
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes(), message].concat()
}

fn greeting(role: Role) -> Vec<u8> {
    frame(&encode(&Greeting::new(role)))
}

fn agent() -> Vec<u8> {
    greeting(Role::Switch { name: "switch".into() })
}

/// Sends a request as a command does, and returns the answer.
fn ask(service: &mut Service, stream: &mut TcpStream) -> Vec<u8> {
    stream.write_all(&[greeting(Role::Admin), frame(&encode(&AdminRequest::ClusterInfo))].concat()).unwrap();
    service.turn();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    answer
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0; 1 << 16]);
    stream.set_nonblocking(false).unwrap();
    match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

#[test]
fn idle_connections_lock_no_one_out() {
    let mut service = Service::start();
    let mut switch = service.connect(NEIGHBOUR);
    switch.write_all(&agent()).unwrap();
    service.turn();
    let mut idle: Vec<TcpStream> = Vec::new();
    for _ in 0..70 {
        service.later(Duration::from_millis(1));
        idle.push(service.connect(Ipv4Addr::LOCALHOST));
    }
    let open = idle.iter_mut().map(|stream| !is_closed(stream)).collect::<Vec<_>>();
    assert_eq!(open.iter().filter(|open| **open).count(), VISITORS_PER_SOURCE_MAX);
    assert!(open[70 - VISITORS_PER_SOURCE_MAX..].iter().all(|open| *open), "the oldest are closed: {open:?}");

    let mut same_host = service.connect(Ipv4Addr::LOCALHOST);
    assert!(ask(&mut service, &mut same_host).starts_with(b"{"));
    let mut other_host = service.connect(NEIGHBOUR);
    assert!(ask(&mut service, &mut other_host).starts_with(b"{"));
    assert!(!is_closed(&mut switch), "an agent was closed");
}

#[test]
fn connections_from_many_addresses_lock_no_one_out() {
    let mut service = Service::start();
    let mut switch = service.connect(NEIGHBOUR);
    switch.write_all(&agent()).unwrap();
    service.turn();
    let mut idle: Vec<TcpStream> = Vec::new();
    for host in 0..100 {
        service.later(Duration::from_millis(1));
        idle.push(service.connect(Ipv4Addr::new(127, 0, 1, host)));
    }
    assert_eq!(service.connections.open.len(), 1 + VISITORS_MAX);
    let mut visitor = service.connect(Ipv4Addr::LOCALHOST);
    assert!(ask(&mut service, &mut visitor).starts_with(b"{"));
    assert!(!is_closed(&mut switch));
}

#[test]
fn waiting_visitors_are_kept_over_idle_ones() {
    let mut service = Service::start();
    let mut waiting = service.connect(Ipv4Addr::LOCALHOST);
    waiting.write_all(&[greeting(Role::Admin), frame(&encode(&AdminRequest::Ready))].concat()).unwrap();
    service.turn();
    let mut idle: Vec<TcpStream> = (0..40).map(|_| service.connect(Ipv4Addr::LOCALHOST)).collect();
    assert!(!is_closed(&mut waiting) && is_closed(&mut idle[0]));
    service.later(WAITING_MAX);
    assert!(is_closed(&mut waiting), "waiting visitors time out");
}

#[test]
fn every_connection_state_times_out() {
    let mut service = Service::start();
    let mut switch = service.connect(NEIGHBOUR);
    switch.write_all(&agent()).unwrap();
    service.turn();
    let mut silent = service.connect(Ipv4Addr::LOCALHOST);
    let mut slow_greeting = service.connect(Ipv4Addr::LOCALHOST);
    let mut slow_frame = service.connect(Ipv4Addr::LOCALHOST);
    slow_frame.write_all(&greeting(Role::Admin)).unwrap();
    service.turn();
    let mut idle = service.connect(Ipv4Addr::LOCALHOST);
    ask(&mut service, &mut idle);
    let frame = greeting(Role::Admin);
    for (second, byte) in (1..UNFINISHED_MAX.as_secs()).zip(frame.chunks(1)) {
        service.later(Duration::from_secs(1));
        // Single bytes do not extend the timeout until the frame is complete.
        for stream in [&mut slow_greeting, &mut slow_frame] {
            assert!(!is_closed(stream), "closed after {second} s");
            stream.write_all(byte).unwrap();
            service.turn();
        }
    }
    service.later(Duration::from_secs(1));
    assert!(is_closed(&mut silent) && is_closed(&mut slow_greeting));
    service.later(Duration::from_secs(1));
    assert!(is_closed(&mut slow_frame) && !is_closed(&mut idle));
    service.later(IDLE_MAX);
    assert!(is_closed(&mut idle));
    service.later(Duration::from_secs(3600));
    assert!(!is_closed(&mut switch), "an agent may be silent");
    switch.write_all(&[0, 0]).unwrap();
    service.turn();
    service.later(UNFINISHED_MAX);
    assert!(is_closed(&mut switch), "an agent must finish its frame");
}

#[test]
fn an_agent_that_dials_again_is_connected_until_its_last_connection_ends() {
    let mut service = Service::start();
    let is_connected = |service: &Service| service.core.status().switches[0].connected;
    let greeted = |service: &mut Service| {
        let mut stream = service.connect(NEIGHBOUR);
        stream.write_all(&agent()).unwrap();
        service.turn();
        stream
    };
    assert!(!is_connected(&service));
    let mut visitor = service.connect(Ipv4Addr::LOCALHOST);
    ask(&mut service, &mut visitor);
    let mut first = greeted(&mut service);
    assert!(is_connected(&service));
    let second = greeted(&mut service);
    assert!(is_closed(&mut first) && is_connected(&service), "the older connection is closed");
    assert_eq!(service.connections.open.len(), 2);
    drop(visitor);
    service.turn();
    assert!(is_connected(&service));
    drop(second);
    service.turn();
    assert!(!is_connected(&service) && service.connections.open.is_empty());
}

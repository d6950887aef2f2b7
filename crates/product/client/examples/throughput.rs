//! Measures how many ops one core can start and complete: `cargo run --release -p nicekv-client
//! --example throughput`.

use nicekv_client::{ClientCore, Config, OPERATION_TIMEOUT, Request};
use nicekv_proto::placement::Vrings;
use nicekv_proto::{ClientId, Datagram, Expiry, KeyspaceId, Now, Operation, Reply, Status};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

const OPS: u64 = 4_000_000;
const IN_FLIGHT: usize = 64;
const REPLICA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7401);

fn main() {
    let mut client =
        ClientCore::new(Config::new(ClientId::new(1_700_000_000_000, 1), Vrings::on_loopback(7400)));
    let (mut now, mut out, mut reply) = (Now::default(), Vec::new(), Vec::new());
    let (mut replica_seconds, mut completed) = (0.0, 0);
    let started = Instant::now();
    while completed < OPS {
        now.boot_ns += 20_000;
        while client.in_flight() < IN_FLIGHT {
            let key = (completed + client.in_flight() as u64).to_be_bytes();
            let set = Operation::Set { value: &[7; 64], expiry: Expiry::Never };
            client
                .submit(now, KeyspaceId::DEFAULT, Request::update(&key, set), now.after(OPERATION_TIMEOUT))
                .expect("within limits");
        }
        client.handle_deadline(now);
        while client.poll_transmit(&mut out).is_some() {
            let replica = Instant::now();
            let Ok((header, Datagram::Update(_))) = Datagram::decode(&out) else { unreachable!() };
            Reply::bare(header.op, Status::Ok).encode(&mut reply);
            replica_seconds += replica.elapsed().as_secs_f64();
            client.handle_datagram(now, REPLICA, &reply);
        }
        while client.poll_event().is_some() {
            completed += 1;
        }
    }
    let seconds = started.elapsed().as_secs_f64() - replica_seconds;
    println!(
        "{:.2} million ops a second, {:.0} ns each",
        completed as f64 / seconds / 1e6,
        seconds / completed as f64 * 1e9
    );
}

use super::*;
use core::net::Ipv4Addr;
use nicekv_proto::ClientId;
use nicekv_proto::KeyDigest;

const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;

fn at(second: u64) -> Now {
    Now { boot_ns: second * 1_000_000_000, unix_ms: second * 1_000 }
}

fn address(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

fn op(client: u64, sequence: u64) -> OpId {
    OpId { client: ClientId(client), sequence }
}

fn listen(kind: ListenKind, name: &[u8], op: OpId, count: u32) -> Listen<'_> {
    let (digest, reply_to) = (KeyDigest::default(), None);
    Listen { keyspace: KEYSPACE, op, digest, reply_to, kind, hold_ms: 3_000, count, name }
}

struct World {
    registry: Registry,
    sequence: u64,
}

fn published(keyspace: KeyspaceId, op: OpId, channel: &[u8]) -> Published<'_> {
    Published { keyspace, op, channel, message: b"m" }
}

impl World {
    fn new() -> Self {
        Self { registry: Registry::new(7), sequence: 0 }
    }

    fn listen(&mut self, second: u64, kind: ListenKind, name: &str, port: u16, count: u32) {
        self.sequence += 1;
        let listen = listen(kind, name.as_bytes(), op(u64::from(port), self.sequence), count);
        self.registry.listen(at(second), &listen, address(port)).unwrap();
    }

    /// Publishes a message. Returns the ports to which it is sent, and the number of listeners.
    fn publish(&mut self, second: u64, channel: &str) -> (Vec<u16>, u32) {
        self.sequence += 1;
        let published = published(KEYSPACE, op(99, self.sequence), channel.as_bytes());
        let (to, count) = self.registry.publish(at(second), &published).unwrap();
        let mut ports: Vec<_> = to.iter().map(SocketAddrV4::port).collect();
        ports.sort_unstable();
        (ports, count)
    }
}

use ListenKind::{Channel, Pattern};
use alloc::vec;

#[test]
fn each_address_gets_one_message_and_all_listeners_count() {
    let mut world = World::new();
    world.listen(1, Channel, "news", 1, 2);
    world.listen(1, Channel, "news", 2, 1);
    world.listen(1, Channel, "other", 3, 1);
    world.listen(1, Pattern, "n*", 1, 1);
    world.listen(1, Pattern, "n?ws", 4, 5);
    assert_eq!(world.publish(1, "news"), (vec![1, 2, 4], 9));
    assert_eq!(world.publish(1, "other"), (vec![3], 1));
    assert_eq!(world.publish(1, "nobody's"), (vec![1], 1));
    assert_eq!(world.publish(1, "silence"), (vec![], 0));
    let (to, count) = world.registry.publish(at(1), &published(KeyspaceId(5), op(98, 1), b"news")).unwrap();
    assert_eq!((to.len(), count), (0, 0), "another keyspace's");
}

#[test]
fn unrepeated_registration_expires() {
    let mut world = World::new();
    world.listen(1, Channel, "news", 1, 1);
    world.listen(3, Channel, "news", 2, 1);
    assert_eq!(world.publish(3, "news").0, [1, 2]);
    assert_eq!(world.publish(4, "news").0, [2], "the first registration has expired");
    world.listen(5, Pattern, "*", 3, 1);
    assert_eq!(world.publish(9, "news"), (vec![], 0));
    let registry = &world.registry;
    assert_eq!((registry.listeners, registry.name_bytes, registry.pattern_bytes), (0, 0, 0));
    assert!(registry.channels.is_empty() && registry.patterns.is_empty());
}

#[test]
fn latest_registration_counts_in_any_order() {
    let mut world = World::new();
    let mut say = |op, count| world.registry.listen(at(1), &listen(Channel, b"c", op, count), address(1));
    say(op(5, 2), 3).unwrap();
    say(op(5, 1), 1).unwrap();
    assert_eq!(world.publish(1, "c"), (vec![1], 3));
    let mut say = |op, count| world.registry.listen(at(1), &listen(Channel, b"c", op, count), address(1));
    // Another client process uses the address now.
    say(op(6, 1), 1).unwrap();
    assert_eq!(world.publish(1, "c"), (vec![1], 1));
    let mut say = |op, count| world.registry.listen(at(1), &listen(Channel, b"c", op, count), address(1));
    say(op(6, 2), 0).unwrap();
    assert_eq!(world.publish(1, "c"), (vec![], 0));
    let mut say = |op, count| world.registry.listen(at(2), &listen(Channel, b"c", op, count), address(1));
    // An older message of the client arrives late.
    say(op(6, 1), 1).unwrap();
    assert_eq!(world.publish(2, "c"), (vec![], 0));
    assert_eq!((world.publish(5, "c"), world.registry.listeners), ((vec![], 0), 0));
}

#[test]
fn later_acknowledgement_that_arrives_first_counts() {
    let mut world = World::new();
    let mut say = |op, count| world.registry.listen(at(1), &listen(Pattern, b"*", op, count), address(1));
    say(op(5, 2), 0).unwrap();
    say(op(5, 1), 1).unwrap();
    assert_eq!(world.publish(1, "c"), (vec![], 0));
    let mut say = |op, count| world.registry.listen(at(1), &listen(Pattern, b"*", op, count), address(1));
    say(op(5, 3), 2).unwrap();
    assert_eq!(world.publish(1, "c"), (vec![1], 2));
}

#[test]
fn repeated_message_returns_its_count() {
    let mut world = World::new();
    world.listen(1, Channel, "c", 1, 4);
    assert_eq!(world.registry.repeated(op(7, 7)), None);
    assert_eq!(world.registry.publish(at(1), &published(KEYSPACE, op(7, 7), b"c")).unwrap().1, 4);
    assert_eq!(world.registry.repeated(op(7, 7)), Some(4));
}

#[test]
fn listeners_beyond_the_bound_are_refused() {
    let mut world = World::new();
    let pattern = "x".repeat(1_024);
    for number in 0..PATTERN_BYTES_MAX / 1_024 {
        world.listen(1, Pattern, &pattern, number as u16 + 1, 1);
    }
    let refused = world.registry.listen(at(1), &listen(Pattern, b"y", op(1, 999), 1), address(1));
    assert_eq!(refused, Err(Full));
    let gone = world.registry.listen(at(1), &listen(Pattern, b"y", op(1, 1_000), 0), address(1));
    assert_eq!((gone, world.publish(1, "y")), (Ok(()), (vec![], 0)));
    world.listen(2, Pattern, &pattern, 1, 2);
    world.listen(2, Channel, "c", 1, 1);
    assert_eq!(world.publish(2, "c"), (vec![1], 1));
    // All registrations but the first have expired.
    world.listen(5, Pattern, "y", 9, 1);
    assert_eq!(world.publish(4, "y"), (vec![9], 1));
}

#[test]
fn names_and_listeners_are_bounded() {
    let mut world = World::new();
    for number in 0..LISTENERS_MAX {
        let name = (number as u32).to_be_bytes();
        world.registry.listen(at(1), &listen(Channel, &name, op(1, 1), 1), address(1)).unwrap();
    }
    let one_more = listen(Channel, b"more", op(1, 1), 1);
    assert_eq!(world.registry.listen(at(1), &one_more, address(1)), Err(Full));
    assert_eq!(world.registry.listeners(), LISTENERS_MAX);
    assert_eq!(world.registry.listen(at(5), &one_more, address(1)), Ok(()), "all others have expired");
    let long = vec![b'l'; 1_024];
    for port in 1..=(NAME_BYTES_MAX / 1_024) as u16 - 1 {
        world.registry.listen(at(5), &listen(Channel, &long, op(1, 1), 1), address(port)).unwrap();
    }
    assert_eq!(
        world.registry.listen(at(5), &listen(Channel, &long, op(1, 1), 1), address(60_000)),
        Err(Full)
    );
}

#[test]
fn long_message_is_bounded_by_its_number_of_receivers() {
    let mut world = World::new();
    let message = [7; 32 << 10];
    let most = (TOLD_BYTES_MAX / message.len()) as u16;
    let publish = |world: &mut World, sequence| {
        let published = Published { message: &message, ..published(KEYSPACE, op(7, sequence), b"") };
        world.registry.publish(at(1), &published).map(|(to, _)| to.len())
    };
    (0..most).for_each(|port| world.listen(1, Channel, "", port, 1));
    assert_eq!(publish(&mut world, 1), Some(most.into()));
    world.listen(1, Channel, "", most, 1);
    assert_eq!((publish(&mut world, 2), world.registry.repeated(op(7, 2))), (None, None));
    assert_eq!(world.publish(1, "").0.len(), usize::from(most) + 1, "a shorter message is sent");
}

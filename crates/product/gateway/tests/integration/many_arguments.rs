//! Commands with more arguments, and more keys, than the client's window has room for.

use crate::support;

use std::io::Write;
use support::{Resp, World, request};

#[test]
fn one_command_sets_reads_or_deletes_twenty_thousand_keys() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    let keys: Vec<_> = (0..20_000).map(|number| format!("key{number}").into_bytes()).collect();
    let mut pairs = vec![&b"MSET"[..]];
    pairs.extend(keys.iter().flat_map(|key| [key.as_slice(), key.as_slice()]));
    connection.send(&pairs);
    assert_eq!(connection.reply(), b"+OK\r\n");
    let on_all = |name: &'static [u8]| {
        let mut words = vec![name];
        words.extend(keys.iter().map(Vec::as_slice));
        request(&words)
    };
    let values: Vec<u8> = keys
        .iter()
        .flat_map(|key| [format!("${}\r\n", key.len()).as_bytes(), key, b"\r\n"].concat())
        .collect();
    // Later commands wait, and see the effects of the earlier ones.
    for command in [on_all(b"MGET"), on_all(b"EXISTS"), on_all(b"DEL"), request(&[b"EXISTS", b"key7"])] {
        connection.stream.write_all(&command).unwrap();
    }
    assert_eq!(connection.reply(), [b"*20000\r\n", values.as_slice()].concat());
    assert_eq!(connection.reply(), b":20000\r\n");
    assert_eq!(connection.reply(), b":20000\r\n");
    assert_eq!(connection.reply(), b":0\r\n");
}

#[test]
fn the_maximum_of_arguments_is_accepted_and_one_more_refused() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    let mut most = b"*1048576\r\n$4\r\nPING\r\n".to_vec();
    most.extend(b"$1\r\nx\r\n".repeat((1 << 20) - 1));
    connection.stream.write_all(&most).unwrap();
    assert_eq!(connection.reply(), b"-ERR wrong number of arguments for 'ping' command\r\n");
    connection.stream.write_all(b"*1048577\r\n").unwrap();
    let refusal = "-ERR Protocol error: invalid multibulk length: the limit is 1048576 arguments\r\n";
    assert_eq!(connection.rest(), refusal);
}

#[test]
fn a_command_on_many_keys_leaves_room_for_other_connections() {
    let mut world = World::new();
    let address = world.gateway(|config| config.client.in_flight_max = 4);
    let (mut long, mut short) = (Resp::connect(address), Resp::connect(address));
    let keys = (0..5_000).map(|number| format!(" key{number}")).collect::<String>();
    long.send(&format!("EXISTS{keys} last").split(' ').map(str::as_bytes).collect::<Vec<_>>());
    // Until the big command is answered, the other connection is served several times; how often
    // depends on the scheduler.
    let mut served = 0;
    while !world.requests().iter().any(|key| key == "last") {
        assert_eq!(short.call("INCR counter"), format!(":{}\r\n", served + 1));
        served += 1;
    }
    assert!(served > 3, "{served} in the time of 5,000 requests");
    assert_eq!(long.reply(), b":0\r\n");
}

#[test]
fn one_unknown_outcome_among_many_keys_is_reported() {
    let mut world = World::new();
    let address = world.gateway(|config| {
        config.timeout = nicekv_proto::Duration::from_millis(100);
        config.client.in_flight_max = 16;
    });
    let mut connection = Resp::connect(address);
    let keys = (0..200).map(|number| format!(" key{number}")).collect::<String>();
    let unknown = "-ERR outcome unknown: the update may or may not have taken effect; \
                   read the key before you decide to send the command again\r\n";
    assert_eq!(connection.call(&format!("DEL{keys} silent")), unknown);
    assert_eq!(connection.call("PING"), "+PONG\r\n");
}

//! Messages reach all subscribers, through any gateway.

use crate::support;

use nicekv_proto::Replication;
use nicekv_proto::quorum::Quorum;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;
use support::{Resp, World, info, request};

fn text(connection: &mut Resp) -> String {
    String::from_utf8(connection.reply()).unwrap()
}

fn subscribed(verb: &str, name: &str, total: usize) -> String {
    format!("*3\r\n${}\r\n{verb}\r\n${}\r\n{name}\r\n:{total}\r\n", verb.len(), name.len())
}

fn message(channel: &str, message: &str) -> String {
    format!("*3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n{message}\r\n", channel.len(), message.len())
}

trait CallAll {
    fn call_all(&mut self, commands: &[&str]);
}

impl CallAll for Resp {
    fn call_all(&mut self, commands: &[&str]) {
        for command in commands {
            assert!(self.call(command).starts_with('+'), "{command}");
        }
    }
}

fn listener(address: SocketAddr, command: &str) -> Resp {
    let mut connection = Resp::connect(address);
    assert!(connection.call(command).starts_with("*3\r\n"));
    connection
}

#[test]
fn a_message_reaches_subscribers_of_all_gateways_and_threads() {
    let mut world = World::new();
    let (one, other) = (world.gateway_of(2, |_| ()), world.gateway(|_| ()));
    let mut publisher = Resp::connect(other);
    assert_eq!(publisher.call("PUBLISH news nobody"), ":0\r\n");
    let addresses = [one, one, one, other];
    let mut listeners: Vec<_> = addresses.iter().map(|at| listener(*at, "SUBSCRIBE news")).collect();
    let mut by_pattern = listener(one, "PSUBSCRIBE n?ws");
    assert_eq!(publisher.call("PUBLISH news hello"), ":5\r\n");
    for connection in &mut listeners {
        assert_eq!(text(connection), message("news", "hello"));
    }
    let by_its_pattern = "*4\r\n$8\r\npmessage\r\n$4\r\nn?ws\r\n$4\r\nnews\r\n$5\r\nhello\r\n";
    assert_eq!(text(&mut by_pattern), by_its_pattern);
    assert_eq!(listeners[0].call("UNSUBSCRIBE news"), subscribed("unsubscribe", "news", 0));
    assert_eq!(publisher.call("PUBLISH news again"), ":4\r\n");
    assert_eq!(listeners[0].call("PING"), "+PONG\r\n", "a connection without subscriptions gets no message");
    assert_eq!(text(&mut listeners[3]), message("news", "again"));
}

/// Job queues store results in this way.
#[test]
fn a_transaction_publishes_after_it_is_applied() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut listening = listener(address, "SUBSCRIBE news");
    let (mut connection, mut other) = (Resp::connect(address), Resp::connect(address));
    connection.call_all(&["MULTI", "SET {n}a 1", "PUBLISH news one", "GET {n}a", "PUBLISH nothing two"]);
    assert_eq!(connection.call("EXEC"), "*4\r\n+OK\r\n:1\r\n$1\r\n1\r\n:0\r\n");
    assert_eq!(text(&mut listening), message("news", "one"));
    connection.call_all(&["MULTI", "PUBLISH news alone"]);
    assert_eq!(connection.call("EXEC"), "*1\r\n:1\r\n");
    assert_eq!(text(&mut listening), message("news", "alone"));
    // An aborted transaction publishes nothing.
    connection.call_all(&["WATCH {n}a", "MULTI", "PUBLISH news never", "SET {n}a 2"]);
    assert_eq!(other.call("SET {n}a 3"), "+OK\r\n");
    assert_eq!(connection.call("EXEC"), "*-1\r\n");
    connection.call_all(&["MULTI", "PUBLISH news never"]);
    assert!(connection.call("PUBLISH news").starts_with("-ERR"));
    assert!(connection.call("EXEC").starts_with("-EXECABORT"));
    assert_eq!(connection.call("PUBLISH news end"), ":1\r\n");
    assert_eq!(text(&mut listening), message("news", "end"));
}

/// Lock libraries wake waiting clients in this way.
#[test]
fn a_script_publishes_after_it_is_done() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut listening = listener(address, "SUBSCRIBE news");
    let mut connection = Resp::connect(address);
    let mut eval = |script: &str, keys: &str| {
        connection.send(&[b"EVAL", script.as_bytes(), b"1", keys.as_bytes(), b"news"]);
        text(&mut connection)
    };
    let both = "redis.call('SET', KEYS[1], 1) local told = redis.call('PUBLISH', ARGV[1], 'one') redis.call('PUBLISH', ARGV[1], 'two') return {told, {}, 'x'}";
    assert_eq!(
        eval(both, "k"),
        "*3\r\n:0\r\n*0\r\n$1\r\nx\r\n",
        "nodes do not know the number of subscribers"
    );
    assert_eq!(
        (text(&mut listening), text(&mut listening)),
        (message("news", "one"), message("news", "two"))
    );
    let fails = "redis.call('PUBLISH', ARGV[1], 'never') return redis.call('HSET', KEYS[1], 'f', 1)";
    assert!(eval(fails, "k").starts_with("-WRONGTYPE"));
    let endless = "while true do redis.call('PUBLISH', ARGV[1], string.rep('x', 1000)) end";
    assert!(eval(endless, "k").starts_with("-ERR script publishes too much"));
    connection.call_all(&["MULTI", "INCR k"]);
    connection.send(&[b"EVAL", b"return redis.call('PUBLISH', 'news', 'three')", b"1", b"k"]);
    assert_eq!(text(&mut connection), "+QUEUED\r\n");
    connection.call_all(&["INCR k"]);
    assert_eq!(connection.call("EXEC"), "*3\r\n:2\r\n:0\r\n:3\r\n");
    assert_eq!(text(&mut listening), message("news", "three"));
    connection.send(&[b"EVAL_RO", b"return redis.call('PUBLISH', 'news', 'never')", b"0"]);
    assert!(text(&mut connection).starts_with("-ERR Write commands are not allowed"));
}

#[test]
fn disconnected_subscribers_are_not_counted() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut publisher = Resp::connect(address);
    drop(listener(address, "SUBSCRIBE news"));
    drop(listener(address, "PSUBSCRIBE n*"));
    // The count drops once the gateway has noticed that the connection closed.
    while publisher.call("PUBLISH news hello") != ":0\r\n" {}
    assert_eq!(publisher.call("PUBSUB NUMPAT"), ":0\r\n");
    let mut connection = listener(address, "SUBSCRIBE news");
    assert_eq!(connection.call("RESET"), "+RESET\r\n");
    while publisher.call("PUBLISH news hello") != ":0\r\n" {}
    assert_eq!(connection.call("PING"), "+PONG\r\n");
}

#[test]
fn messages_of_one_connection_arrive_once_and_in_order() {
    let mut world = World::new();
    let address = world.gateway_of(2, |_| ());
    let mut connection = listener(address, "SUBSCRIBE numbers");
    let mut publisher = Resp::connect(address);
    let count = 2_000;
    let numbers: Vec<_> = (0..count).map(|number: usize| number.to_string()).collect();
    let publish = |number: &String| request(&[b"PUBLISH", b"numbers", number.as_bytes()]);
    publisher.stream.write_all(&numbers.iter().flat_map(publish).collect::<Vec<_>>()).unwrap();
    for number in &numbers {
        assert_eq!(text(&mut connection), message("numbers", number));
        assert_eq!(publisher.reply(), b":1\r\n");
    }
    assert_eq!(
        connection.call("PING end"),
        "*2\r\n$4\r\npong\r\n$3\r\nend\r\n",
        "no further message arrived"
    );
}

#[test]
fn subscriptions_are_renewed_before_nodes_forget_them() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = listener(address, "SUBSCRIBE news");
    let mut publisher = Resp::connect(address);
    // Nodes forget a subscription after 3 s unless it is renewed.
    std::thread::sleep(Duration::from_millis(4_500));
    assert_eq!(publisher.call("PUBLISH news late"), ":1\r\n");
    assert_eq!(text(&mut connection), message("news", "late"));
}

#[test]
fn subscriptions_that_nodes_do_not_confirm_fail() {
    let mut world = World::new();
    let address = world.gateway(|config| config.timeout = nicekv_proto::Duration::from_millis(300));
    let mut connection = Resp::connect(address);
    let refused = connection.call("SUBSCRIBE silent news");
    assert!(refused.starts_with("-ERR timed out"), "{refused}");
    assert_eq!(connection.call("PING"), "+PONG\r\n", "the connection has no subscription");
    assert_eq!(
        connection.call("PUBSUB NUMSUB silent news"),
        "*4\r\n$6\r\nsilent\r\n:0\r\n$4\r\nnews\r\n:0\r\n"
    );
}

#[test]
fn errors_name_the_limits_of_messages() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    let mut listener = listener(address, "SUBSCRIBE news");
    let longest = "m".repeat(57_340);
    connection.send(&[b"PUBLISH", b"news", longest.as_bytes()]);
    assert_eq!(connection.reply(), b":1\r\n");
    assert!(text(&mut listener) == message("news", &longest));
    connection.send(&[b"PUBLISH", b"news!", longest.as_bytes()]);
    let too_long = b"-ERR channel and message of 57345 bytes exceed the limit of 57344 bytes\r\n";
    assert_eq!(connection.reply(), too_long);
    let channel = vec![b'c'; 1 << 20];
    let too_long = b"-ERR channel of 1048576 bytes exceeds the limit of 1024 bytes\r\n";
    for verb in [b"SUBSCRIBE".as_slice(), b"PSUBSCRIBE", b"UNSUBSCRIBE"] {
        connection.send(&[verb, &channel]);
        assert_eq!(connection.reply(), too_long);
    }
    connection.send(&[b"PUBLISH", &channel, b"m"]);
    assert_eq!(
        connection.reply(),
        b"-ERR channel and message of 1048577 bytes exceed the limit of 57344 bytes\r\n"
    );
    let quorum = world.gateway(|config| {
        config.client.keyspaces[0].replication = Replication::Quorum(Quorum::new(3, 2).unwrap());
    });
    let mut connection = Resp::connect(quorum);
    for command in ["PUBLISH news m", "SUBSCRIBE news", "PSUBSCRIBE n*"] {
        let refused = connection.call(command);
        assert!(refused.starts_with("-ERR publishing needs a primary"), "{refused}");
    }
}

#[test]
fn one_connection_cannot_take_all_subscriptions() {
    const NAMES: usize = 65_536;
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let (mut greedy, mut other) = (Resp::connect(address), Resp::connect(address));
    let (mut listens_to, mut refused) = (0, String::new());
    while refused.is_empty() {
        let names: Vec<String> = (listens_to..listens_to + 1_024).map(|name| format!("c{name}")).collect();
        let reply = greedy.call(&format!("SUBSCRIBE {}", names.join(" ")));
        if reply.starts_with('-') {
            refused = reply;
            break;
        }
        (1..names.len()).for_each(|_| drop(greedy.reply()));
        listens_to += names.len();
        assert!(listens_to <= NAMES / 2, "{listens_to} of {NAMES}");
    }
    assert_eq!(listens_to, NAMES / 2, "{refused}");
    assert!(refused.contains(&format!("listens to {}", NAMES / 2)), "the error names the limit: {refused}");
    assert_eq!(other.call("SUBSCRIBE news"), subscribed("subscribe", "news", 1));
    assert_eq!(other.call("SUBSCRIBE c0"), subscribed("subscribe", "c0", 2));
}

#[test]
fn a_subscriber_that_does_not_read_is_closed() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let slow = listener(address, "SUBSCRIBE news");
    let mut publisher = Resp::connect(address);
    let publish = request(&[b"PUBLISH", b"news", &[b'm'; 1_000]]);
    let many = publish.repeat(100);
    let mut told = 1;
    for _ in 0..1_000 {
        publisher.stream.write_all(&many).unwrap();
        for _ in 0..100 {
            told = text(&mut publisher)[1..].trim_end().parse().unwrap();
        }
        if told == 0 {
            break;
        }
    }
    assert_eq!(told, 0, "100 MB exceed what the gateway keeps for a subscriber");
    assert_eq!(info(&mut publisher, "client_output_buffer_limit_disconnections"), 1);
    drop(slow);
}

#[test]
fn channel_permissions_apply_to_subscribing_and_publishing() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut admin = Resp::connect(address);
    assert_eq!(admin.call("ACL SETUSER bob on nopass +@all ~* resetchannels &news:*"), "+OK\r\n");
    let mut bob = Resp::connect(address);
    assert_eq!(bob.call("AUTH bob x"), "+OK\r\n");
    let no = "-NOPERM No permissions to access a channel\r\n";
    assert_eq!(bob.call("PUBLISH other m"), no);
    assert_eq!(bob.call("SUBSCRIBE news:1 other"), no);
    assert_eq!(bob.call("PSUBSCRIBE news:?"), no, "a pattern must equal one of the user's patterns");
    assert_eq!(bob.call("PUBLISH news:1 m"), ":0\r\n");
    assert_eq!(bob.call("PSUBSCRIBE news:*"), subscribed("psubscribe", "news:*", 1));
    assert_eq!(bob.call("SUBSCRIBE news:1"), subscribed("subscribe", "news:1", 2));
    assert!(admin.call("ACL LOG").contains("channel"));
    assert_eq!(info(&mut admin, "acl_access_denied_channel"), 3);
    assert_eq!(admin.call("ACL SETUSER bob resetchannels"), "+OK\r\n");
    assert_eq!(bob.reply_or_end(), None, "a subscriber that loses its permission is closed");
}

//! INFO, SLOWLOG, CLIENT and MONITOR.

use crate::support;

use nicekv_gateway::Stored;
use nicekv_proto::KeyspaceId;
use std::io::Write;
use std::time::Duration;
use support::{Resp, World, request};

const OK: &str = "+OK\r\n";

/// The value of a field of INFO, or of a line of CLIENT LIST.
fn field(text: &str, name: &str) -> Option<String> {
    let start = text.find(&format!("{name}:")).or_else(|| text.find(&format!("{name}=")))? + name.len() + 1;
    Some(text[start..].split([' ', '\r', '\n', ',']).next()?.to_owned())
}

/// Repeats the command until the reply fulfils the condition, because counts are updated once a
/// turn.
fn until(connection: &mut Resp, command: &str, is_so: impl Fn(&str) -> bool) -> String {
    for _ in 0..1_000 {
        let text = connection.call(command);
        if is_so(&text) {
            return text;
        }
    }
    panic!("{command}: {}", connection.call(command));
}

#[test]
fn info_shows_the_requested_sections() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    let sections = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix("# ").map(str::to_owned)).collect()
    };
    let default = sections(&connection.call("INFO"));
    assert_eq!(
        default,
        [
            "Server",
            "Clients",
            "Memory",
            "Persistence",
            "Stats",
            "Replication",
            "CPU",
            "Modules",
            "Errorstats",
            "Cluster",
            "Keyspace"
        ]
    );
    assert_eq!(sections(&connection.call("INFO default")), default);
    for all in ["INFO all", "INFO EVERYTHING", "INFO commandstats latencystats default"] {
        assert_eq!(sections(&connection.call(all)).len(), default.len() + 2, "{all}");
    }
    assert_eq!(sections(&connection.call("INFO cpu memory")), ["Memory", "CPU"]);
    let memory = connection.call("INFO memory");
    let number = |name: &str| field(&memory, name).unwrap().parse::<u64>().unwrap();
    assert!(number("used_memory") > 0 && number("used_memory") <= number("used_memory_rss"));
    assert!(number("used_memory_rss") <= number("used_memory_peak"));
}

#[test]
fn info_shows_reported_key_counts() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    let told = |connection: &mut Resp| -> Vec<String> {
        connection
            .call("INFO keyspace")
            .lines()
            .filter(|line| line.starts_with("db"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(told(&mut connection), [""; 0]);
    let stored =
        |id, keys, expiring, expiry_ms| Stored { keyspace: KeyspaceId(id), keys, expiring, expiry_ms };
    world.known.set_stored(vec![stored(3, 7, 2, 1_000), stored(1, 0, 0, 0), stored(0, 12, 0, 0)]);
    let expected = ["db0:keys=12,expires=0,avg_ttl=0", "db3:keys=7,expires=2,avg_ttl=0"];
    assert_eq!(told(&mut connection), expected, "expired keys that are not deleted yet have no time left");
    let in_an_hour_ms = nicekv_runtime::now().unix_ms + 3_600_000;
    world.known.set_stored(vec![stored(3, 7, 2, in_an_hour_ms)]);
    let text = told(&mut connection).remove(0);
    let ttl_ms = text.strip_prefix("db3:keys=7,expires=2,avg_ttl=").unwrap().parse::<u64>().unwrap();
    assert!((3_000_000..=3_600_000).contains(&ttl_ms), "{text}");
}

#[test]
fn resetstat_resets_command_and_error_counts() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    for command in ["SET k v", "GET k", "GET k", "INCR k", "GET", "HGET k f", "BOGUS", "MGET a b"] {
        connection.call(command);
    }
    let all = until(&mut connection, "INFO all", |text| text.contains("errorstat_WRONGTYPE:count=1"));
    for expected in ["errorstat_ERR:count=3\r\n", "total_error_replies:4\r\n"] {
        assert!(all.contains(expected), "{expected} in {all}");
    }
    for (command, calls, rejected, failed) in
        [("get", "2", "1", "0"), ("incr", "1", "0", "1"), ("hget", "1", "0", "1"), ("mget", "1", "0", "0")]
    {
        let line = all.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:"))).unwrap();
        let (stats, found) = (line, |name: &str| field(line, name).unwrap());
        assert_eq!(
            (found("rejected_calls"), found("failed_calls")),
            (rejected.into(), failed.into()),
            "{stats}"
        );
        assert!(line.contains(&format!(":calls={calls},usec=")), "{stats}");
        assert!(all.contains(&format!("latency_percentiles_usec_{command}:p50=")));
    }
    assert_eq!(connection.call("CONFIG RESETSTAT"), OK);
    let after = connection.call("INFO all");
    assert!(!after.contains("cmdstat_get") && !after.contains("errorstat_"), "{after}");
    assert_eq!(field(&after, "total_error_replies").unwrap(), "0");
    assert!(field(&after, "total_commands_processed").unwrap().parse::<u64>().unwrap() < 5);
}

#[test]
fn slow_commands_are_logged_without_passwords() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    assert_eq!(connection.call("SLOWLOG LEN"), ":0\r\n");
    assert_eq!(connection.call("CONFIG SET slowlog-log-slower-than 0"), OK);
    connection.call("CLIENT SETNAME me");
    connection.call("SET key value");
    connection.call("AUTH default secret");
    assert_eq!(connection.call("CONFIG SET slowlog-log-slower-than -1"), OK);
    let log = connection.call("SLOWLOG GET -1");
    assert!(
        log.contains("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n$") && log.contains("\r\n$2\r\nme\r\n"),
        "{log}"
    );
    assert!(log.contains("(redacted)") && !log.contains("secret"), "{log}");
    let length = connection.call("SLOWLOG LEN");
    assert_eq!(connection.call("PING"), "+PONG\r\n");
    assert_eq!(connection.call("SLOWLOG LEN"), length, "no more commands are logged");
    assert_eq!(connection.call("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2"), OK);
    (0..5).for_each(|_| drop(connection.call("PING")));
    assert_eq!(connection.call("SLOWLOG LEN"), ":2\r\n");
    assert!(connection.call("SLOWLOG GET 1").starts_with("*1\r\n*6\r\n"));
    connection.call("CONFIG SET slowlog-log-slower-than 1000000");
    assert_eq!(connection.call("SLOWLOG RESET"), OK);
    assert_eq!(connection.call("SLOWLOG GET"), "*0\r\n");
}

#[test]
fn client_list_and_kill_cover_all_threads() {
    let mut world = World::new();
    let address = world.gateway_of(2, |_| ());
    let mut connections: Vec<_> = (0..4).map(|_| Resp::connect(address)).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        assert_eq!(connection.call(&format!("CLIENT SETNAME n{number}")), OK);
    }
    connections[1].call("SUBSCRIBE channel");
    connections[2].call("MULTI");
    connections[2].call("SET a 1");
    connections[3].call("GET a");
    let list = connections[0].call("CLIENT LIST");
    let line =
        |name: &str| list.lines().find(|line| line.contains(&format!(" name={name} "))).unwrap().to_owned();
    assert_eq!(list.lines().filter(|line| line.starts_with("id=")).count(), 4, "{list}");
    for (name, expected) in [
        ("n0", "flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 cmd=client|list user=default"),
        ("n1", "flags=P db=0 sub=1"),
        ("n2", "flags=x db=0 sub=0 psub=0 ssub=0 multi=1 cmd=set"),
        ("n3", "cmd=get"),
    ] {
        assert!(line(name).contains(expected), "{}", line(name));
    }
    assert!(connections[0].call("CLIENT LIST TYPE pubsub").contains("name=n1"));
    assert!(!connections[0].call("CLIENT LIST TYPE normal").contains("name=n1"));
    let id = field(&line("n3"), "id").unwrap();
    let listed = connections[0].call(&format!("CLIENT LIST ID {id} 99"));
    assert!(listed.contains("name=n3") && !listed.contains("name=n0"));
    assert_eq!(connections[0].call(&format!("CLIENT KILL ID {id}")), ":1\r\n");
    assert_eq!(connections[3].rest(), "");
    let address_of_2 = connections[2].stream.local_addr().unwrap();
    assert_eq!(connections[0].call(&format!("CLIENT KILL {address_of_2}")), OK);
    assert_eq!(connections[2].rest(), "");
    assert_eq!(connections[0].call("CLIENT KILL TYPE pubsub USER default"), ":1\r\n");
    assert_eq!(connections[1].rest(), "");
    until(&mut connections[0], "INFO clients", |text| text.contains("connected_clients:1\r\n"));
    let own = connections[0].stream.local_addr().unwrap();
    assert_eq!(connections[0].call(&format!("CLIENT KILL {own}")), OK);
    assert_eq!(connections[0].rest(), "");
}

#[test]
fn monitor_shows_all_commands_without_passwords() {
    let mut world = World::new();
    let address = world.gateway_of(2, |_| ());
    let mut monitor = Resp::connect(address);
    assert_eq!(monitor.call("MONITOR"), OK);
    let mut others = [Resp::connect(address), Resp::connect(address)];
    others[0].call("SET key \"va\\lue");
    others[1].call("AUTH default secret");
    others[1].call("CONFIG GET save");
    others[0].call("GET key");
    let mut shown = Vec::new();
    while shown.last().is_none_or(|line: &String| !line.contains("GET")) {
        shown.push(String::from_utf8(monitor.reply()).unwrap());
    }
    assert_eq!(shown.len(), 3, "{shown:?}");
    for (line, expected) in shown.iter().zip([
        r#""SET" "key" "\"va\\lue""#,
        r#""AUTH" "(redacted)" "(redacted)""#,
        r#""GET" "key""#,
    ]) {
        assert!(line.starts_with("+1") && line.contains(" [0 127.0.0.1:"), "{line}");
        assert_eq!(line.trim_end().split_once("] ").unwrap().1, expected);
    }
    assert_eq!(monitor.call("RESET"), "+RESET\r\n");
    others[0].call("GET key");
    monitor.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(!monitor.has_input(), "the connection is no longer a monitor");
}

#[test]
fn a_monitor_that_does_not_read_is_closed() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut monitor = Resp::connect(address);
    assert_eq!(monitor.call("MONITOR"), OK);
    let mut other = Resp::connect(address);
    let words = "x".repeat(60_000);
    for _ in 0..1_000 {
        other.call(&format!("ECHO {words}"));
        if support::info(&mut other, "client_output_buffer_limit_disconnections") == 1 {
            return;
        }
    }
    panic!("the monitor was not closed");
}

#[test]
fn client_reply_suppresses_replies() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    let commands: [&[&[u8]]; 10] = [
        &[b"CLIENT", b"REPLY", b"SKIP"],
        &[b"SET", b"k", b"1"],
        &[b"INCR", b"k"],
        &[b"CLIENT", b"REPLY", b"OFF"],
        &[b"INCR", b"k"],
        &[b"PING"],
        &[b"BOGUS"],
        &[b"MGET", b"k", b"l"],
        &[b"CLIENT", b"REPLY", b"ON"],
        &[b"GET", b"k"],
    ];
    let bytes: Vec<u8> = commands.iter().flat_map(|words| request(words)).collect();
    connection.stream.write_all(&bytes).unwrap();
    let replies: Vec<_> = (0..3).map(|_| String::from_utf8(connection.reply()).unwrap()).collect();
    assert_eq!(replies, [":2\r\n", OK, "$1\r\n3\r\n"]);
}

#[test]
fn connections_with_no_evict_are_closed_last() {
    let mut world = World::new();
    let address = world.gateway(|config| config.memory_bytes_max = 2 << 20);
    let mut spared = Resp::connect(address);
    assert_eq!(spared.call("CLIENT NO-EVICT on"), OK);
    let mut greedy = Resp::connect(address);
    // A command without its last bytes; the first connection holds more than any other.
    let bytes = request(&vec![&b"BOGUS"[..]; 100_000]);
    spared.stream.write_all(&bytes[..bytes.len() - 5]).unwrap();
    let _ = greedy.stream.write_all(&request(&vec![&b"BOGUS"[..]; 60_000])[..500_000]);
    let told = greedy.rest();
    assert!(told.starts_with("-ERR closed"), "{told}");
    let _ = spared.stream.write_all(&bytes[bytes.len() - 5..]);
    assert!(spared.reply().starts_with(b"-ERR unknown command"));
}

#[test]
fn client_pause_holds_commands_back() {
    let mut world = World::new();
    let address = world.gateway_of(2, |_| ());
    let (mut one, mut other) = (Resp::connect(address), Resp::connect(address));
    assert_eq!(one.call("CLIENT PAUSE 60000 WRITE"), OK);
    assert_eq!(other.call("GET k"), "$-1\r\n");
    other.send(&[b"SET", b"k", b"1"]);
    other.send(&[b"PING"]);
    other.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(!other.has_input(), "the paused command and those behind it wait");
    assert_eq!(one.call("CLIENT UNPAUSE"), OK);
    other.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!([other.reply(), other.reply()], [OK.as_bytes(), b"+PONG\r\n"]);
    assert_eq!(one.call("CLIENT PAUSE 50"), OK);
    let begun = std::time::Instant::now();
    assert_eq!(other.call("GET k"), "$1\r\n1\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(40));
}

//! Scripts where they differ from Redis: transactions, users, limits.

use crate::support;

use support::{Resp, World};

fn eval(connection: &mut Resp, words: &[&str]) -> String {
    connection.send(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    String::from_utf8(connection.reply()).unwrap()
}

#[test]
fn a_failed_script_has_no_effect() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    assert_eq!(connection.call("SET {s}a before"), "+OK\r\n");
    let source = "redis.call('SET', KEYS[1], 'lost') redis.call('SET', KEYS[2], 'lost') error('no')";
    let reply = eval(&mut connection, &["EVAL", source, "2", "{s}a", "{s}b"]);
    assert!(reply.starts_with("-ERR user_script:1: no script: "), "{reply}");
    assert_eq!(connection.call("MGET {s}a {s}b"), "*2\r\n$6\r\nbefore\r\n$-1\r\n");
    let foreign = eval(&mut connection, &["EVAL", "return redis.call('GET', '{s}a')", "1", "{s}b"]);
    assert!(foreign.starts_with("-ERR Script attempted to access a non local key in a cluster node"));
}

#[test]
fn transactions_may_contain_scripts() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    assert_eq!(connection.call("MULTI"), "+OK\r\n");
    assert_eq!(connection.call("SET {s}a 5"), "+QUEUED\r\n");
    let source = "redis.call('SET', KEYS[2], redis.call('GET', KEYS[1]) .. '!') return {1, false}";
    assert_eq!(eval(&mut connection, &["EVAL", source, "2", "{s}a", "{s}b"]), "+QUEUED\r\n");
    assert_eq!(eval(&mut connection, &["EVAL", "error('no')", "1", "{s}a"]), "+QUEUED\r\n");
    assert_eq!(connection.call("GET {s}b"), "+QUEUED\r\n");
    let reply = connection.call("EXEC");
    assert!(reply.starts_with("*4\r\n+OK\r\n*2\r\n:1\r\n$-1\r\n-ERR user_script:1: no script: "), "{reply}");
    assert!(reply.ends_with(".\r\n$2\r\n5!\r\n"), "{reply}");
    assert_eq!(connection.call("MULTI"), "+OK\r\n");
    let refused = eval(&mut connection, &["EVAL", "return 1", "0"]);
    assert_eq!(refused, "+QUEUED\r\n", "EXEC reports the error");
    assert_eq!(
        connection.call("EXEC"),
        "*1\r\n-ERR scripts without keys are not allowed in transactions\r\n"
    );
}

#[test]
fn with_resp3_false_in_lua_is_null() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    connection.call("HELLO 3");
    assert_eq!(
        eval(&mut connection, &["EVAL", "return {1, false, 'a'}", "0"]),
        "*3\r\n:1\r\n_\r\n$1\r\na\r\n"
    );
}

#[test]
fn users_need_rights_to_scripts_and_their_keys() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    assert_eq!(connection.call("ACL SETUSER alice on >secret +@scripting ~a:*"), "+OK\r\n");
    assert_eq!(connection.call("ACL SETUSER bob on >secret +@all -@scripting ~*"), "+OK\r\n");
    assert_eq!(connection.call("ACL SETUSER carol on >secret +@scripting %R~a:*"), "+OK\r\n");
    for (user, command, is_allowed) in [
        ("alice", "EVAL", true),
        ("alice", "EVAL_RO", true),
        ("bob", "EVAL", false),
        ("carol", "EVAL", false),
        ("carol", "EVAL_RO", true),
    ] {
        assert_eq!(connection.call(&format!("AUTH {user} secret")), "+OK\r\n");
        let reply = eval(&mut connection, &[command, "return 1", "1", "a:1"]);
        assert_eq!(reply == ":1\r\n", is_allowed, "{user} {command}: {reply}");
        let reply = eval(&mut connection, &[command, "return 1", "2", "a:1", "b:1"]);
        assert!(reply.starts_with("-NOPERM "), "{user} {command}: {reply}");
    }
}

#[test]
fn scripts_beyond_limits_are_refused_and_others_served() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    let long = format!("return 1 --{}", "x".repeat(1 << 20));
    for words in [&["EVAL", &long, "0"][..], &["SCRIPT", "LOAD", &long]] {
        let reply = eval(&mut connection, words);
        assert!(reply.starts_with("-ERR ") && reply.contains("61440"), "{reply}");
    }
    let arguments = vec!["x".repeat(1_000); 70];
    let mut words = vec!["EVAL", "return #ARGV", "0"];
    words.extend(arguments.iter().map(String::as_str));
    let reply = eval(&mut connection, &words);
    assert!(reply.starts_with("-ERR ") && reply.contains("61440"), "{reply}");
    let halves = ["y".repeat(40_000), "z".repeat(30_000)];
    let reply = eval(&mut connection, &["EVAL", "return 1", "0", &halves[0], &halves[1]]);
    assert!(reply.starts_with("-ERR ") && reply.contains("61440"), "{reply}");
    let endless = eval(&mut connection, &["EVAL", "while true do end", "0"]);
    assert!(endless.starts_with("-ERR Script killed"), "{endless}");
    let reply = eval(&mut connection, &["EVAL", "return string.rep('x', 61440)", "0"]);
    assert!(reply.starts_with("-ERR the reply would exceed the limit"), "{reply}");
    assert_eq!(connection.call("PING"), "+PONG\r\n");
}

//! Tests: rules, what they allow, and how they are described.

use super::*;

fn sha256(bytes: &[u8]) -> [u8; 32] {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().try_into().unwrap()
}

fn user(rules: &str) -> User {
    let mut user = User::new(b"alice");
    for rule in rules.split_whitespace() {
        user.apply(rule.as_bytes(), &sha256).unwrap_or_else(|error| panic!("{rule}: {error}"));
    }
    user
}

fn described(rules: &str) -> String {
    String::from_utf8(user(rules).describe()).unwrap()
}

#[test]
fn descriptions_are_those_of_redis_and_can_be_parsed() {
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    for (rules, expected) in [
        ("", "off resetchannels -@all".to_owned()),
        (
            "on >secret ~cached:* %R~ro:* %W~wo:* -@all +@read +set +config|get -keys",
            format!("on #{hash} ~cached:* %R~ro:* %W~wo:* resetchannels -@all +@read +set +config|get -keys"),
        ),
        ("off allkeys allcommands &news.*", "off ~* resetchannels &news.* +@all".into()),
        ("on nopass allchannels +@all", "on nopass &* +@all".into()),
        ("ON NoPass >secret", format!("on #{hash} resetchannels -@all")),
        ("on >secret nopass", "on nopass resetchannels -@all".into()),
        ("on >secret >other <secret <other >secret", format!("on #{hash} resetchannels -@all")),
        ("on >secret allkeys +get reset", "off resetchannels -@all".into()),
        ("nopass resetpass ~a resetkeys &a resetchannels +get nocommands", "off resetchannels -@all".into()),
    ] {
        assert_eq!(described(rules), format!("user alice {expected}"), "{rules}");
        let again = described(rules).replace("user alice ", "");
        assert_eq!(user(&again), user(rules), "{rules}");
    }
    assert_eq!(User::open(b"default").describe(), b"user default on nopass ~* &* +@all");
}

#[test]
fn invalid_rules_change_nothing() {
    let before = user("on >secret ~* &* +get");
    for (rule, error) in [
        ("", RuleError::Syntax),
        ("foo", RuleError::Syntax),
        ("%~a", RuleError::Syntax),
        ("%RX~a", RuleError::Syntax),
        ("%R", RuleError::Syntax),
        ("~a b", RuleError::Syntax),
        ("&a b", RuleError::Syntax),
        ("~a", RuleError::AllKeys),
        ("&a", RuleError::AllChannels),
        ("+nope", RuleError::UnknownCommand),
        ("-@nope", RuleError::UnknownCommand),
        ("+", RuleError::UnknownCommand),
        ("#12", RuleError::NoHash),
        ("!zz", RuleError::NoHash),
        ("<nope", RuleError::NoSuchPassword),
        ("(+get ~a)", RuleError::Selector),
    ] {
        let mut user = before.clone();
        assert_eq!(user.apply(rule.as_bytes(), &sha256), Err(error), "{rule}");
        assert_eq!(user, before, "{rule}");
    }
}

#[test]
fn the_number_of_passwords_is_bounded() {
    let mut user = user("");
    (0..PASSWORDS_MAX).for_each(|number| user.apply(format!(">{number}").as_bytes(), &sha256).unwrap());
    assert_eq!(user.apply(b">1", &sha256), Ok(()), "a known password");
    assert_eq!(user.apply(b">more", &sha256), Err(RuleError::Syntax));
}

#[test]
fn commands_and_keys_are_checked() {
    let user = user("on nopass +@read +set -mget +config|get ~a:* %R~r:* %W~w:*");
    let number = |name: &str| Subject::find(name.as_bytes()).unwrap();
    let check = |name: &str, keys: &'static [&'static str], has_get| {
        user.check(number(name), keys.iter().map(|key| key.as_bytes()), has_get)
    };
    assert_eq!(check("get", &["a:1"], false), Ok(()));
    assert_eq!(check("get", &["w:1"], false), Err(Refusal::Key(b"w:1")));
    assert_eq!(check("exists", &["a:1", "r:1", "w:1"], false), Ok(()));
    assert_eq!(check("exists", &["a:1", "x", "y"], false), Err(Refusal::Key(b"x")));
    assert_eq!(check("set", &["w:1"], false), Ok(()));
    assert_eq!(check("set", &["w:1"], true), Err(Refusal::Key(b"w:1")));
    let mget = &SUBJECTS[number("mget")];
    assert!(matches!(check("mget", &["x"], false), Err(Refusal::Command(one)) if one.name == mget.name));
    assert_eq!(check("config|get", &[], false), Ok(()));
    assert!(check("config", &[], false).is_err());
    for name in ["auth", "hello", "quit", "reset"] {
        assert_eq!(check(name, &[], false), Ok(()), "logging in needs no permission");
    }
    assert!(!user.may_do_everything() && User::open(b"x").may_do_everything());
}

#[test]
fn debug_output_hides_passwords() {
    let user = user("on >secret");
    let shown = format!("{user:?}");
    assert!(!shown.contains("secret") && !shown.contains("2bb80d"), "{shown}");
}

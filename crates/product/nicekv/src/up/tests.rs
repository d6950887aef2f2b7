use super::UpArguments;
use clap::Args as _;
use nicekv_operator::keyspaces::CreateArguments;
use nicekv_proto::KeyspaceId;
use nicekv_proto::limits::MEMBERS_MAX;
use nicekv_proto::placement::{
    KEYSPACE_NAME_BYTES_MAX, KEYSPACE_PARTITIONS_MAX, KEYSPACE_SETTINGS, KeyspaceDefaults, KeyspaceSpec,
    PARTITIONS_MAX, RingsBase,
};

fn help(command: clap::Command) -> String {
    command.term_width(0).render_long_help().to_string()
}

/// The parser's error for an invalid text; it lists the valid values.
fn refusal(text: &str) -> String {
    let defaults =
        KeyspaceDefaults { id: KeyspaceId(1), replicas: 3, partitions: 64, rings: RingsBase::Loopback };
    KeyspaceSpec::parse(text, &defaults).expect_err(text).to_string()
}

#[test]
fn help_lists_exactly_the_settings_of_the_parser() {
    let up = help(UpArguments::augment_args(clap::Command::new("up")));
    let create = help(CreateArguments::augment_args(clap::Command::new("create")));
    // Each value is refused with its valid values, which shows that the parser knows the setting.
    let known = refusal("x=bogus=1");
    for (setting, _) in KEYSPACE_SETTINGS {
        let said = refusal(&format!("x={setting}=bogus"));
        assert!(said.contains(&format!("{setting} is \"bogus\"")), "{said}");
        assert!(known.contains(setting), "{known}");
        assert!(up.contains(&format!("\n            {setting}: ")), "up: {setting}\n{up}");
        // A user who creates a keyspace does not choose its id and rings.
        if !["id", "unicast", "multicast"].contains(&setting) {
            assert!(create.contains(&format!("--{setting} <")), "create: {setting}\n{create}");
        }
        // If the valid values are few, the help lists each.
        let values = said.split_once("must be ").unwrap().1.replace(" or ", ", ");
        if ["replication", "partitioning", "balancing", "chunks"].contains(&setting) {
            for value in values.split(", ") {
                assert!(up.contains(value) && create.contains(&format!("- {value}")), "{setting}={value}");
            }
        }
    }
    let limits =
        [MEMBERS_MAX, KEYSPACE_PARTITIONS_MAX as usize, PARTITIONS_MAX as usize, KEYSPACE_NAME_BYTES_MAX];
    for limit in limits {
        assert!(up.contains(&limit.to_string()) && create.contains(&limit.to_string()), "{limit}");
    }
}

use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

const DEFAULTS: KeyspaceDefaults =
    KeyspaceDefaults { id: KeyspaceId(1), replicas: 3, partitions: 16, rings: RingsBase::Network };

fn parse(text: &str) -> Result<KeyspaceSpec, KeyspaceError> {
    KeyspaceSpec::parse(text, &DEFAULTS)
}

#[track_caller]
fn refused(text: &str, why: &str) {
    assert_eq!(parse(text).unwrap_err().to_string(), why, "{text}");
}

#[test]
fn missing_settings_use_defaults() {
    let spec = parse("sessions").unwrap();
    let canonical = "sessions=id=1,replication=multicast,replicas=3,partitioning=hash,partitions=16,\
                     unicast=10.12.0.0/16,multicast=10.13.0.0/16";
    assert_eq!(spec.to_string(), canonical);
    assert_eq!(parse(canonical), Ok(spec));
    let spec = parse("orders=replication=chain").unwrap();
    assert_eq!((spec.protocol, spec.replication()), (Protocol::Chain, Replication::Chain));
    assert_eq!(parse(&spec.to_string()).unwrap(), spec);
    let spec = parse("sessions=replication=quorum,write-set=2,replicas=3,partitions=64").unwrap();
    assert_eq!(spec.replication(), Replication::Quorum(Quorum::new(3, 2).unwrap()));
    assert_eq!((spec.id, spec.partitions), (KeyspaceId(1), 64));
    assert_eq!(parse("orders=range,chain"), parse("orders=partitioning=range,replication=chain"));
    assert_eq!(parse("orders=hash,quorum,write-set=2"), parse("orders=replication=quorum,write-set=2"));
    let spec = parse("b=id=4,unicast=10.50.0.0/16").unwrap();
    assert_eq!((spec.unicast, spec.multicast), ([10, 50, 0, 0].into(), [10, 19, 0, 0].into()));
}

#[test]
fn object_keyspaces_state_chunk_delivery() {
    let spec = parse("objects=chunks=multicast").unwrap();
    assert_eq!(spec.chunks, Some(ChunkDelivery::Multicast));
    assert_eq!(parse(&spec.to_string()), Ok(spec));
    assert_eq!(parse("objects=range,chunks=unicast").unwrap().chunks, Some(ChunkDelivery::Unicast));
    refused("a=chunks=both", "keyspace \"a\": chunks is \"both\", but must be multicast or unicast");
    let why = "names of objects need multicast replication: their values are too long for chains, and a quorum does not order updates";
    refused("a=chain,chunks=unicast", &format!("keyspace \"a\": {why}"));
}

#[test]
fn list_assigns_unused_ids() {
    let list = parse_keyspaces(["a", "b=id=3", "c", "d"], &DEFAULTS).unwrap();
    assert_eq!(list.iter().map(|spec| spec.id.0).collect::<Vec<_>>(), [1, 3, 2, 4]);
    assert!(parse_keyspaces(["a", "b=x"], &DEFAULTS).is_err());
    let created = parse_keyspaces(["a=id=16"], &DEFAULTS).unwrap_err().to_string();
    let why = "id 16 is above 15: `nicekv keyspace create` assigns higher ones";
    assert_eq!(created, format!("keyspace \"a\": {why}"));
    assert_eq!([1, 3, 64].map(partitions_for), [8, 32, 512]);
}

#[test]
fn every_refusal_has_a_reason() {
    refused("", "keyspace \"\": a name has 1 to 64 characters, this one has 0");
    let long = "n".repeat(65);
    refused(&long, &format!("keyspace {long:?}: a name has 1 to 64 characters, this one has 65"));
    refused("a b", "keyspace \"a b\": a name consists of letters, digits, '-', '_' and '.'");
    let words = "is no setting like replicas=3, nor range, hash, chain, multicast or quorum";
    refused("a=b", &format!("keyspace \"a\": \"b\" {words}"));
    refused("a=replicas=3,", &format!("keyspace \"a\": \"\" {words}"));
    refused("a=range,partitioning=hash", "keyspace \"a\": partitioning is given twice");
    let names = settings::names();
    refused("a=engine=memory", &format!("keyspace \"a\": there is no setting \"engine\", only {names}"));
    refused("a=id=1,id=1", "keyspace \"a\": id is given twice");
    let number = "but must be a number that is not too large";
    refused("a=replicas=three", &format!("keyspace \"a\": replicas is \"three\", {number}"));
    refused("a=write-set=256", &format!("keyspace \"a\": write-set is \"256\", {number}"));
    refused(
        "a=replication=x",
        "keyspace \"a\": replication is \"x\", but must be multicast, chain or quorum",
    );
    refused("a=balancing=x", "keyspace \"a\": balancing is \"x\", but must be none, migrate or hot");
    refused("a=partitioning=x", "keyspace \"a\": partitioning is \"x\", but must be hash or range");
    for ring in ["10.12.0.0", "10.12.0.0/24", "ring/16"] {
        let why = format!("keyspace \"a\": unicast is {ring:?}, but must be a /16 like 10.12.0.0/16");
        refused(&format!("a=unicast={ring}"), &why);
    }
}

#[test]
fn inconsistent_settings_are_refused() {
    let of = |settings: &str| parse(&format!("a={settings}")).map_err(|error| error.to_string());
    let because = |settings: &str, why: &str| {
        assert_eq!(of(settings), Err(format!("keyspace \"a\": {why}")), "{settings}");
    };
    let multicast =
        "write-set belongs to quorum replication: with multicast or a chain every replica holds every put";
    because("write-set=2", multicast);
    because("write-set=2,replication=multicast", multicast);
    because("replication=chain,write-set=2", multicast);
    because("replication=quorum", "quorum replication needs a write-set, 1 to the number of replicas");
    because(
        "replication=quorum,write-set=0",
        "a write set of 0 would acknowledge puts that no replica holds",
    );
    because("replication=quorum,write-set=4", "a write set of 4 needs more replicas than the 3 there are");
    because("replicas=0", "0 replicas, allowed are 1 to 9");
    because("replicas=10", "10 replicas, allowed are 1 to 9");
    because("replicas=266,replication=quorum,write-set=5", "266 replicas, allowed are 1 to 9");
    for partitions in [0, 3, 2048] {
        let why = format!("{partitions} partitions, allowed are powers of two up to 1024");
        because(&format!("partitions={partitions}"), &why);
    }
    let hot = "hot keys need multicast: with quorum replication no node orders a key's updates, so none could close its copies";
    because("replication=quorum,write-set=2,balancing=hot", hot);
    because(
        "chain,balancing=hot",
        "hot keys need multicast: in a chain only the tail may answer gets, but the head decides updates",
    );
    because(
        "balancing=hot,partition-keys=9",
        "partition-keys and partition-bytes need balancing=migrate, which splits larger partitions",
    );
    because("unicast=10.12.1.0/16", "10.12.1.0 is not the base of a /16");
    because("multicast=10.12.0.0/16", "the ring 10.12.0.0/16 is used twice");
}

#[test]
fn shared_names_ids_or_rings_are_refused() {
    let specs = |texts: &[&str]| -> Vec<_> { texts.iter().map(|text| parse(text).unwrap()).collect() };
    let check = |texts: &[&str], nodes| {
        check_keyspaces(&specs(texts), nodes).map_err(|error| error.to_string()).err().unwrap_or_default()
    };
    assert_eq!(check(&["default=id=0", "sessions"], 3), "");
    assert_eq!(check(&[], 3), "0 keyspaces, allowed are 1 to 16");
    assert_eq!(check(&["sessions"], 3), "no keyspace has id 0, which serves requests that name no keyspace");
    assert_eq!(check(&["default=id=0", "b", "c"], 3), "keyspace \"c\": id 1 belongs to another keyspace");
    assert_eq!(check(&["b=id=0", "b"], 3), "keyspace \"b\": there is another keyspace of this name");
    assert_eq!(
        check(&["default=id=0", "b=multicast=10.10.0.0/16"], 3),
        "keyspace \"b\": the ring 10.10.0.0/16 is used twice"
    );
    assert_eq!(
        check(&["default=id=0", "b=replicas=4"], 3),
        "keyspace \"b\": 4 replicas need at least as many nodes, there are 3"
    );
    let many: Vec<_> = (0..5).map(|id| parse(&format!("k{id}=id={id},partitions=1024")).unwrap()).collect();
    assert_eq!(check_keyspaces(&many[..4], 3), Ok(()));
    assert_eq!(check_keyspaces(&many, 3), Err(KeyspaceError::TooManyPartitions { partitions: 5120 }));
}

#[test]
fn default_rings_are_disjoint_and_leave_room_for_hosts() {
    for base in [RingsBase::Network, RingsBase::Loopback] {
        let mut rings = BTreeSet::new();
        for id in 0..KEYSPACES_MAX as u16 {
            let (unicast, multicast) = base.rings(KeyspaceId(id));
            assert!(rings.insert(unicast) && rings.insert(multicast));
        }
        assert!(rings.iter().all(|ring| !(20..40).contains(&ring.octets()[1])));
    }
    assert_eq!(RingsBase::Network.rings(KeyspaceId(0)), ([10, 10, 0, 0].into(), [10, 11, 0, 0].into()));
    assert_eq!(RingsBase::Loopback.rings(KeyspaceId(1)), ([127, 12, 0, 0].into(), [127, 13, 0, 0].into()));
}

proptest! {
    #[test]
    fn printed_keyspace_round_trips(
        id in 0u16..16,
        name in "[a-z0-9._-]{1,64}",
        write_set in 0u8..=9,
        replicas in 1usize..=9,
        bits in 0u32..=10,
        is_hot: bool,
    ) {
        let protocol = match write_set {
            0 => Protocol::Multicast,
            write_set => Protocol::Quorum { write_set: write_set.min(replicas as u8) },
        };
        let default = KeyspaceSpec::of(&KeyspaceDefaults { id: KeyspaceId(id), ..DEFAULTS });
        let may_be_hot = protocol == Protocol::Multicast && is_hot;
        let balancing = if may_be_hot { LoadBalancing::Hot } else { LoadBalancing::None };
        let spec = KeyspaceSpec { name, protocol, replicas, partitions: 1 << bits, balancing, ..default };
        prop_assert_eq!(spec.is_hot(), may_be_hot);
        prop_assert_eq!(parse(&spec.to_string()), Ok(spec));
    }

    #[test]
    fn no_text_parses_to_an_inconsistent_keyspace(text in "[a-z0-9=,./-]{0,40}") {
        if let Ok(spec) = parse(&text) {
            prop_assert_eq!(spec.check(), Ok(()));
        }
    }
}

#[test]
fn range_keyspaces_match_in_key_order() {
    let spec = parse("orders=partitioning=range,partitions=4").unwrap();
    assert_eq!(spec.order, KeyOrder::Range);
    assert_eq!(parse(&spec.to_string()), Ok(spec.clone()));
    let firsts: Vec<u128> = spec.ranges().map(|range| range.first()).collect();
    assert_eq!(firsts, [0, 1 << 126, 2 << 126, 3 << 126]);
}

//! Every message survives encoding and decoding; damaged ones are refused with an error.

use proptest::prelude::*;

use super::*;

fn any_match() -> impl Strategy<Value = Match> {
    let condition = (0..Field::ALL.len(), any::<u64>(), any::<u64>(), any::<bool>());
    proptest::collection::vec(condition, 0..6).prop_map(|conditions| {
        conditions.into_iter().fold(Match::default(), |matches, (field, value, mask, is_exact)| {
            let field = Field::ALL[field];
            match matches.get(field) {
                Some(_) => matches,
                None if is_exact => matches.with(field, value & field.all_bits()),
                None => matches.masked(field, value & field.all_bits(), mask & field.all_bits()),
            }
        })
    })
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (any::<u32>(), any::<u16>()).prop_map(|(port, length_max)| Action::Output { port, length_max }),
        any::<u32>().prop_map(Action::Group),
        (0..Field::ALL.len(), any::<u64>()).prop_map(|(field, value)| {
            let field = Field::ALL[field];
            Action::Set(field, value & field.all_bits())
        }),
    ]
}

fn any_actions() -> impl Strategy<Value = Vec<Action>> {
    proptest::collection::vec(any_action(), 0..5)
}

fn any_instructions() -> impl Strategy<Value = Vec<Instruction>> {
    let instruction = prop_oneof![
        any::<u8>().prop_map(Instruction::GotoTable),
        (any::<u64>(), any::<u64>()).prop_map(|(value, mask)| Instruction::WriteMetadata { value, mask }),
        any_actions().prop_map(Instruction::Apply),
        any::<u32>().prop_map(Instruction::Meter),
    ];
    proptest::collection::vec(instruction, 0..4)
}

fn any_buckets() -> impl Strategy<Value = Vec<Vec<Action>>> {
    proptest::collection::vec(any_actions(), 0..9)
}

fn any_kind() -> impl Strategy<Value = GroupKind> {
    (0u8..4).prop_map(|kind| GroupKind::decode(kind).unwrap())
}

fn any_port() -> impl Strategy<Value = Port> {
    let flags = (any::<bool>(), any::<bool>());
    (any::<u32>(), any::<[u8; 6]>(), "[a-z0-9]{0,15}", flags).prop_map(|(number, mac, name, flags)| {
        let (is_disabled, is_down) = flags;
        Port { number, mac, name, is_disabled, is_down }
    })
}

/// Changes of tables, which may be in a bundle.
fn any_change() -> impl Strategy<Value = Message> {
    let command = prop_oneof![
        Just(FlowCommand::Add),
        Just(FlowCommand::ModifyStrict),
        Just(FlowCommand::Delete),
        Just(FlowCommand::DeleteStrict)
    ];
    let group_command =
        prop_oneof![Just(GroupCommand::Add), Just(GroupCommand::Modify), Just(GroupCommand::Delete)];
    let numbers = (any::<u8>(), any::<u16>(), any::<u64>(), any::<u64>());
    prop_oneof![
        (command, numbers, any_match(), any_instructions()).prop_map(
            |(command, (table, priority, cookie, cookie_mask), matches, instructions)| {
                let flow = FlowMod { command, table, priority, cookie, cookie_mask, matches, instructions };
                Message::FlowMod(flow)
            }
        ),
        (group_command, any_kind(), any::<u32>(), any_buckets()).prop_map(
            |(command, kind, group, buckets)| Message::GroupMod(GroupMod { command, kind, group, buckets })
        ),
        (any::<bool>(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(is_new, meter, rate, burst)| {
            let command = if is_new { MeterCommand::Add } else { MeterCommand::Modify };
            Message::MeterMod(MeterMod { command, meter, rate, burst })
        }),
        any::<u32>().prop_map(|meter| {
            Message::MeterMod(MeterMod { command: MeterCommand::Delete, meter, rate: 0, burst: 0 })
        }),
    ]
}

fn any_part() -> impl Strategy<Value = Part> {
    let text = || "[ -~]{0,31}";
    let counts = || (any::<u64>(), any::<u64>());
    let flow = ((any::<u8>(), any::<u16>(), any::<u64>()), counts(), any_match(), any_instructions())
        .prop_map(|((table, priority, cookie), (packets, bytes), matches, instructions)| FlowStatus {
            table,
            priority,
            cookie,
            packets,
            bytes,
            matches,
            instructions,
        });
    let table = (any::<u8>(), any::<u32>(), counts())
        .prop_map(|(table, flows, (lookups, matched))| TableCounts { table, flows, lookups, matched });
    let port = (any::<u32>(), any::<[u64; 6]>()).prop_map(|(port, counts)| PortCounts {
        port,
        received_packets: counts[0],
        sent_packets: counts[1],
        received_bytes: counts[2],
        sent_bytes: counts[3],
        received_dropped: counts[4],
        sent_dropped: counts[5],
    });
    let group = ((any::<u32>(), any::<u32>()), counts(), proptest::collection::vec(counts(), 0..5)).prop_map(
        |((group, references), (packets, bytes), buckets)| GroupCounts {
            group,
            references,
            packets,
            bytes,
            buckets,
        },
    );
    let group_status = (any_kind(), any::<u32>(), any_buckets())
        .prop_map(|(kind, group, buckets)| GroupStatus { kind, group, buckets });
    let description = (text(), text(), text(), text(), text()).prop_map(
        |(manufacturer, hardware, software, serial_number, datapath)| Description {
            manufacturer,
            hardware,
            software,
            serial_number,
            datapath,
        },
    );
    prop_oneof![
        description.prop_map(Part::Description),
        proptest::collection::vec(flow, 0..4).prop_map(Part::Flows),
        proptest::collection::vec(table, 0..4).prop_map(Part::Tables),
        proptest::collection::vec(port, 0..4).prop_map(Part::PortCounts),
        proptest::collection::vec(group, 0..4).prop_map(Part::GroupCounts),
        proptest::collection::vec(group_status, 0..4).prop_map(Part::Groups),
        proptest::collection::vec(any_port(), 0..4).prop_map(Part::Ports),
    ]
}

fn any_request() -> impl Strategy<Value = MultipartRequest> {
    prop_oneof![
        Just(MultipartRequest::Description),
        (any::<u8>(), any::<u64>(), any::<u64>(), any_match()).prop_map(
            |(table, cookie, cookie_mask, matches)| MultipartRequest::Flows {
                table,
                cookie,
                cookie_mask,
                matches
            }
        ),
        Just(MultipartRequest::Tables),
        Just(MultipartRequest::PortCounts),
        Just(MultipartRequest::GroupCounts),
        Just(MultipartRequest::Groups),
        Just(MultipartRequest::Ports),
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    let data = || proptest::collection::vec(any::<u8>(), 0..200);
    let role = (0u32..4, any::<u64>()).prop_map(|(role, generation)| {
        let role = [Role::Keep, Role::Equal, Role::Primary, Role::Secondary][role as usize];
        RoleStatus { role, generation }
    });
    let config = (any::<u16>(), any::<u16>())
        .prop_map(|(fragments, miss_length_max)| Config { fragments, miss_length_max });
    let packet_in =
        ((any::<Option<u16>>(), any::<u16>(), any::<u8>(), any::<u8>(), any::<u64>()), any_match(), data())
            .prop_map(|((buffer, bytes, reason, table, cookie), matches, data)| {
                let buffer = buffer.map(u32::from);
                Message::PacketIn(PacketIn { buffer, bytes, reason, table, cookie, matches, data })
            });
    let features = (any::<u64>(), any::<u32>(), any::<u8>(), any::<u8>(), any::<u32>()).prop_map(
        |(datapath, buffers, tables, auxiliary, capabilities)| {
            Message::FeaturesReply(Features { datapath, buffers, tables, auxiliary, capabilities })
        },
    );
    let port_change =
        prop_oneof![Just(PortChange::Added), Just(PortChange::Deleted), Just(PortChange::Modified)];
    prop_oneof![
        (1u8..7, any::<Option<u32>>())
            .prop_map(|(version, versions)| Message::Hello(Hello { version, versions })),
        (any::<u16>(), any::<u16>(), data()).prop_map(|(kind, code, data)| Message::Error(SwitchError {
            kind,
            code,
            data
        })),
        data().prop_map(Message::EchoRequest),
        data().prop_map(Message::EchoReply),
        Just(Message::FeaturesRequest),
        features,
        Just(Message::GetConfigRequest),
        config.clone().prop_map(Message::GetConfigReply),
        config.prop_map(Message::SetConfig),
        packet_in,
        (port_change, any_port()).prop_map(|(change, port)| Message::PortStatus { change, port }),
        (any::<u32>(), any_actions(), data())
            .prop_map(|(in_port, actions, data)| Message::PacketOut(PacketOut { in_port, actions, data })),
        any_change(),
        any_request().prop_map(Message::MultipartRequest),
        (any::<bool>(), any_part())
            .prop_map(|(has_more, part)| Message::MultipartReply(MultipartReply { has_more, part })),
        Just(Message::BarrierRequest),
        Just(Message::BarrierReply),
        role.clone().prop_map(Message::RoleRequest),
        role.prop_map(Message::RoleReply),
        (any::<u32>(), 0..8usize, any::<u16>()).prop_map(|(bundle, step, flags)| {
            Message::Bundle(BundleControl { bundle, step: BundleStep::ALL[step], flags })
        }),
        (any::<u32>(), any::<u16>(), any_change()).prop_map(|(bundle, flags, message)| {
            Message::BundleAdd(BundleAdd { bundle, flags, message: Box::new(message) })
        }),
    ]
}

fn encoded(transaction: u32, message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(transaction, message, &mut bytes).unwrap();
    bytes
}

proptest! {
    #[test]
    fn decoding_reverses_encoding(transaction: u32, message in any_message()) {
        let bytes = encoded(transaction, &message);
        prop_assert_eq!(message_bytes(&bytes), Ok(Some(bytes.len())));
        prop_assert_eq!(decode(&bytes), Ok((transaction, message)));
    }

    /// A message with one byte changed is refused, or decoded to one that can be encoded. One that
    /// is cut short is refused.
    #[test]
    fn damaged_messages_are_refused_or_decoded(
        message in any_message(),
        at: proptest::sample::Index,
        flip in 1u8..,
        cut: proptest::sample::Index,
    ) {
        let mut bytes = encoded(7, &message);
        let short = &bytes[..cut.index(bytes.len())];
        prop_assert!(decode(short).is_err());
        let index = at.index(bytes.len());
        bytes[index] ^= flip;
        if let Ok((transaction, message)) = decode(&bytes) {
            // Unknown fields, and texts that are no UTF-8, are not written again.
            let mut canonical = Vec::new();
            if encode(transaction, &message, &mut canonical).is_ok() {
                let (transaction, message) = decode(&canonical).expect("it was just encoded");
                prop_assert_eq!(encoded(transaction, &message), canonical);
            }
        }
    }

    /// A length in the middle of a message that claims more, or less, than there is.
    #[test]
    fn random_bodies_never_panic(kind in 0u8..32, body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = vec![VERSION, kind, 0, 0, 0, 0, 0, 1];
        bytes.extend_from_slice(&body);
        let length = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        let _ = decode(&bytes);
    }
}

/// The bytes of a flow as the specification lays them out, written down by hand.
#[test]
fn flow_mod_has_the_layout_of_the_specification() {
    let flow = FlowMod {
        command: FlowCommand::Add,
        table: 1,
        priority: 0x1234,
        cookie: 0x0102_0304_0506_0708,
        cookie_mask: 0,
        matches: Match::default().with(Field::EthType, 0x0800u16).masked(
            Field::Ipv4Dst,
            0x0a0a_0000u32,
            0xffff_0000,
        ),
        instructions: vec![Instruction::Apply(vec![
            Action::Set(Field::Ipv4Dst, 0x0a00_0001),
            Action::output(3),
        ])],
    };
    #[rustfmt::skip]
    let expected = [
        4, 14, 0, 0x70, 0, 0, 0, 9,                         // version, FLOW_MOD, length, transaction
        1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0,     // cookie, mask
        1, 0, 0, 0, 0, 0, 0x12, 0x34,                       // table, ADD, timeouts, priority
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,     // no buffer, any port
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,                 // any group, flags, padding
        0, 1, 0, 22,                                        // a match of 22 bytes
        0x80, 0, 0x0a, 2, 8, 0,                             // eth_type 0x0800
        0x80, 0, 0x19, 8, 10, 10, 0, 0, 255, 255, 0, 0,     // ipv4_dst 10.10.0.0/16
        0, 0,                                               // padding
        0, 4, 0, 40, 0, 0, 0, 0,                            // APPLY_ACTIONS
        0, 25, 0, 16, 0x80, 0, 0x18, 4, 10, 0, 0, 1, 0, 0, 0, 0, // set ipv4_dst
        0, 0, 0, 16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0,    // output to port 3
    ];
    assert_eq!(encoded(9, &Message::FlowMod(flow)), expected);
}

#[test]
fn unknown_fields_and_actions_of_other_controllers_are_decoded_as_such() {
    let status = FlowStatus {
        table: 0,
        priority: 1,
        cookie: 0,
        packets: 0,
        bytes: 0,
        matches: Match::default().with(Field::InPort, 1u32),
        instructions: vec![Instruction::Apply(vec![Action::Other(17)]), Instruction::Other(99)],
    };
    let reply = MultipartReply { has_more: false, part: Part::Flows(vec![status]) };
    let mut bytes = encoded(1, &Message::MultipartReply(reply.clone()));
    assert_eq!(decode(&bytes), Ok((1, Message::MultipartReply(reply))));
    // The match field's number becomes one that is unknown here.
    let field = bytes.windows(4).position(|window| window == [0x80, 0, 0, 4]).unwrap();
    bytes[field + 2] = 38 << 1;
    let Ok((_, Message::MultipartReply(MultipartReply { part: Part::Flows(flows), .. }))) = decode(&bytes)
    else {
        panic!("must be decoded")
    };
    assert!(flows[0].matches.has_others() && flows[0].matches.fields().is_empty());
    assert!(!flows[0].matches.covers(|_| Some(1)), "an unknown condition is not known to hold");
}

#[test]
fn match_field_that_occurs_twice_is_refused() {
    let matches = Match::default().with(Field::EthType, 0x0800u16).with(Field::IpProto, 17u8);
    let request = MultipartRequest::Flows { table: 0, cookie: 0, cookie_mask: 0, matches };
    let mut bytes = encoded(1, &Message::MultipartRequest(request));
    // ip_proto, of one byte, cannot become eth_type, of two: so the first becomes unknown, then both are ip_proto.
    let at = bytes.windows(4).position(|window| window == [0x80, 0, 10, 2]).unwrap();
    bytes.splice(at..at + 6, [0x80, 0, 20, 1, 17]);
    let matched = at - 4;
    bytes[matched + 3] -= 1;
    bytes.push(0);
    assert_eq!(decode(&bytes), Err(DecodeError::Repeated("match field")));
}

#[test]
fn other_versions_are_named_in_the_error() {
    let mut bytes = encoded(1, &Message::BarrierReply);
    bytes[0] = 1;
    assert_eq!(decode(&bytes), Err(DecodeError::Version(1)));
    assert_eq!(
        DecodeError::Version(1).to_string(),
        "message of OpenFlow wire version 1; 4, which is OpenFlow 1.3, is required"
    );
    // A HELLO of any version is understood, and whether 1.3 is spoken follows from it.
    for (version, versions, speaks) in [
        (1, None, false),
        (4, None, true),
        (6, None, true),
        (6, Some(1 << 6), false),
        (6, Some(1 << 4), true),
    ] {
        let hello = Hello { version, versions };
        let bytes = encoded(1, &Message::Hello(hello));
        assert_eq!(decode(&bytes), Ok((1, Message::Hello(hello))));
        assert_eq!(hello.speaks(VERSION), speaks, "{hello:?}");
    }
}

#[test]
fn message_that_is_too_long_is_refused_and_leaves_no_bytes() {
    let mut out = vec![1, 2, 3];
    let echo = Message::EchoRequest(vec![0; MESSAGE_BYTES_MAX]);
    assert_eq!(encode(1, &echo, &mut out), Err(TooLong { bytes: MESSAGE_BYTES_MAX + HEADER_BYTES }));
    let buckets = vec![vec![Action::output(1); 100]; 60];
    let group = GroupMod { command: GroupCommand::Add, kind: GroupKind::All, group: 1, buckets };
    let add = BundleAdd { bundle: 1, flags: 0, message: Box::new(Message::GroupMod(group)) };
    assert!(encode(1, &Message::BundleAdd(add), &mut out).is_err());
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn bundles_do_not_nest() {
    let control = BundleControl { bundle: 1, step: BundleStep::OpenRequest, flags: 0 };
    let add = BundleAdd { bundle: 1, flags: 0, message: Box::new(Message::Bundle(control)) };
    let bytes = encoded(1, &Message::BundleAdd(add));
    assert_eq!(decode(&bytes), Err(DecodeError::Unknown { what: "message in a bundle", value: 4 }));
}

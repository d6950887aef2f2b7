//! Tests of client records.

use super::*;
use crate::modes::bounds::CLIENTS_BYTES_MAX;
use alloc::boxed::Box;
use alloc::vec;
use nicekv_proto::Form;

impl Default for Clients {
    fn default() -> Self {
        Self::new(CLIENTS_BYTES_MAX)
    }
}

fn op(client: u64, sequence: u64) -> OpId {
    OpId { client: ClientId(client), sequence }
}

fn result(integer: i64) -> StoredResult {
    let value = Some(b"old".as_slice().into());
    StoredResult { form: Form::Plain, status: Status::Ok, version: op(1, 1), expiry_ms: 7, integer, value }
}

#[test]
fn result_is_kept_until_the_watermark_passes() {
    let mut clients = Clients::default();
    assert_eq!(clients.lookup(op(5, 1)), Lookup::New);
    clients.remember(op(5, 1), 1, result(1));
    clients.remember(op(5, 1), 2, result(2));
    assert_eq!(clients.lookup(op(5, 1)), Lookup::Finished(&result(1)));
    clients.advance(ClientId(5), 2);
    assert_eq!(clients.lookup(op(5, 1)), Lookup::Expired);
    assert_eq!(clients.lookup(op(5, 2)), Lookup::New);
}

/// Records with memory for about `count` clients of one result each.
fn room_for(count: usize) -> Clients {
    let bytes_max = count * (CLIENT_FIXED_BYTES + result(0).bytes());
    Clients::new(bytes_max)
}

#[test]
fn least_recently_used_clients_are_forgotten() {
    let mut clients = room_for(16);
    // Client 1 has the oldest id, and stays active.
    for round in 0..100 {
        clients.remember(op(1, round), 2 * round, result(1));
        clients.advance(ClientId(1), round);
        clients.remember(op(10 + round, 1), 2 * round + 1, result(2));
        assert!(clients.bytes <= clients.bytes_max);
    }
    assert_eq!(clients.lookup(op(1, 99)), Lookup::Finished(&result(1)));
    assert_eq!(clients.lookup(op(1, 100)), Lookup::New);
    assert_eq!(clients.lookup(op(109, 1)), Lookup::Finished(&result(2)));
    for forgotten in 10..90 {
        assert_eq!(clients.lookup(op(forgotten, 1)), Lookup::Expired, "{forgotten}");
        assert_eq!(clients.lookup(op(forgotten, 2)), Lookup::Expired, "the op may have been decided");
    }
    // Client 5 is older than a forgotten one, although it was perhaps never seen here.
    assert_eq!(clients.lookup(op(5, 1)), Lookup::Expired);
    assert_eq!(clients.horizon_over(ClientId(5)), Some(clients.horizon));
    assert_eq!((clients.horizon_over(ClientId(1)), clients.horizon_over(ClientId(110))), (None, None));
    assert_eq!(clients.lookup(op(110, 1)), Lookup::New);
}

#[test]
fn clients_are_forgotten_beyond_the_bound_only() {
    let mut clients = room_for(16);
    (1..=16).for_each(|client| clients.remember(op(client, 1), client, result(1)));
    assert_eq!((clients.table.len(), clients.horizon), (16, ClientId(0)));
    clients.remember(op(17, 1), 17, result(1));
    assert_eq!((clients.table.len(), clients.horizon), (14, ClientId(3)));
    clients.clear();
    assert_eq!((clients.bytes, clients.horizon, clients.lookup(op(1, 1))), (0, ClientId(0), Lookup::New));
    assert_eq!(clients.bytes_max, room_for(16).bytes_max);
}

/// A later op of the forgotten client was decided; whether its other ops were is still unknown.
#[test]
fn forgotten_client_stays_forgotten() {
    let mut clients = room_for(16);
    (1..=17).for_each(|client| clients.remember(op(client, 1), client, result(1)));
    assert_eq!(clients.lookup(op(2, 9)), Lookup::Expired);
    clients.remember(op(2, 9), 18, result(1));
    clients.advance(ClientId(2), 9);
    for sequence in [1, 9, 10] {
        assert_eq!(clients.lookup(op(2, sequence)), Lookup::Expired);
    }
}

/// The joiner has seen the newest ops of clients that the source forgets before it exports them.
#[test]
fn clients_missing_from_an_import_are_forgotten_up_to_its_horizon() {
    let mut source = room_for(16);
    (1..=16).for_each(|client| source.remember(op(client, 1), client, result(1)));
    let mut joiner = room_for(100);
    [3, 10, 20].into_iter().for_each(|client| joiner.remember(op(client, 2), 40 + client, result(2)));
    let (piece, cursor, more) = source.export(ExportCursor::START, 400);
    assert!(more && cursor.client > ClientId(3) && cursor.client < ClientId(10));
    joiner.import(&piece).unwrap();
    assert_eq!(joiner.lookup(op(11, 1)), Lookup::New, "the last piece carries the horizon");
    // Now the source forgets client 10, among others.
    (17..=28).for_each(|client| source.remember(op(client, 1), client, result(1)));
    assert_eq!(source.horizon, ClientId(12));
    joiner.import(&source.export(cursor, usize::MAX).0).unwrap();
    assert_eq!(joiner.lookup(op(3, 1)), Lookup::Finished(&result(1)));
    assert_eq!(joiner.lookup(op(3, 2)), Lookup::Finished(&result(2)));
    assert_eq!(joiner.lookup(op(10, 1)), Lookup::Expired);
    assert_eq!(joiner.lookup(op(11, 1)), Lookup::Expired);
    assert_eq!(joiner.lookup(op(20, 2)), Lookup::Finished(&result(2)));
    assert_eq!(joiner.lookup(op(20, 1)), Lookup::Finished(&result(1)));
    assert_eq!(joiner.lookup(op(29, 1)), Lookup::New);
}

/// A prepared op does not make its client known; only a decision does.
#[test]
fn watermark_alone_makes_no_client_known() {
    let mut clients = Clients::default();
    clients.advance(ClientId(5), 9);
    assert_eq!(clients.lookup(op(5, 1)), Lookup::New);
    assert_eq!(clients.bytes, 0);
}

#[test]
fn joiner_forgets_the_same_clients() {
    let mut clients = room_for(16);
    [5, 3, 9, 1, 7].into_iter().zip(1..).for_each(|(client, index)| {
        clients.remember(op(client, 1), index, result(1));
    });
    let mut copy = room_for(16);
    copy.import(&clients.export(ExportCursor::START, usize::MAX).0).unwrap();
    for both in [&mut clients, &mut copy] {
        (20..32).zip(6..).for_each(|(client, index)| both.remember(op(client, 1), index, result(1)));
    }
    assert_eq!(clients.horizon, ClientId(9), "the three least recently used clients are forgotten");
    let all = |clients: &Clients| clients.export(ExportCursor::START, usize::MAX);
    assert_eq!(all(&copy), all(&clients));
}

/// One op of the client hangs in another partition while the client sends many others.
#[test]
fn results_of_a_client_with_a_stuck_watermark_are_bounded() {
    let mut clients = Clients::default();
    let value: Box<[u8]> = vec![7; 1000].into();
    let last = 3 * (CLIENT_BYTES_MAX / value.len()) as u64;
    for sequence in 1..=last {
        clients.advance(ClientId(5), 1);
        let result = StoredResult { value: Some(value.clone()), ..result(1) };
        clients.remember(op(5, sequence), sequence, result);
        assert!(clients.bytes <= CLIENT_BYTES_MAX);
    }
    assert_eq!(clients.lookup(op(5, 1)), Lookup::Expired);
    assert!(matches!(clients.lookup(op(5, last)), Lookup::Finished(_)));
    assert_eq!(clients.lookup(op(5, last + 1)), Lookup::New);
    clients.advance(ClientId(5), last + 1);
    assert_eq!(clients.bytes, CLIENT_FIXED_BYTES);
    assert_eq!(clients.lookup(op(5, last)), Lookup::Expired);
}

#[test]
fn result_that_replaces_expired_is_counted_once() {
    let mut clients = Clients::default();
    let expired = StoredResult { status: Status::Expired, value: None, ..result(0) };
    clients.remember(op(5, 1), 1, expired);
    clients.remember(op(5, 1), 2, result(1));
    clients.remember(op(5, 1), 3, result(2));
    assert_eq!(clients.lookup(op(5, 1)), Lookup::Finished(&result(1)));
    assert_eq!(clients.bytes, CLIENT_FIXED_BYTES + result(1).bytes());
}

#[track_caller]
fn check_export(clients: &Clients, bytes_max: usize) -> usize {
    let mut copy = Clients::default();
    let (mut cursor, mut more, mut pieces) = (ExportCursor::START, true, 0);
    while more {
        let (piece, end);
        (piece, end, more) = clients.export(cursor, bytes_max);
        // The head and a result may be begun just below the bound, so a piece may exceed it.
        assert!(piece.len() < bytes_max.saturating_add(2 * 1100), "{}", piece.len());
        cursor = ExportCursor::from_bytes(&copy.import(&piece).unwrap().to_bytes());
        assert!(!more || cursor == end);
        pieces += 1;
    }
    let all = |clients: &Clients| clients.export(ExportCursor::START, usize::MAX);
    assert_eq!(all(&copy), all(clients));
    assert_eq!(copy.bytes, clients.bytes);
    pieces
}

#[test]
fn pieces_of_an_export_make_the_table() {
    let mut clients = Clients { horizon: ClientId(3), ..Clients::default() };
    for client in 10..40 {
        clients.remember(op(client, client), client, result(client as i64));
        clients.advance(ClientId(client), 5);
    }
    assert!(check_export(&clients, 200) > 3);
    assert_eq!(check_export(&clients, usize::MAX), 1);
    assert_eq!(check_export(&Clients::default(), 200), 1);
}

#[test]
fn client_with_many_results_is_exported_in_pieces() {
    let mut clients = Clients::default();
    (1..500).for_each(|sequence| clients.remember(op(5, sequence), sequence, result(1)));
    clients.advance(ClientId(5), 20);
    clients.remember(op(6, 1), 501, result(6));
    for bytes_max in [1, 50, 200, 10_000] {
        let pieces = check_export(&clients, bytes_max);
        assert!(pieces >= 480 * 47 / (bytes_max + 100), "{pieces}");
    }
}

/// The copier continues from where the last piece ended, although the source has changed meanwhile.
#[test]
fn export_continues_while_clients_advance() {
    let mut clients = Clients::default();
    (1..100).for_each(|sequence| clients.remember(op(5, sequence), sequence, result(1)));
    clients.remember(op(6, 1), 501, result(6));
    let (_, cursor, more) = clients.export(ExportCursor::START, 500);
    assert!(more && cursor.client == ClientId(5));
    clients.advance(ClientId(5), 100);
    let (piece, cursor, more) = clients.export(cursor, 500);
    let mut copy = Clients::default();
    assert_eq!((copy.import(&piece).unwrap(), more), (cursor, false));
    assert_eq!(copy.lookup(op(6, 1)), Lookup::Finished(&result(6)));
}

#[test]
fn large_values_named_by_results_are_reported() {
    let named = |sequence| {
        let name = OpId { client: ClientId(3), sequence };
        let reference = nicekv_proto::large::Reference { name, length: 5_000, checksum: 1 };
        StoredResult { value: Some(reference.bytes().into()), form: Form::Large, ..result(1) }
    };
    let name = |sequence| OpId { client: ClientId(3), sequence };
    let told = |clients: &mut Clients| clients.take_named().collect::<Vec<_>>();
    let mut clients = Clients::new(CLIENTS_BYTES_MAX);
    clients.remember(op(5, 1), 1, named(11));
    clients.remember(op(5, 2), 2, result(1));
    clients.remember(op(6, 1), 3, named(12));
    clients.remember(op(6, 1), 4, named(13));
    assert_eq!(told(&mut clients), [(name(11), true), (name(12), true)], "the first result is kept");
    assert_eq!(told(&mut clients), []);
    let mut copy = Clients::new(CLIENTS_BYTES_MAX);
    copy.import(&clients.export(ExportCursor::START, usize::MAX).0).unwrap();
    assert_eq!(told(&mut copy), [(name(11), true), (name(12), true)]);
    clients.advance(ClientId(5), 3);
    assert_eq!(told(&mut clients), [(name(11), false)]);
    clients.clear();
    assert_eq!(told(&mut clients), [(name(12), false)]);
}

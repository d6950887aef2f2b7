//! The object in the tree matches its source, and objects built from mutated sources fail. These
//! tests need clang; without it they report that they were not run. An ordinary run checks that every
//! mutation still applies and tries one of [`ORDINARY_SHARE`]; `.ci/long` tries them all.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::live_failures;
use super::namespaces::as_root;
use crate::Hook;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");
/// One of this many mutations is tried in an ordinary run.
const ORDINARY_SHARE: usize = 16;

/// Mutations of the programs: (hook at which the fixtures run, file, original text, replacement).
const MUTATIONS: [(Hook, &str, &str, &str); 69] = [
    (Hook::Xdp, "admission.h", "return !owner || *owner == ingress->port;", "return !owner || true;"),
    (Hook::Xdp, "admission.h", "owner && owner->port != ingress->port", "owner && false"),
    (Hook::Xdp, "admission.h", "ingress->sender->address == datagram->sender", "true"),
    (Hook::Xdp, "admission.h", "is_same_mac(sender->mac, ethernet->h_source)", "true"),
    (
        Hook::Tc,
        "admission.h",
        "allowed = is_node ? NICEKV_OPCODES_MULTICAST_NODE",
        "allowed = true ? NICEKV_OPCODES_MULTICAST_NODE",
    ),
    (Hook::Tc, "admission.h", "receiver->udp_port != datagram->udp->dest", "true"),
    (Hook::Tc, "pipeline.h", "if (refused >= 0)", "if (false)"),
    (Hook::Xdp, "rewrite.h", "__builtin_memcpy(ethernet->h_dest, mac, ETH_ALEN);", ""),
    (Hook::Xdp, "rewrite.h", "h_source[index] = config.router_mac[index];", "h_source[index] = 0;"),
    (Hook::Xdp, "rewrite.h", "ip->check = updated_checksum(ip->check, ip->daddr, address);", ""),
    (Hook::Xdp, "rewrite.h", "udp->check = updated_checksum(udp->check, ip->daddr, address);", ""),
    (Hook::Xdp, "rewrite.h", "if (udp->check) {", "{"),
    (Hook::Xdp, "rewrite.h", "udp->check = 0xffff;", ";"),
    (Hook::Xdp, "rewrite.h", "ip->daddr = address;", ""),
    (Hook::Xdp, "xdp.h", "group, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS", "group, 0, BPF_F_BROADCAST"),
    (Hook::Xdp, "xdp.h", "&ports, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS", "&ports, 0, BPF_F_BROADCAST"),
    (Hook::Tc, "routing.h", "decision->to.target = division->target;", ";"),
    (Hook::Xdp, "routing.h", "(address ^ division->network)", "(address ^ address)"),
    (Hook::Tc, "routing.h", "if (!vnode && datagram->header)", "if (false)"),
    (Hook::Xdp, "routing.h", "slot + 2 * (datagram->ring", "2 * (datagram->ring"),
    (Hook::Tc, "routing.h", ">> (found->ignored_bits & 15)", ""),
    (Hook::Tc, "routing.h", "found->entries[cell % NICEKV_HITS_BLOCK] += 1;", ";"),
    (Hook::Xdp, "parsing.h", "if (tagged ||", "if ("),
    (Hook::Xdp, "nicekv.bpf.c", "rewrite(&datagram, host->mac, host->address);", ""),
    (Hook::Xdp, "nicekv.bpf.c", "if (host && host->kind == NICEKV_PORT_TRUNK)", "if (false)"),
    (Hook::Tc, "routing.h", "if (host->kind == NICEKV_PORT_TRUNK)", "if (false)"),
    (Hook::Tc, "routing.h", "if (decision->to.target == decision->port)", "if (false)"),
    (Hook::Tc, "tc.h", "if (receiver->kind == NICEKV_PORT_HOST)\n\t\ttc_rewrite", "tc_rewrite"),
    (Hook::Xdp, "admission.h", "if (host->kind == NICEKV_PORT_TRUNK)", "if (false)"),
    (Hook::Tc, "admission.h", "|| !is_same_mac(server->mac, datagram->ethernet->h_source)", ""),
    (Hook::Tc, "admission.h", "&stations, &key) ? ORIGIN_REFUSED", "&stations, &key) ? ORIGIN_CLIENT"),
    (Hook::Tc, "tc.h", "next == decision->port || ", ""),
    (Hook::Tc, "tc.h", ": is_meant(host, decision->receivers)", ": true"),
    (Hook::Xdp, "nicekv.bpf.c", "return is_meant(host, metadata->receivers);", "return true;"),
    (Hook::Xdp, "nicekv.bpf.c", "return metadata->receivers >> at & 1;", "return true;"),
    (Hook::Xdp, "nicekv.bpf.c", "rewrite_port(datagram.udp);", ";"),
    (Hook::Xdp, "rewrite.h", "add_sum(udp, (__u16)~udp->dest + port);", ""),
    (Hook::Tc, "tc.h", "if (decision->by_port)\n\t\ttc_write_port", "if (false)\n\t\ttc_write_port"),
    (Hook::Tc, "tc.h", "before, port, BPF_F_MARK_MANGLED_0 |", "before, port,"),
    (Hook::Tc, "tc.h", "? decision->receivers >> at % 16 & 1 :", "? true :"),
    (
        Hook::Tc,
        "routing.h",
        "*meant = NICEKV_RECEIVERS_ALL;",
        "*meant = bpf_ntohl(address) & NICEKV_GROUP_MASK_ALL;",
    ),
    (Hook::Tc, "routing.h", "if (!(places->masks[at] & meant))", "if (false)"),
    (
        Hook::Xdp,
        "routing.h",
        "return is_any ? number << 16 | ports : 0;",
        "return is_any || true ? number << 16 | ports : 0;",
    ),
    (Hook::Tc, "routing.h", "if (datagram->ring == RING_GROUP)", "if (false)"),
    (Hook::Xdp, "pipeline.h", "FATE_COPY && !decision->by_port", "FATE_COPY"),
    (Hook::Xdp, "admission.h", "allowed = NICEKV_OPCODES_GROUP;", "allowed = NICEKV_OPCODES_MULTICAST_NODE;"),
    (Hook::Tc, "maps.h", "receiver->kind == NICEKV_PORT_TRUNK || receivers", "receivers"),
    (Hook::Xdp, "parsing.h", "return bpf_ntohs(chunk->mask);", "return chunk->mask;"),
    (Hook::Tc, "tc.h", "if (port != ingress)", "if (true)"),
    (Hook::Tc, "tc.h", ".tags = skb->vlan_present,", ""),
    (Hook::Tc, "tc.h", "bpf_skb_store_bytes(skb, 0, addresses, 2 * ETH_ALEN, 0);", ""),
    (
        Hook::Tc,
        "tc.h",
        "BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | sizeof(to)",
        "BPF_F_PSEUDO_HDR | sizeof(to)",
    ),
    (Hook::Tc, "tc.h", "from = receiver->address;", ";"),
    (
        Hook::Tc,
        "tc.h",
        "return tc_send_copy(skb, port);",
        "return port == ~0u ? tc_send_copy(skb, port) : 0;",
    ),
    (Hook::Tc, "tc.h", "offsetof(struct iphdr, daddr), &to", "offsetof(struct iphdr, saddr), &to"),
    (Hook::Xdp, "rewrite.h", "__builtin_memcpy(room, header, sizeof(*room));", ""),
    (Hook::Xdp, "rewrite.h", "(__u16)~sum ? (__u16)~sum : 0xffff", "udp->check"),
    (Hook::Tc, "tc.h", "0, sum, BPF_F_MARK_MANGLED_0);", "0, sum + 1, BPF_F_MARK_MANGLED_0);"),
    (Hook::Tc, "routing.h", "addresses[0] = address_of_node(slot, chain->tail);", ""),
    (Hook::Xdp, "routing.h", "fate != FATE_ROUTE || !datagram->room", "true"),
    (Hook::Xdp, "parsing.h", "header->room == NICEKV_ROOM_CHAIN &&", "header->room != NICEKV_ROOM_STAMP &&"),
    (Hook::Xdp, "pipeline.h", "(scan->pieces > 1 || scan->is_cut)", "scan->is_cut"),
    (Hook::Tc, "scan.h", "written.is_cut = 0;", ""),
    (Hook::Tc, "scan.h", "cut.is_cut = 1;", ""),
    (Hook::Tc, "scan.h", "put_value(cut.last, decision->border);", ""),
    (Hook::Tc, "scan.h", "decision->border[0] + !first[1]", "decision->border[0]"),
    (Hook::Xdp, "scan.h", "tc_readdress(skb, decision->udp_at, decision->to.address, addresses, to);", ""),
    (Hook::Tc, "scan.h", "scan.pieces > NICEKV_SCAN_PIECES_MAX ||", ""),
    (Hook::Tc, "scan.h", "if (decision->fate == FATE_FORWARD)", "if (false)"),
];

/// Mutations of the stage of hot keys, which the runs of hot keys must detect.
const HOT_MUTATIONS: [(Hook, &str, &str, &str); 29] = [
    (Hook::Xdp, "admission.h", "if (has_room_for_stamp(datagram))", "if (false)"),
    (Hook::Tc, "admission.h", "is_node ? NICEKV_OPCODES_UNICAST_NODE", "true ? NICEKV_OPCODES_UNICAST_NODE"),
    (Hook::Xdp, "parsing.h", "|| bytes < sizeof(*header) + sizeof(struct nicekv_stamp) ||", "||"),
    (
        Hook::Xdp,
        "pipeline.h",
        "if (is_hot && (decision->fate == FATE_ROUTE || decision->fate == FATE_COPY))",
        "if (is_hot)",
    ),
    (Hook::Tc, "hot.h", "if (!is_counted && header->room != NICEKV_ROOM_STAMP)", "if (!is_counted)"),
    (Hook::Xdp, "hot.h", "if (!is_counted && header->room", "if (header->room"),
    (Hook::Xdp, "hot.h", "is_counted = is_spread(header->keyspace);", "is_counted = 1;"),
    (
        Hook::Tc,
        "hot.h",
        "return request->room == NICEKV_ROOM_STAMP ?",
        "return request->room == NICEKV_ROOM_STAMP && entry ?",
    ),
    (Hook::Xdp, "hot.h", "__sync_fetch_and_add(&entry->seen, 1) + 1);", "entry->seen);"),
    (Hook::Tc, "hot.h", "__sync_fetch_and_add(&entry->requests, 1);", ""),
    (Hook::Xdp, "hot.h", "} else if (request->room == NICEKV_ROOM_STAMP) {", "} else {"),
    (
        Hook::Tc,
        "hot.h",
        "|| entry->holders[place].confirmed != seen)",
        "|| entry->holders[place].confirmed > seen)",
    ),
    (Hook::Xdp, "hot.h", "first = __sync_fetch_and_add(&entry->turn, 1) %", "first = entry->turn %"),
    (Hook::Tc, "hot.h", "% (holders + entry->owner_turns);", "% (holders + 1);"),
    (Hook::Xdp, "hot.h", ": first + step - holders, seen", ": NICEKV_HOT_HOLDERS_MAX, seen"),
    (
        Hook::Xdp,
        "hot.h",
        "index = slot * NICEKV_HOT_HOST_IDS +",
        "index = (slot | 1) * NICEKV_HOT_HOST_IDS +",
    ),
    (Hook::Tc, "hot.h", "__builtin_memcpy(to->mac, host->mac, ETH_ALEN);", ""),
    (Hook::Tc, "hot.h", "|| (request->is_copied && !leaves_for_servers(request, &request->to))", ""),
    (Hook::Xdp, "hot.h", "|| port == request->port", ""),
    (Hook::Tc, "hot.h", "entry->instance != said->words[0] || said->words[1]", "said->words[1]"),
    (Hook::Xdp, "hot.h", "|| said->words[1] > *(volatile __u64 *)&entry->seen", ""),
    (Hook::Tc, "hot.h", "if (entry->holders[place].id == said->sender)", "if (true)"),
    (Hook::Tc, "hot.h", "? __sync_fetch_and_add(&entry->seen, 1) + 1 :", "? seen :"),
    (Hook::Xdp, "hot.h", "return seen <= said->words[1] ?", "return true ?"),
    (Hook::Xdp, "hot.h", "return said->words[0] <= newest ? NICEKV_HOT_GONE : 0;", "return NICEKV_HOT_GONE;"),
    (Hook::Tc, "hot.h", "if (datagram->udp->len != bpf_htons(bytes) ||", "if (!bytes ||"),
    (
        Hook::Tc,
        "tc.h",
        "\t\t\tif (receiver->kind == NICEKV_PORT_HOST)\n\t\t\t\ttc_write_for_servers",
        "\t\t\t\ttc_write_for_servers",
    ),
    (Hook::Xdp, "nicekv.bpf.c", "if (metadata->has_stamp)", "if (false)"),
    (Hook::Xdp, "rewrite.h", "datagram->udp->dest = port;", "datagram->udp->dest = port + 1;"),
];

/// Mutations of the values that the switch stores, which the runs of hot keys must detect.
const VALUE_MUTATIONS: [(Hook, &str, &str, &str); 15] = [
    (Hook::Xdp, "hot_values.h", "seen = load_word(&value->seen);", "seen = load_word(&entry->seen);"),
    (Hook::Tc, "hot_values.h", "load_word(&value->instance) != entry->instance ||", ""),
    (Hook::Xdp, "hot_values.h", "if (load_word(&value->key[word]) != s->key[word])", "if (false)"),
    (Hook::Tc, "hot_values.h", "&& until_ns > now_ns", "&& until_ns"),
    (Hook::Xdp, "hot_values.h", "of_serial == serial &&", "of_serial &&"),
    (Hook::Tc, "hot_values.h", "if (nonce == *life) {", "if (nonce) {"),
    (Hook::Xdp, "hot_values.h", "|| sizeof(struct nicekv_header) + body_bytes > s->bytes ||", "||"),
    (
        Hook::Tc,
        "hot_values.h",
        "if (any || !key_bytes || key_bytes > NICEKV_KERNEL_KEY_BYTES_MAX || key_bytes > bytes",
        "if (any == 0xff || !key_bytes || key_bytes > NICEKV_KERNEL_KEY_BYTES_MAX || key_bytes > bytes",
    ),
    (Hook::Xdp, "hot_values.h", "__sync_fetch_and_add(&entry->answered, 1);", ""),
    (Hook::Tc, "replies.h", "padding_bytes & 2044, 0))", "padding_bytes & 2044, 0) == -1)"),
    (Hook::Xdp, "hot_values.h", "s->ip.id = 0;", ""),
    (Hook::Tc, "hot_values.h", "s->ip.frag_off = bpf_htons(IPV4_DONT_FRAGMENT);", ""),
    (Hook::Tc, "tc.h", "return !bpf_skb_change_tail(skb, UDP_PAYLOAD_AT + reply_bytes, 0);", "return 1;"),
    (Hook::Xdp, "xdp.h", "add_sum(&s->udp, 2 * ((__u16)~s->udp.len + length));", ""),
    (Hook::Xdp, "hot.h", "&& !request->is_refused", ""),
];

fn has_clang(name: &str) -> bool {
    nicekv_testkit::needs(&["clang"], name)
}

fn build(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(directory.join("build.sh")).args(arguments).output().expect("build.sh")
}

/// Copies the sources of the programs, and the parts of the tree that they need. Returns their
/// directory.
fn copy_sources(tree: &Path) -> PathBuf {
    let (directory, wire) = (tree.join("switch-xdp/bpf"), tree.join("proto/include"));
    std::fs::create_dir_all(&directory).and_then(|()| std::fs::create_dir_all(&wire)).expect("directories");
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/include/nicekv_wire.h");
    std::fs::copy(header, wire.join("nicekv_wire.h")).expect("copy");
    for entry in std::fs::read_dir(SOURCES).expect("sources") {
        let entry = entry.expect("sources");
        std::fs::copy(entry.path(), directory.join(entry.file_name())).expect("copy");
    }
    directory
}

#[test]
fn committed_object_matches_its_source() {
    if !has_clang("committed_object_matches_its_source") {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    let elsewhere = copy_sources(tree.path());
    for directory in [Path::new(SOURCES), &elsewhere] {
        let output = build(directory, &["--check"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let header = elsewhere.join("layout.h");
    let changed = std::fs::read_to_string(&header).unwrap().replace("MAC_CAPACITY 4096", "MAC_CAPACITY 4095");
    std::fs::write(&header, changed).unwrap();
    assert_eq!(build(&elsewhere, &["--check"]).status.code(), Some(1), "a difference must fail the check");
}

#[test]
fn mutations_of_the_programs_fail_a_fixture() {
    all_fail("mutations_of_the_programs_fail_a_fixture", &MUTATIONS, live_failures);
}

#[test]
fn mutations_of_the_hot_key_stage_fail_a_run() {
    let name = "mutations_of_the_hot_key_stage_fail_a_run";
    all_fail(name, &HOT_MUTATIONS, super::hot::live_failures);
}

#[test]
fn mutations_of_values_in_the_switch_fail_a_run() {
    let name = "mutations_of_values_in_the_switch_fail_a_run";
    all_fail(name, &VALUE_MUTATIONS, super::hot::live_failures);
}

fn all_fail(
    name: &str,
    mutations: &[(Hook, &str, &str, &str)],
    failures: impl Fn(&[u8], Hook) -> Vec<String> + Send + Sync,
) {
    as_root(name, || {
        if !has_clang(name) {
            return;
        }
        let share = if nicekv_testkit::runs_long() { 1 } else { ORDINARY_SHARE };
        for (number, &(hook, file, original, mutant)) in mutations.iter().enumerate() {
            let source = std::fs::read_to_string(Path::new(SOURCES).join(file)).unwrap();
            assert_eq!(source.matches(original).count(), 1, "{file} must contain `{original}` exactly once");
            if number % share != 0 {
                continue;
            }
            let tree = tempfile::tempdir().unwrap();
            let directory = copy_sources(tree.path());
            let path = directory.join(file);
            std::fs::write(&path, source.replace(original, mutant)).unwrap();
            let object = directory.join("mutant.o");
            let output = build(&directory, &["--output", object.to_str().unwrap()]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let failures = failures(&std::fs::read(&object).unwrap(), hook);
            assert!(
                !failures.is_empty(),
                "no fixture or run failed after the mutation of `{original}` in {file}"
            );
        }
    });
}

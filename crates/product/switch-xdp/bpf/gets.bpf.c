/*
 * Gets that a storage node's kernel answers (crate `nicekv-kernel-gets`, rules G1 to G8), at the tc ingress of the node's own interface.
 *
 *   frame -> a get for this node? -> entry of the key, open -> stamp -> gate: lease, chain -> body copied, version unchanged -> rewritten, sent back
 *              |                       |                |                  |                       |
 *              `-----------------------+----------------+------------------+-----------------------+-> passed to the process, unchanged
 *
 * Step for step the reference `Lookup`. The process writes `gates` and `entries` through shared memory; x86-64 keeps the order of its stores
 * (volatile: the compiler keeps the order of loads).
 *
 * The reply replaces the request in its own buffer, so it is at most as long (G8). Its checksum is that of the request, updated by the difference: a
 * damaged request gets a damaged reply, and a partial checksum stays partial.
 */
#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <nicekv_wire.h>

#include "gets_maps.h"
#include "replies.h"

#define IPV4_AT sizeof(struct ethhdr)
#define UDP_AT (IPV4_AT + sizeof(struct iphdr))
#define PAYLOAD_AT (UDP_AT + sizeof(struct udphdr))
#define TC_NEXT (-1)

/* Whether the frame is a whole datagram for the node's socket, linear and without IP options. `bytes`: length of its payload. */
static __always_inline bool is_ours(struct __sk_buff *skb, struct iphdr *ip, struct udphdr *udp, __u32 *bytes)
{
	if (skb->pkt_type || skb->vlan_present || skb->gso_size || skb->protocol != bpf_htons(ETH_P_IP))
		return false;
	if (bpf_skb_load_bytes(skb, IPV4_AT, ip, sizeof(*ip)) || bpf_skb_load_bytes(skb, UDP_AT, udp, sizeof(*udp)))
		return false;
	if (*(__u8 *)ip != 0x45 || ip->protocol != IPPROTO_UDP || ip->frag_off & ~bpf_htons(IPV4_DONT_FRAGMENT))
		return false;
	if (ip->daddr != config.address || udp->dest != config.port || !udp->source)
		return false;
	if (ip->saddr == ip->daddr || folded_sum(bpf_csum_diff(NULL, 0, (__be32 *)ip, sizeof(*ip), 0)) != 0xffff)
		return false;
	*bytes = skb->len - PAYLOAD_AT;
	return skb->len > PAYLOAD_AT && *bytes <= NICEKV_DATAGRAM_BYTES_MAX &&
	       bpf_ntohs(ip->tot_len) == skb->len - IPV4_AT && bpf_ntohs(udp->len) == skb->len - UDP_AT;
}

/* Not zero if the room has something that no switch writes. */
static __always_inline __u8 has_lies(const __u8 *room)
{
	const struct nicekv_chain_header *chain = (const void *)room;
	__u8 any = chain->length > sizeof(chain->nodes) / sizeof(__be32);

	for (__u32 index = 0; index < sizeof(chain->reserved); index++)
		any |= chain->reserved[index];
	for (__u32 index = 0; index < sizeof(chain->nodes); index++)
		any |= index < sizeof(__be32) * chain->length ? 0 : chain->nodes[index];
	return any;
}

/* Whether a get with room for a stamp is passed to the process, so that owners learn of hot keys. */
static __always_inline bool is_shown(const struct nicekv_header *header)
{
	__u64 op = bpf_be64_to_cpu(header->client) ^ bpf_be64_to_cpu(header->sequence);
	__u64 mixed = op * NICEKV_GETS_MULTIPLIER;

	return !((mixed ^ mixed >> 32) * NICEKV_GETS_MULTIPLIER >> (64 - NICEKV_GETS_SHOWN_BITS));
}

/* Parses a get in the scratch as strictly as `GetRequest::parse`. */
__noinline int read_request(void)
{
	struct scratch *s = scratch_of_cpu();
	struct nicekv_header *header;
	__u32 at = sizeof(*header);
	__u8 any = 0;

	if (!s || s->bytes < sizeof(*header) + GET_FIXED_BYTES || s->bytes > NICEKV_DATAGRAM_BYTES_MAX)
		return 0;
	header = (void *)s->request;
	if (header->magic != bpf_htons(NICEKV_MAGIC) || header->version != NICEKV_VERSION ||
	    header->opcode != NICEKV_OPCODE_GET || header->reserved || header->room > NICEKV_ROOM_STAMP || header->reply_to_port ||
	    bpf_ntohs(header->body_length) != s->bytes - sizeof(*header))
		return 0;
	s->has_chain = header->room == NICEKV_ROOM_CHAIN;
	s->instance = s->seen = 0;
	if (s->has_chain) {
		__builtin_memcpy(s->chain, s->request + at, sizeof(s->chain));
		any |= has_lies(s->request + at);
		at += sizeof(s->chain);
	} else if (header->room == NICEKV_ROOM_STAMP) {
		const struct nicekv_stamp *stamp = (const void *)(s->request + at);

		/* Without a stamp it took the default route; a number without an instance is malformed. */
		s->instance = bpf_be64_to_cpu(stamp->instance);
		s->seen = bpf_be64_to_cpu(stamp->seen);
		any |= !s->instance && (s->seen || is_shown(header));
		at += sizeof(*stamp);
	}
	for (int index = 0; index < 4; index++)
		any |= header->reply_to_ip[index];
	if (any)
		return 0;
	s->key_bytes = read_key(s->request, at, s->bytes, s->key);
	s->shape = (__u64)bpf_ntohs(header->keyspace) << 32 | s->key_bytes << 16;
	__builtin_memcpy(s->digest, header->digest, sizeof(s->digest));
	return s->key_bytes != 0;
}

/* Whether an open entry is that of the key, and of the requested kind: a member's, or a copy of an instance. */
__noinline int is_of_key(__u32 at)
{
	struct entry *entry = bpf_map_lookup_elem(&entries, &at);
	struct scratch *s = scratch_of_cpu();

	if (!entry || !s || (load_word(&entry->words[NICEKV_GETS_SHAPE]) & ~0xffffULL) != s->shape)
		return 0;
	for (__u32 word = 0; word < 2; word++)
		if (load_word(&entry->words[NICEKV_GETS_DIGEST + word]) != s->digest[word])
			return 0;
	for (__u32 word = 0; word < KEY_WORDS; word++) {
		if (8 * word >= s->key_bytes)
			break;
		if (load_word(&entry->words[NICEKV_GETS_KEY + word]) != s->key[word])
			return 0;
	}
	return load_word(&entry->words[NICEKV_GETS_INSTANCE]) == s->instance;
}

/* Checks the gate of an entry. */
__noinline int at_gate(__u32 number)
{
	struct gate *gate = bpf_map_lookup_elem(&gates, &number);
	struct scratch *s = scratch_of_cpu();

	if (!gate || !s || load_word(&gate->words[NICEKV_GETS_LEASE]) <= s->now_ns)
		return NICEKV_GETS_OUTCOME_LEASE;
	for (__u32 word = 0; s->has_chain && word < NICEKV_GETS_HITS - NICEKV_GETS_CHAIN; word++)
		if (load_word(&gate->words[NICEKV_GETS_CHAIN + word]) != s->chain[word])
			return NICEKV_GETS_OUTCOME_CHAIN;
	return NICEKV_GETS_OUTCOME_HIT;
}

/* Copies the reply's body, followed by zeros as far as the request went: then truncating the frame does not change the checksum. */
__noinline int copy_body(__u32 at, __u32 body_bytes)
{
	struct entry *entry = bpf_map_lookup_elem(&entries, &at);
	struct scratch *s = scratch_of_cpu();
	__u8 *to;

	if (!entry || !s)
		return 0;
	for (__u32 word = 0; word < PAYLOAD_BYTES_MAX / 8 && 8 * word < s->bytes; word++)
		__builtin_memset(s->reply + 8 * word, 0, 8);
	to = s->reply + sizeof(struct nicekv_header);
	for (__u32 word = 0; word < BODY_WORDS; word++) {
		__u64 value;

		if (8 * word >= body_bytes)
			break;
		value = load_word(&entry->words[NICEKV_GETS_BODY + word]);
		if (body_bytes - 8 * word < 8)
			value &= (1ULL << 8 * (body_bytes - 8 * word)) - 1;
		__builtin_memcpy(to + 8 * word, &value, 8);
	}
	return 0;
}

/* Counts the client, as far as there are cells. */
__noinline int count_source(__u32 number)
{
	struct scratch *s = scratch_of_cpu();
	__u64 name;
	__u32 first;

	if (!s)
		return 0;
	name = ((__u64)number + 1) << 32 | s->source;
	first = (name * NICEKV_GETS_MULTIPLIER) >> 32;
	for (__u32 place = 0; place < NICEKV_GETS_SOURCE_PLACES; place++) {
		__u32 at = (first + place) % NICEKV_GETS_SOURCES;
		struct source *source = bpf_map_lookup_elem(&sources, &at);

		if (!source)
			break;
		if (!load_word(&source->name))
			__sync_val_compare_and_swap(&source->name, 0, name);
		if (load_word(&source->name) == name) {
			__sync_fetch_and_add(&source->gets, 1);
			break;
		}
	}
	return 0;
}

/* Handles an entry whose version is odd; returns the outcome of the get. */
__noinline int answer_from(__u32 at, __u64 version)
{
	struct entry *entry = bpf_map_lookup_elem(&entries, &at);
	struct scratch *s = scratch_of_cpu();
	struct gate *gate;
	__u32 body_bytes, number;
	int outcome;

	if (!entry || !s)
		return NICEKV_GETS_OUTCOME_ABSENT;
	body_bytes = load_word(&entry->words[NICEKV_GETS_SHAPE]) & 0xffff;
	if (body_bytes > 8 * BODY_WORDS)
		body_bytes = 8 * BODY_WORDS;
	if (load_word(&entry->words[NICEKV_GETS_SEEN]) < s->seen)
		return NICEKV_GETS_OUTCOME_STAMP;
	number = load_word(&entry->words[NICEKV_GETS_GATE]);
	outcome = at_gate(number);
	if (outcome != NICEKV_GETS_OUTCOME_HIT)
		return outcome;
	if (sizeof(struct nicekv_header) + body_bytes > s->bytes)
		return NICEKV_GETS_OUTCOME_ROOM;
	copy_body(at, body_bytes);
	if (load_word(&entry->words[NICEKV_GETS_VERSION]) != version)
		return NICEKV_GETS_OUTCOME_CHANGED;
	*(volatile __u64 *)&entry->words[NICEKV_GETS_USED] = s->now_ns;
	s->reply_bytes = sizeof(struct nicekv_header) + body_bytes;
	gate = bpf_map_lookup_elem(&gates, &number);
	if (gate)
		__sync_fetch_and_add(&gate->words[NICEKV_GETS_HITS], 1);
	/* Gets of copies are not counted by client. */
	if (s->instance)
		return NICEKV_GETS_OUTCOME_COPY;
	count_source(number);
	return NICEKV_GETS_OUTCOME_HIT;
}

/* Tries the entries where the key may be. */
__noinline int look_up(void)
{
	struct scratch *s = scratch_of_cpu();
	__u64 mixed;
	__u32 first;
	int outcome = NICEKV_GETS_OUTCOME_ABSENT;

	if (!s)
		return outcome;
	mixed = (s->digest[0] ^ (s->digest[1] << 29 | s->digest[1] >> 35) ^ s->shape >> 32) * NICEKV_GETS_MULTIPLIER;
	first = ((__u32)(mixed >> 32) & (config.entries - 1)) & ~(NICEKV_GETS_WAYS - 1);
	for (__u32 way = 0; way < NICEKV_GETS_WAYS; way++) {
		__u32 at = first + way;
		struct entry *entry = bpf_map_lookup_elem(&entries, &at);
		__u64 version;

		if (!entry)
			break;
		version = load_word(&entry->words[NICEKV_GETS_VERSION]);
		if (!(version & 1)) {
			if (version)
				outcome = NICEKV_GETS_OUTCOME_CLOSED;
			continue;
		}
		if (is_of_key(at))
			return answer_from(at, version);
	}
	return outcome;
}

/* Turns the request into the reply; returns whether it did. The checksum helper is told the length twice: in the UDP header and in the pseudo-header. */
static __always_inline bool rewrite(struct __sk_buff *skb, struct scratch *s, struct iphdr *ip, struct udphdr *udp)
{
	__u32 bytes = s->bytes, reply_bytes = s->reply_bytes, check_at = UDP_AT + offsetof(struct udphdr, check);
	__be16 length = bpf_htons(reply_bytes + sizeof(*udp)), ports[2] = { udp->dest, udp->source };
	__be32 address = ip->saddr;
	__s64 sum;

	write_reply_header(s->reply, s->request, reply_bytes - sizeof(struct nicekv_header));
	if (bytes < sizeof(struct nicekv_header) || bytes > NICEKV_DATAGRAM_BYTES_MAX || reply_bytes > bytes)
		return false;
	sum = bpf_csum_diff((__be32 *)s->request, (bytes + 3) & ~3, (__be32 *)s->reply, (bytes + 3) & ~3, 0);
	if (bpf_skb_store_bytes(skb, PAYLOAD_AT, s->reply, bytes, 0))
		return false;
	bpf_l4_csum_replace(skb, check_at, 0, sum, BPF_F_MARK_MANGLED_0);
	bpf_l4_csum_replace(skb, check_at, udp->len, length, BPF_F_MARK_MANGLED_0 | sizeof(length));
	bpf_l4_csum_replace(skb, check_at, udp->len, length, BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | sizeof(length));
	bpf_skb_store_bytes(skb, UDP_AT, ports, sizeof(ports), 0);
	bpf_skb_store_bytes(skb, UDP_AT + offsetof(struct udphdr, len), &length, sizeof(length), 0);
	ip->tos = 0;
	ip->id = 0;
	ip->frag_off = bpf_htons(IPV4_DONT_FRAGMENT);
	ip->ttl = IPV4_TTL;
	ip->tot_len = bpf_htons(reply_bytes + PAYLOAD_AT - IPV4_AT);
	ip->saddr = ip->daddr;
	ip->daddr = address;
	ip->check = 0;
	ip->check = ~folded_sum(bpf_csum_diff(NULL, 0, (__be32 *)ip, sizeof(*ip), 0));
	bpf_skb_store_bytes(skb, IPV4_AT, ip, sizeof(*ip), 0);
	bpf_skb_change_tail(skb, PAYLOAD_AT + reply_bytes, 0);
	return true;
}

SEC("classifier")
int nicekv_gets(struct __sk_buff *skb)
{
	struct scratch *s = scratch_of_cpu();
	struct iphdr ip;
	struct udphdr udp;
	__u64 *counter;
	__u32 bytes, outcome;
	__u8 first[4];

	/* Most frames for a node are not gets: one check rejects them. */
	if (!s || bpf_skb_load_bytes(skb, PAYLOAD_AT, first, sizeof(first)) || first[3] != NICEKV_OPCODE_GET)
		return TC_NEXT;
	if (!is_ours(skb, &ip, &udp, &bytes))
		return TC_NEXT;
	/* The compiler knows this, the verifier does not. */
	asm volatile("" : "+r"(bytes));
	if (bytes < sizeof(struct nicekv_header) || bytes > NICEKV_DATAGRAM_BYTES_MAX)
		return TC_NEXT;
	if (bpf_skb_load_bytes(skb, PAYLOAD_AT, s->request, bytes))
		return TC_NEXT;
	__builtin_memset(s->request + bytes, 0, 8);
	s->bytes = bytes;
	s->source = bpf_ntohl(ip.saddr);
	if (!read_request())
		return TC_NEXT;
	s->now_ns = bpf_ktime_get_boot_ns();
	outcome = look_up();
	counter = bpf_map_lookup_elem(&outcomes, &outcome);
	if (counter)
		*counter += 1;
	if (outcome != NICEKV_GETS_OUTCOME_HIT && outcome != NICEKV_GETS_OUTCOME_COPY)
		return TC_NEXT;
	if (!rewrite(skb, s, &ip, &udp))
		return TC_NEXT;
	/* The sender may be a switch that acts as a router: the kernel knows the way back. */
	return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
}

char LICENSE[] SEC("license") = "Apache-2.0";

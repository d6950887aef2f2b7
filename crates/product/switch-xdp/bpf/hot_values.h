/*
 * Values of hot keys in the switch itself (H9). Step for step the reference model's hot/values.rs, which states the rules.
 *
 *   HotValue -> entry allows one, of this instance and number -> slot locked -> key and reply copied -> unlocked
 *   get      -> clock -> version, even -> instance, number, key -> reply copied -> version and number unchanged -> lease > clock -> rewritten, sent back
 *
 * A writer of a slot or a lease makes its version odd by compare-and-swap, and even again when it is done. A second writer that finds it odd drops
 * its message, which is retransmitted. A reader discards what it read during a write. A number never falls, so if it is the same after the copy, it
 * was the same before.
 *
 * A value is shown to gets that came before its owner's lease ended: the clock is read first. x86-64 keeps the order of loads and the order of stores
 * (volatile: so does the compiler).
 */
#pragma once

#include "hot_maps.h"
#include "parsing.h"
#include "replies.h"

#define UDP_PAYLOAD_AT (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))
/* Offset of the body in a get with room for a stamp. */
#define FORWARDED_AT (sizeof(struct nicekv_header) + sizeof(struct nicekv_stamp))
#define ASKED_KEY_AT (FORWARDED_AT + GET_FIXED_BYTES)
/* Offset of the body in an offered value. */
#define VALUE_KEY_AT (sizeof(struct nicekv_header) + sizeof(struct nicekv_hot_value))
#define REPLY_WORDS (NICEKV_REPLY_BODY_BYTES_MAX / 8)
_Static_assert(NICEKV_REPLY_BODY_BYTES_MAX % 8 == 0, "whole words");

/* The value of an entry. `version`: 0 until there is one, odd while it is written. `owner`: its host id. Zeros follow the key, and the reply in its last word. */
struct hot_value {
	__u64 version;
	__u64 instance;
	__u64 seen;
	__u64 serial;
	__u32 owner;
	__u16 key_bytes;
	__u16 reply_bytes;
	__u64 key[KEY_WORDS];
	__u64 reply[REPLY_WORDS];
};

/* [position of an entry, minus one]. Filled by the data path. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NICEKV_HOT_VALUES_MAX);
	__type(key, __u32);
	__type(value, struct hot_value);
} hot_values SEC(".maps");

/* Until when the values of an owner with this serial may be shown. */
struct hot_lease {
	__u64 version;
	__u64 serial;
	__u64 until_ns;
};

/* [host id]. Filled by the data path. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NICEKV_HOT_HOST_IDS);
	__type(key, __u32);
	__type(value, struct hot_lease);
} hot_leases SEC(".maps");

/* [0]: identifies this incarnation of the switch; not 0. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hot_life SEC(".maps");

/* A get with its headers, which becomes the reply; or the part of an offered value before the key. `difference`: of the payloads' checksums. */
struct hot_scratch {
	__u8 reserved[2];
	struct ethhdr ethernet;
	struct iphdr ip;
	struct udphdr udp;
	__u8 unused[4];
	__u8 request[REQUEST_BYTES_MAX];
	__u8 reply[PAYLOAD_BYTES_MAX];
	__u64 key[KEY_WORDS];
	__u64 now_ns;
	__u32 bytes;
	__u32 key_bytes;
	__u32 reply_bytes;
	__u32 difference;
};

/* [0]: the request that this processor is handling. Filled by the data path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hot_scratch);
} hot_scratch SEC(".maps");

static __always_inline struct hot_scratch *hot_scratch_of_cpu(void)
{
	return bpf_map_lookup_elem(&hot_scratch, &(__u32){ 0 });
}

static __always_inline void store_word(__u64 *word, __u64 value)
{
	*(volatile __u64 *)word = value;
}

/* Hides a number from the compiler, so that its bounds check stays for the verifier to see. */
static __always_inline __u32 load_bounded(const __u32 *number)
{
	return *(const volatile __u32 *)number;
}

/* Locks a version; returns whether it succeeded. */
static __always_inline bool lock_version(__u64 *version)
{
	__u64 before = load_word(version);

	return !(before & 1) && __sync_val_compare_and_swap(version, before, before + 1) == before;
}

static __always_inline struct hot_value *value_of(const struct nicekv_hot_entry *entry)
{
	__u32 at = entry->value_place - 1;

	return bpf_map_lookup_elem(&hot_values, &at);
}

/* Renews the lease of an owner, or only tells the time. Returns whether to reply; then `words` has the incarnation and the time. */
static __always_inline bool lease_hot(__u32 owner, __u64 until_ns, __u64 serial, __u64 *words)
{
	struct hot_lease *lease = bpf_map_lookup_elem(&hot_leases, &owner);
	__u64 *life = bpf_map_lookup_elem(&hot_life, &(__u32){ 0 }), nonce = words[0];

	if (!lease || !life || !*life)
		return false;
	if (nonce == *life) {
		if (!lock_version(&lease->version))
			return false;
		store_word(&lease->serial, serial);
		store_word(&lease->until_ns, until_ns);
		store_word(&lease->version, lease->version + 1);
	}
	words[0] = *life;
	words[1] = bpf_ktime_get_boot_ns();
	return true;
}

static __always_inline bool is_leased(__u32 owner, __u64 serial, __u64 now_ns)
{
	struct hot_lease *lease = bpf_map_lookup_elem(&hot_leases, &owner);
	__u64 version, of_serial, until_ns;

	if (!lease)
		return false;
	version = load_word(&lease->version);
	of_serial = load_word(&lease->serial);
	until_ns = load_word(&lease->until_ns);
	return !(version & 1) && load_word(&lease->version) == version && of_serial == serial && until_ns > now_ns;
}

/*
 * Handles an offered value of this many bytes with its header; the scratch has the part before the key. Returns whether its entry allows it: then the
 * slot is locked and has everything but key and reply.
 */
__noinline int begin_value(__u32 bytes, __u32 owner)
{
	struct hot_scratch *s = hot_scratch_of_cpu();
	const struct nicekv_hot_value *offered;
	struct nicekv_hot_key key = {};
	struct nicekv_hot_entry *entry;
	struct hot_value *value;
	__u32 key_bytes, last_word;
	__u8 any = 0;

	if (!s)
		return 0;
	offered = (void *)(s->request + sizeof(struct nicekv_header));
	key_bytes = bpf_ntohs(offered->key_length);
	for (__u32 index = 0; index < sizeof(offered->reserved); index++)
		any |= offered->reserved[index];
	bytes -= sizeof(struct nicekv_header) + sizeof(*offered);
	if (any || !key_bytes || key_bytes > NICEKV_KERNEL_KEY_BYTES_MAX || key_bytes > bytes ||
	    bytes - key_bytes > NICEKV_REPLY_BODY_BYTES_MAX)
		return 0;
	set_hot_key(&key, (void *)s->request);
	entry = bpf_map_lookup_elem(&hot_entries, &key);
	if (!entry || !entry->value_place || entry->instance != bpf_be64_to_cpu(offered->instance) ||
	    load_word(&entry->seen) != bpf_be64_to_cpu(offered->seen))
		return 0;
	value = value_of(entry);
	if (!value || !lock_version(&value->version))
		return 0;
	if (value->instance == entry->instance && value->seen > bpf_be64_to_cpu(offered->seen)) {
		store_word(&value->version, value->version + 1);
		return 0;
	}
	store_word(&value->instance, entry->instance);
	store_word(&value->seen, bpf_be64_to_cpu(offered->seen));
	store_word(&value->serial, bpf_be64_to_cpu(offered->serial));
	value->owner = owner;
	value->key_bytes = key_bytes;
	value->reply_bytes = bytes - key_bytes;
	__builtin_memset(value->key, 0, sizeof(value->key));
	last_word = (bytes - key_bytes) / 8;
	/* The compiler knows this, the verifier does not. */
	asm volatile("" : "+r"(last_word));
	if (last_word < REPLY_WORDS)
		value->reply[last_word] = 0;
	s->key_bytes = key_bytes;
	s->reply_bytes = bytes - key_bytes;
	return entry->value_place;
}

/* Unlocks the slot: the value is complete, or void if something has `failed`. */
static __always_inline void end_value(struct hot_value *value, bool failed)
{
	if (failed)
		store_word(&value->instance, 0);
	store_word(&value->version, value->version + 1);
}

/* Checks the headers in the scratch, of an untagged frame: it must be exactly one datagram, which the reply may replace. */
static __always_inline bool is_bare(const struct hot_scratch *s)
{
	return *(__u8 *)&s->ip == 0x45 && bpf_ntohs(s->ip.tot_len) == s->bytes + UDP_PAYLOAD_AT - sizeof(struct ethhdr) &&
	       bpf_ntohs(s->udp.len) == s->bytes + sizeof(struct udphdr) && s->udp.source &&
	       folded_sum(bpf_csum_diff(NULL, 0, (__be32 *)&s->ip, sizeof(s->ip), 0)) == 0xffff;
}

/* Checks a get with room for a stamp in the scratch as strictly as `GetRequest::parse`. */
__noinline int read_asked(void)
{
	struct hot_scratch *s = hot_scratch_of_cpu();
	struct nicekv_header *header;
	__be32 reply_to;

	if (!s || s->bytes < ASKED_KEY_AT || s->bytes > NICEKV_DATAGRAM_BYTES_MAX || !is_bare(s))
		return 0;
	header = (void *)s->request;
	if (header->reserved || bpf_ntohs(header->body_length) != s->bytes - sizeof(*header))
		return 0;
	__builtin_memcpy(&reply_to, header->reply_to_ip, sizeof(reply_to));
	if ((reply_to || header->reply_to_port) && (reply_to != s->ip.saddr || header->reply_to_port != s->udp.source))
		return 0;
	s->key_bytes = read_key(s->request, FORWARDED_AT, s->bytes, s->key);
	return s->key_bytes != 0;
}

/* Whether a value is that of the key in the scratch. */
__noinline int is_of_asked(const struct hot_value *value)
{
	struct hot_scratch *s = hot_scratch_of_cpu();

	if (!s || !value || value->key_bytes != s->key_bytes)
		return 0;
	for (__u32 word = 0; word < KEY_WORDS; word++) {
		if (8 * word >= s->key_bytes)
			break;
		if (load_word(&value->key[word]) != s->key[word])
			return 0;
	}
	return 1;
}

/*
 * Makes room for a reply, filled with zeros as far as the request went: then truncating the frame does not change the checksum. A function call,
 * because otherwise the verifier would combine each end of this loop with each of the next one.
 */
__noinline int clear_reply(void)
{
	struct hot_scratch *s = hot_scratch_of_cpu();

	for (__u32 word = 0; s && word < PAYLOAD_BYTES_MAX / 8; word++) {
		if (8 * word >= s->bytes)
			break;
		__builtin_memset(s->reply + 8 * word, 0, 8);
	}
	return 0;
}

/* Copies a reply, whose last word is padded with zeros. */
__noinline int copy_reply(const struct hot_value *value, __u32 body_bytes)
{
	struct hot_scratch *s = hot_scratch_of_cpu();

	for (__u32 word = 0; s && value && word < REPLY_WORDS; word++) {
		__u64 bytes;

		if (8 * word >= body_bytes)
			break;
		bytes = load_word(&value->reply[word]);
		__builtin_memcpy(s->reply + sizeof(struct nicekv_header) + 8 * word, &bytes, 8);
	}
	return 0;
}

/* Builds the reply to the get in the scratch, if the entry has a value that may be shown. */
__noinline int show_value(struct nicekv_hot_entry *entry)
{
	struct hot_scratch *s = hot_scratch_of_cpu();
	__u32 body_bytes, padded_bytes, owner;
	__u64 version, seen, serial;
	struct hot_value *value;

	if (!s || !entry || !entry->value_place)
		return 0;
	value = value_of(entry);
	if (!value)
		return 0;
	version = load_word(&value->version);
	seen = load_word(&value->seen);
	if (!version || version & 1 || load_word(&value->instance) != entry->instance || load_word(&entry->seen) != seen)
		return 0;
	serial = load_word(&value->serial);
	owner = *(volatile __u32 *)&value->owner;
	body_bytes = *(volatile __u16 *)&value->reply_bytes;
	if (body_bytes > NICEKV_REPLY_BODY_BYTES_MAX || sizeof(struct nicekv_header) + body_bytes > s->bytes ||
	    !is_of_asked(value))
		return 0;
	clear_reply();
	copy_reply(value, body_bytes);
	if (load_word(&value->version) != version || load_word(&entry->seen) != seen || !is_leased(owner, serial, s->now_ns))
		return 0;
	write_reply_header(s->reply, s->request, body_bytes);
	s->reply_bytes = sizeof(struct nicekv_header) + body_bytes;
	padded_bytes = (s->bytes + 3) & ~3;
	if (padded_bytes > PAYLOAD_BYTES_MAX)
		return 0;
	s->difference = folded_sum(bpf_csum_diff((__be32 *)s->request, padded_bytes, (__be32 *)s->reply, padded_bytes, 0));
	__sync_fetch_and_add(&entry->requests, 1);
	__sync_fetch_and_add(&entry->answered, 1);
	count(NICEKV_COUNTER_HOT_ANSWERED);
	return 1;
}

/* Builds the reply to the current request, if its key has an entry with a value. Returns whether it did. */
static __always_inline int answer_asked(struct hot_scratch *s)
{
	struct hot_request *request = bpf_map_lookup_elem(&hot_request, &(__u32){ 0 });
	struct nicekv_hot_entry *entry;

	if (!request || !read_asked())
		return 0;
	entry = bpf_map_lookup_elem(&hot_entries, &request->key);
	return entry ? show_value(entry) : 0;
}

/* Swaps the ends of the reply. The hook updates the checksum and the length of UDP. */
static __always_inline void turn_headers(struct hot_scratch *s)
{
	__be32 sender = s->ip.saddr;
	__be16 port = s->udp.source;

	__builtin_memcpy(s->ethernet.h_dest, s->ethernet.h_source, ETH_ALEN);
	for (int index = 0; index < ETH_ALEN; index++)
		s->ethernet.h_source[index] = config.router_mac[index];
	s->ip.tos = 0;
	s->ip.id = 0;
	s->ip.frag_off = bpf_htons(IPV4_DONT_FRAGMENT);
	s->ip.ttl = IPV4_TTL;
	s->ip.tot_len = bpf_htons(s->reply_bytes + UDP_PAYLOAD_AT - sizeof(struct ethhdr));
	s->ip.saddr = s->ip.daddr;
	s->ip.daddr = sender;
	s->ip.check = 0;
	s->ip.check = ~folded_sum(bpf_csum_diff(NULL, 0, (__be32 *)&s->ip, sizeof(s->ip), 0));
	s->udp.source = s->udp.dest;
	s->udp.dest = port;
}

/* Loads bytes of a frame, in the way of its hook. */
static __always_inline long load_frame(void *ctx, bool is_tc, __u32 at, void *to, __u32 bytes)
{
	return is_tc ? bpf_skb_load_bytes(ctx, at, to, bytes) : bpf_xdp_load_bytes(ctx, at, to, bytes);
}

/* Stores an offered value, straight from the frame into its slot. */
static __always_inline void keep_value(void *ctx, bool is_tc, const struct decision *decision)
{
	struct hot_scratch *s = hot_scratch_of_cpu();
	__u32 at, key_bytes, reply_bytes, place = 0;
	struct hot_value *value;
	bool failed = false;

	if (!s || !decision)
		return;
	at = decision->udp_at + sizeof(struct udphdr);
	if (decision->payload_bytes >= VALUE_KEY_AT && !load_frame(ctx, is_tc, at, s->request, VALUE_KEY_AT))
		place = begin_value(decision->payload_bytes, decision->to.target);
	count(place ? NICEKV_COUNTER_HOT_KEPT : NICEKV_COUNTER_HOT_UNHEARD);
	place -= 1;
	value = bpf_map_lookup_elem(&hot_values, &place);
	if (!value)
		return;
	at += VALUE_KEY_AT;
	key_bytes = load_bounded(&s->key_bytes);
	reply_bytes = load_bounded(&s->reply_bytes);
	if (key_bytes && key_bytes <= sizeof(value->key))
		failed |= load_frame(ctx, is_tc, at, value->key, key_bytes) != 0;
	if (reply_bytes && reply_bytes <= sizeof(value->reply))
		failed |= load_frame(ctx, is_tc, at + key_bytes, value->reply, reply_bytes) != 0;
	end_value(value, failed);
}

/* Whether the switch has the reply to a get, in a frame of this many bytes. */
static __always_inline int has_reply(void *ctx, bool is_tc, __u32 bytes)
{
	struct hot_scratch *s = hot_scratch_of_cpu();

	if (!s || load_frame(ctx, is_tc, 0, &s->ethernet, UDP_PAYLOAD_AT))
		return 0;
	s->now_ns = bpf_ktime_get_boot_ns();
	s->bytes = bytes - UDP_PAYLOAD_AT;
	bytes = load_bounded(&s->bytes);
	if (bytes < ASKED_KEY_AT || bytes > NICEKV_DATAGRAM_BYTES_MAX ||
	    load_frame(ctx, is_tc, UDP_PAYLOAD_AT, s->request, bytes))
		return 0;
	__builtin_memset(s->request + bytes, 0, 8);
	return answer_asked(s);
}

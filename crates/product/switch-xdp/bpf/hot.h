/*
 * The stage of hot keys, after match-action. Step for step the reference model's hot/stage.rs, which states the rules, and its HashPipe.
 *
 * Processors share the registers, so they are changed by atomic operations. A get that passes during an update counts as before or after it.
 * The request and its decision are too large for the stack, of which all callers and callees have 512 bytes together: they are in a map.
 */
#pragma once

#include "decision.h"
#include "hot_maps.h"
#include "hot_values.h"
#include "parsing.h"
#include "routing.h"

/* A message to the switch. `sender`: its host id. `words`: its content, and then that of the reply; the third word of a lease is `serial`. */
struct hot_said {
	struct nicekv_hot_key key;
	__u16 sender;
	__u8 opcode;
	__u64 words[2];
	__u64 serial;
};

static __always_inline bool is_said(const struct nicekv_header *header)
{
	return header && holds(NICEKV_OPCODES_SWITCH, header->opcode);
}

/* One bit. */
static __always_inline __u8 is_spread(__be16 keyspace)
{
	__u32 number = bpf_ntohs(keyspace), word = number / NICEKV_HOT_KEYSPACES_OF_WORD;
	__u64 *bits = bpf_map_lookup_elem(&hot_keyspaces, &word);

	return bits ? *bits >> number % NICEKV_HOT_KEYSPACES_OF_WORD & 1 : 0;
}

static __always_inline __u64 hot_mix(__u64 value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ value >> 27) * 0x94d049bb133111ebULL;
	return value ^ value >> 31;
}

static __always_inline __u32 hot_place(const struct nicekv_hot_slot *slot, __u64 seed, __u32 places)
{
	__u64 hash = hot_mix(hot_mix(slot->high ^ seed) ^ slot->low ^ (__u64)slot->keyspace << 48);

	return (hash >> 32) * places >> 32;
}

static __always_inline void set_hot_slot(struct nicekv_hot_slot *slot, const struct nicekv_hot_slot *value)
{
	slot->high = value->high;
	slot->low = value->low;
	slot->keyspace = value->keyspace;
	slot->count = value->count;
}

/* Counts a request of a key without an entry in the HashPipe. The bank is read once. */
static __noinline void count_hot(const struct hot_request *request)
{
	struct nicekv_hot_pipe *pipe = bpf_map_lookup_elem(&hot_pipe, &(__u32){ 0 });
	__u32 *bank = bpf_map_lookup_elem(&hot_bank, &(__u32){ 0 });
	struct nicekv_hot_slot carried = { .count = 1 };
	__u32 in_force, first;
	__u64 *dropped;

	if (!pipe || !bank || !pipe->stages)
		return;
	in_force = *bank;
	first = in_force * NICEKV_HOT_SLOTS_MAX;
	carried.high = bpf_be64_to_cpu(request->key.digest[0]);
	carried.low = bpf_be64_to_cpu(request->key.digest[1]);
	carried.keyspace = bpf_ntohs(request->key.keyspace);
#pragma clang loop unroll(disable)
	for (__u32 stage = 0; stage < NICEKV_HOT_STAGES_MAX && stage < pipe->stages; stage++) {
		__u32 place = first + hot_place(&carried, pipe->seeds[stage], pipe->stage_slots);
		struct nicekv_hot_slot *slot = bpf_map_lookup_elem(&hot_slots, &place), kept;

		if (!slot)
			return;
		if (!slot->count) {
			set_hot_slot(slot, &carried);
			return;
		}
		if (slot->high == carried.high && slot->low == carried.low && slot->keyspace == carried.keyspace) {
			slot->count += carried.count;
			return;
		}
		/* The first stage admits every key, otherwise no key would get beyond a count of one. */
		if (!stage || slot->count < carried.count) {
			set_hot_slot(&kept, slot);
			set_hot_slot(slot, &carried);
			set_hot_slot(&carried, &kept);
		}
		first += pipe->stage_slots;
	}
	dropped = bpf_map_lookup_elem(&hot_dropped, &in_force);
	if (dropped)
		*dropped += carried.count;
}

static __always_inline void count_load(__u32 port)
{
	__u64 *load = bpf_map_lookup_elem(&hot_loads, &port);

	if (load)
		*load += 1;
}

/* Whether an update leaves for a server of this switch; if it is counted, adds to the load of these servers. */
static __always_inline bool leaves_for_servers(const struct hot_request *request, const struct receiver *to)
{
	struct nicekv_group *group = bpf_map_lookup_elem(&members, &to->target);
	bool any = false;

#pragma clang loop unroll(disable)
	for (__u32 index = 0; group && index < NICEKV_GROUP_MEMBERS_MAX && index < group->count; index++) {
		__u32 port = group->ports[index];
		const struct nicekv_host *host = receiver_at(request->slot, port);

		if (!host || host->kind != NICEKV_PORT_HOST || port == request->port)
			continue;
		any = true;
		if (request->is_counted)
			count_load(port);
	}
	return any;
}

/* The port, plus one, of a holder that is still attached to this switch and whose copy is valid; otherwise 0. A function call, so that it is verified once. */
__noinline __u32 port_of_holder(const struct nicekv_hot_entry *entry, __u32 place, __u64 seen, __u32 slot)
{
	__u32 index, *port;

	if (!entry || place >= NICEKV_HOT_HOLDERS_MAX || entry->holders[place].confirmed != seen)
		return 0;
	index = slot * NICEKV_HOT_HOST_IDS + entry->holders[place].id;
	port = bpf_map_lookup_elem(&hot_holders, &index);
	return port ? *port : 0;
}

/* Redirects to the holder whose turn it is, or the next one with a valid copy. Returns whether there is one. */
static __always_inline bool redirect(struct nicekv_hot_entry *entry, __u32 slot, struct receiver *to, __u64 seen)
{
	__u32 holders = entry->holder_count, first, port = 0;
	const struct nicekv_host *host;

	first = __sync_fetch_and_add(&entry->turn, 1) % (holders + entry->owner_turns);
	if (first >= holders)
		return false;
#pragma clang loop unroll(disable)
	for (__u32 step = 0; step < NICEKV_HOT_HOLDERS_MAX && step < holders && !port; step++)
		port = port_of_holder(entry, first + step < holders ? first + step : first + step - holders, seen, slot);
	host = port ? receiver_at(slot, port - 1) : NULL;
	if (!host || host->kind != NICEKV_PORT_HOST)
		return false;
	to->target = port - 1;
	to->address = host->address;
	__builtin_memcpy(to->mac, host->mac, ETH_ALEN);
	count(NICEKV_COUNTER_HOT_REDIRECTED);
	return true;
}

static __always_inline void put_stamp(__be64 *stamp, __u64 instance, __u64 seen)
{
	stamp[0] = bpf_cpu_to_be64(instance);
	stamp[1] = bpf_cpu_to_be64(seen);
}

/* Handles the request of a key with an entry. */
static __always_inline void heat(struct nicekv_hot_entry *entry, const struct hot_request *request, struct receiver *to)
{
	__sync_fetch_and_add(&entry->requests, 1);
	if (request->opcode == NICEKV_OPCODE_UPDATE) {
		put_stamp(to->stamp, entry->instance, __sync_fetch_and_add(&entry->seen, 1) + 1);
	} else if (request->room == NICEKV_ROOM_STAMP) {
		__u64 seen = *(volatile __u64 *)&entry->seen;

		if (redirect(entry, request->slot, to, seen))
			put_stamp(to->stamp, entry->instance, seen);
	}
}

/* Results for a request that leaves for servers of this switch. */
enum passed {
	PASSED_PLAIN,
	/* Its stamp is to be written. */
	PASSED_STAMPED,
	/* The switch may have the reply. Nothing is counted yet. */
	PASSED_ASKED,
};

/* Redirects, stamps and counts a request that leaves for servers of this switch. */
__noinline int pass_hot(void)
{
	struct hot_request *request = bpf_map_lookup_elem(&hot_request, &(__u32){ 0 });
	struct nicekv_hot_entry *entry;

	if (!request || (request->is_copied && !leaves_for_servers(request, &request->to)))
		return PASSED_PLAIN;
	request->to.stamp[0] = 0;
	request->to.stamp[1] = 0;
	entry = bpf_map_lookup_elem(&hot_entries, &request->key);
	if (entry && entry->value_place && !request->is_refused && request->opcode == NICEKV_OPCODE_GET &&
	    request->room == NICEKV_ROOM_STAMP)
		return PASSED_ASKED;
	if (entry)
		heat(entry, request, &request->to);
	else if (request->is_counted)
		count_hot(request);
	if (request->is_counted && !request->is_copied)
		count_load(request->to.target);
	return request->room == NICEKV_ROOM_STAMP ? PASSED_STAMPED : PASSED_PLAIN;
}

/* Whether the stage looks at a request: it has room for a stamp, or belongs to a keyspace that spreads its hot keys. Saves its fields. */
static __always_inline bool note_hot(const struct datagram *datagram)
{
	const struct nicekv_header *header = datagram->header;
	struct hot_request *request;
	__u8 is_counted;

	if (!header || (header->opcode != NICEKV_OPCODE_GET && header->opcode != NICEKV_OPCODE_UPDATE))
		return false;
	is_counted = is_spread(header->keyspace);
	if (!is_counted && header->room != NICEKV_ROOM_STAMP)
		return false;
	request = bpf_map_lookup_elem(&hot_request, &(__u32){ 0 });
	if (!request)
		return false;
	request->opcode = header->opcode;
	request->room = header->room;
	request->is_counted = is_counted;
	set_hot_key(&request->key, header);
	return true;
}

/* Runs the stage for a saved request with this decision. `is_refused`: the switch may not answer it itself. */
static __always_inline void warm(struct decision *decision, bool is_refused)
{
	struct hot_request *request = bpf_map_lookup_elem(&hot_request, &(__u32){ 0 });
	int passed;

	if (!request)
		return;
	request->slot = decision->slot;
	request->port = decision->port;
	request->is_copied = decision->fate == FATE_COPY;
	request->is_refused = is_refused;
	request->to = decision->to;
	passed = pass_hot();
	decision->has_stamp = passed == PASSED_STAMPED;
	decision->is_asked = passed == PASSED_ASKED;
	decision->to = request->to;
}

/* A holder confirms the number of its copy: accepted for this instance, from a holder, if it is not above `seen`. */
static __always_inline bool confirm_hot(struct nicekv_hot_entry *entry, const struct hot_said *said)
{
	if (!entry || entry->instance != said->words[0] || said->words[1] > *(volatile __u64 *)&entry->seen)
		return false;
#pragma clang loop unroll(disable)
	for (__u32 place = 0; place < NICEKV_HOT_HOLDERS_MAX && place < entry->holder_count; place++)
		if (entry->holders[place].id == said->sender) {
			*(volatile __u64 *)&entry->holders[place].confirmed = said->words[1];
			return true;
		}
	return false;
}

/* The number for a primary that closes copies with labels up to this one; 0: no reply. A concurrent update closes them, too. */
static __always_inline __u64 close_hot(struct nicekv_hot_entry *entry, const struct hot_said *said, __u64 newest)
{
	if (entry && entry->instance == said->words[0]) {
		__u64 seen = *(volatile __u64 *)&entry->seen;

		return seen <= said->words[1] ? __sync_fetch_and_add(&entry->seen, 1) + 1 : seen;
	}
	return said->words[0] <= newest ? NICEKV_HOT_GONE : 0;
}

/*
 * Handles a message to the switch; returns the opcode of the reply, or 0. The newest instance is read before the entry is looked up: an instance
 * that is not found then, and is not above it, was installed and has been removed.
 */
__noinline int hear_hot(struct hot_said *said)
{
	__u64 *newest = bpf_map_lookup_elem(&hot_newest, &(__u32){ 0 }), installed, seen;
	struct nicekv_hot_entry *entry;

	if (!said || !newest)
		return 0;
	if (said->opcode == NICEKV_OPCODE_HOT_LEASE) {
		bool is_leased = lease_hot(said->sender, said->words[1], said->serial, said->words);

		count(is_leased ? NICEKV_COUNTER_HOT_LEASED : NICEKV_COUNTER_HOT_UNHEARD);
		return is_leased ? NICEKV_OPCODE_HOT_LEASED : 0;
	}
	installed = __sync_fetch_and_add(newest, 0);
	entry = bpf_map_lookup_elem(&hot_entries, &said->key);
	if (said->opcode == NICEKV_OPCODE_HOT_CONFIRM) {
		count(confirm_hot(entry, said) ? NICEKV_COUNTER_HOT_CONFIRMED : NICEKV_COUNTER_HOT_UNHEARD);
		return 0;
	}
	seen = close_hot(entry, said, installed);
	count(seen ? NICEKV_COUNTER_HOT_CLOSED : NICEKV_COUNTER_HOT_UNHEARD);
	said->words[1] = seen;
	return seen ? NICEKV_OPCODE_HOT_CLOSED : 0;
}

/* The message has passed admission, so it is a node's. Accepts it if that node is attached here, and the datagram has exactly the announced length. */
static __always_inline enum fate hear(const struct frame *frame, const struct nicekv_host *host,
				      const struct datagram *datagram, struct decision *decision)
{
	const struct nicekv_hot_lease *body = (const void *)(datagram->header + 1);
	const struct nicekv_stamp *stamp = (const void *)body;
	__u8 opcode = datagram->header->opcode;
	bool is_lease = opcode == NICEKV_OPCODE_HOT_LEASE;
	__u32 bytes = is_lease ? sizeof(*body) : sizeof(*stamp);
	struct hot_said said = { .sender = host->id, .opcode = opcode };

	if (host->kind != NICEKV_PORT_HOST || datagram->header->room)
		goto unheard;
	if (opcode == NICEKV_OPCODE_HOT_VALUE) {
		decision->to.target = host->id;
		decision->payload_bytes = bpf_ntohs(datagram->udp->len) - sizeof(struct udphdr);
		return FATE_KEEP;
	}
	bytes += sizeof(struct udphdr) + sizeof(struct nicekv_header);
	if (datagram->udp->len != bpf_htons(bytes) || (void *)(stamp + 1) > frame->end)
		goto unheard;
	if (is_lease) {
		if ((void *)(body + 1) > frame->end)
			goto unheard;
		said.serial = bpf_be64_to_cpu(body->serial);
	}
	set_hot_key(&said.key, datagram->header);
	said.words[0] = bpf_be64_to_cpu(stamp->instance);
	said.words[1] = bpf_be64_to_cpu(stamp->seen);
	decision->answer = hear_hot(&said);
	if (!decision->answer)
		return FATE_DROP;
	decision->to.target = decision->port;
	put_stamp(decision->to.stamp, said.words[0], said.words[1]);
	return FATE_ANSWER;
unheard:
	count(NICEKV_COUNTER_HOT_UNHEARD);
	return FATE_DROP;
}

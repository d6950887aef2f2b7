/* Gets that a program answers in their own frames: code shared by the node's program (gets.bpf.c) and the switch (hot_values.h). */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <nicekv_wire.h>

/* A get after header and room: whether it was forwarded, and the length of the key. */
#define FORWARDED_BYTES 10
#define GET_FIXED_BYTES (FORWARDED_BYTES + sizeof(__be16))
#define KEY_WORDS (NICEKV_KERNEL_KEY_BYTES_MAX / 8)
_Static_assert(NICEKV_KERNEL_KEY_BYTES_MAX % 8 == 0, "whole words");
/* A payload, followed by zeros. */
#define PAYLOAD_BYTES_MAX 1536
_Static_assert(NICEKV_DATAGRAM_BYTES_MAX + 8 <= PAYLOAD_BYTES_MAX, "a payload and a word");
/* The maximum that a 9-bit offset and an 11-bit length reach. */
#define REQUEST_BYTES_MAX 2560
#define IPV4_DONT_FRAGMENT 0x4000
#define IPV4_TTL 64

static __always_inline __u64 load_word(const __u64 *word)
{
	return *(const volatile __u64 *)word;
}

static __always_inline __u32 folded_sum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/*
 * Parses a get of this many bytes after its header and room, as strictly as `GetRequest::parse`: not forwarded, and only zeros after its key. Returns the
 * length of the key, whose last word is padded with zeros; 0: not such a get.
 */
static __always_inline __u32 read_key(const __u8 *request, __u32 at, __u32 bytes, __u64 *key)
{
	__u32 key_bytes, padding_bytes;
	__u8 any = 0;

	for (int index = 0; index < FORWARDED_BYTES; index++)
		any |= request[at + index];
	key_bytes = request[at + FORWARDED_BYTES] << 8 | request[at + FORWARDED_BYTES + 1];
	at += GET_FIXED_BYTES;
	if (any || !key_bytes || key_bytes > NICEKV_KERNEL_KEY_BYTES_MAX || at + key_bytes > bytes)
		return 0;
	/* The OR of all words is zero if all of them are. */
	at += key_bytes;
	padding_bytes = (bytes - at + 3) & ~3;
	if (bpf_csum_diff(NULL, 0, (__be32 *)(request + (at & 511)), padding_bytes & 2044, 0))
		return 0;
	at -= key_bytes;
	for (__u32 word = 0; word < KEY_WORDS; word++) {
		if (8 * word >= key_bytes)
			break;
		__builtin_memcpy(&key[word], request + at + 8 * word, 8);
	}
	return key_bytes;
}

/* The header of a reply with a body of this many bytes. */
static __always_inline void write_reply_header(void *reply, const void *asked, __u32 body_bytes)
{
	const struct nicekv_header *request = asked;
	struct nicekv_header *header = reply;

	__builtin_memset(header, 0, sizeof(*header));
	header->magic = bpf_htons(NICEKV_MAGIC);
	header->version = NICEKV_VERSION;
	header->opcode = NICEKV_OPCODE_REPLY;
	header->body_length = bpf_htons(body_bytes);
	header->client = request->client;
	header->sequence = request->sequence;
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How programs look at packets and at memory that others write. */
#pragma once
#include <juneau/maps.h>
/* These build on the integer types above. */
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Orders our own loads and stores for the compiler. */
#define jn_barrier() asm volatile("" ::: "memory")
#define JN_READ(word) (*(volatile typeof(word) *)&(word))
#define JN_WRITE(word, value) (*(volatile typeof(word) *)&(word) = (value))
/*
 * A function of a miss that the verifier walks through once, whoever calls it. It finds the context by itself: what a
 * pointer argument points to is no key and no value for the map helpers of 6.1.
 */
#define JN_ONCE __attribute__((noinline))
#define JN_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/*
 * Packet bounds are loaded by an instruction of our own. Left to clang 14, a second load of data_end can become a
 * 32-bit move of the first, which cuts the pointer: the program loads, and every bounds check fails.
 */
static __always_inline void *jn_data(const struct __sk_buff *skb)
{
	void *data;

	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(data)
		     : "r"(skb), "i"(__builtin_offsetof(struct __sk_buff, data)));
	return data;
}

static __always_inline void *jn_data_end(const struct __sk_buff *skb)
{
	void *end;

	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(end)
		     : "r"(skb), "i"(__builtin_offsetof(struct __sk_buff, data_end)));
	return end;
}

/* Makes `bytes` of the packet readable, or as many as it has, and loads its bounds. */
static __always_inline void jn_pull(struct __sk_buff *skb, __u32 bytes, void **data, void **end)
{
	__u32 length;

	*data = jn_data(skb);
	*end = jn_data_end(skb);
	if (*data + bytes <= *end)
		return;
	length = skb->len;
	if (length > bytes)
		length = bytes;
	if ((__u64)(*end - *data) >= length)
		return;
	bpf_skb_pull_data(skb, length);
	*data = jn_data(skb);
	*end = jn_data_end(skb);
}

static __always_inline int jn_mac_equal(const void *a, const void *b)
{
	return *(const __u32 *)a == *(const __u32 *)b && *(const __u16 *)(a + 4) == *(const __u16 *)(b + 4);
}

static __always_inline void jn_mac_copy(void *to, const void *from)
{
	*(__u32 *)to = *(const __u32 *)from;
	*(__u16 *)(to + 4) = *(const __u16 *)(from + 4);
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tells what the kernel holds for the sum of a whole packet, which nothing else shows. */
#define SECTION(name) __attribute__((section(name), used))

/* BPF_FUNC_csum_update adds to the sum and returns it, or -ENOTSUPP when there is none; BPF_FUNC_map_push_elem. */
static long (*csum_update)(void *skb, unsigned int add) = (void *)40;
static long (*map_push_elem)(void *map, const void *value, unsigned long long flags) = (void *)87;

/* BPF_MAP_TYPE_QUEUE. */
struct {
	int (*type)[22];
	int (*key_size)[0];
	int (*value_size)[8];
	int (*max_entries)[4096];
} sums SECTION(".maps");

SECTION("tc") int tell(void *skb)
{
	long sum = csum_update(skb, 0);

	map_push_elem(&sums, &sum, 0);
	return -1; /* TC_ACT_UNSPEC */
}

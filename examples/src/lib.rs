//! Small programs over the Juneau libraries; each is a file in `src/bin/`.
//!
//! - `embed-fib`: routes and endpoints of two tenants with equal addresses, in memory.
//! - `replay-pcap`: a capture through the reference data path, with a verdict for each packet.
//! - `read-node`: a live node's tables, read through their pins by the same traits.

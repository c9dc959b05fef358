//! icmp

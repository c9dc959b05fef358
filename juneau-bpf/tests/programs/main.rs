//! The programs by test run: every exit, the bytes that leave, the records that stay.
//!
//! What a test run cannot show needs real devices: redirects that happen, VLAN tags and tunnel keys in metadata,
//! pending checksums, packets that are encapsulated already.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod early;
mod flows;
mod lab;
mod load;
mod packet;
mod speed;

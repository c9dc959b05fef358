//! Every program loads, small enough.

use crate::lab::{Lab, Variant, clear, namespace};

/// Instructions that the verifier may walk through.
const LIMIT: u32 = 20_000;

#[test]
fn every_program_loads_and_is_small() {
    namespace(|| {
        for dry_run in [false, true] {
            let lab = Lab::new(Variant { dry_run, ..Variant::default() }, None);
            let programs = lab.programs();
            assert!(programs.len() >= 12);
            for (name, verified) in programs {
                // Read by tools/kernels, which compares it with what was accepted before.
                println!("verified {name}{} {verified}", if dry_run { "/explain" } else { "" });
                assert!(verified <= LIMIT, "{name}");
            }
            drop(lab);
            clear();
        }
    });
}

//! Every program loads, small enough.

use libbpf_rs::query::ProgInfoIter;

use crate::lab::{Lab, Variant, clear, namespace};

/// Instructions that the verifier may walk through.
const LIMIT: u32 = 20_000;

#[test]
fn every_program_loads_and_is_small() {
    namespace(|| {
        for dry_run in [false, true] {
            let before: Vec<u32> = ProgInfoIter::default().map(|info| info.id).collect();
            let lab = Lab::new(Variant { dry_run, ..Variant::default() }, None);
            let names = lab.programs();
            assert!(names.len() >= 12);
            for name in names {
                // The kernel keeps 15 bytes of a name; other tests load the same programs meanwhile.
                let cut = &name[..name.len().min(15)];
                let verified = ProgInfoIter::default()
                    .filter(|info| !before.contains(&info.id) && info.name.to_string_lossy() == cut)
                    .map(|info| info.verified_insns)
                    .max()
                    .unwrap();
                println!("{name:20} {verified:6} verified{}", if dry_run { " (explain)" } else { "" });
                assert!(verified <= LIMIT, "{name}");
            }
            drop(lab);
            clear();
        }
    });
}

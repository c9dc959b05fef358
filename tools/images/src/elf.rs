//! Whether a program needs anything of the machine that it runs on.

use object::Endianness;
use object::elf::{DT_NEEDED, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};

/// A program that would not start in an image that holds nothing else.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// Not a 64-bit ELF program.
    #[error("not a program: {reason}")]
    NotAProgram {
        /// What is wrong.
        reason: String,
    },
    /// It asks for a dynamic linker, or for libraries.
    #[error("it is not static: it asks for {wanted}")]
    Dynamic {
        /// What it asks for.
        wanted: String,
    },
}

/// Succeeds for a program that has no interpreter (`PT_INTERP`) and needs no library (`DT_NEEDED`).
///
/// # Errors
/// [`ElfError`].
pub fn is_static(program: &[u8]) -> Result<(), ElfError> {
    let broken = |error: object::read::Error| ElfError::NotAProgram { reason: error.to_string() };
    let header = FileHeader64::<Endianness>::parse(program).map_err(broken)?;
    let endian = header.endian().map_err(broken)?;
    if ![ET_EXEC, ET_DYN].contains(&header.e_type(endian)) {
        return Err(ElfError::NotAProgram { reason: format!("ELF type {}", header.e_type(endian)) });
    }
    let segments = header.program_headers(endian, program).map_err(broken)?;
    if segments.is_empty() {
        return Err(ElfError::NotAProgram { reason: "nothing to load".to_owned() });
    }
    for segment in segments {
        if segment.p_type(endian) == PT_INTERP {
            let path = segment.data(endian, program).unwrap_or_default();
            let wanted = String::from_utf8_lossy(path).trim_end_matches('\0').to_owned();
            return Err(ElfError::Dynamic { wanted });
        }
        let needed = segment.dynamic(endian, program).map_err(broken)?.unwrap_or_default();
        let needed = needed.iter().filter(|entry| entry.tag(endian) == DT_NEEDED).count();
        if needed > 0 {
            return Err(ElfError::Dynamic { wanted: format!("shared libraries ({needed})") });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn compiled(how: &[&str], source: &str) -> Vec<u8> {
        let place = tempfile::tempdir().unwrap();
        let (input, output) = (place.path().join("program.c"), place.path().join("program"));
        std::fs::write(&input, source).unwrap();
        assert!(Command::new("cc").args(how).arg("-o").args([&output, &input]).status().unwrap().success());
        std::fs::read(output).unwrap()
    }

    #[test]
    fn only_what_needs_nothing_is_static() {
        let program = "int main(void) { return 0; }";
        for how in [&["-static"][..], &["-static-pie"]] {
            assert_eq!(is_static(&compiled(how, program)), Ok(()), "{how:?}");
        }
        let Err(ElfError::Dynamic { wanted }) = is_static(&compiled(&[], program)) else { panic!("a dynamic program") };
        assert!(wanted.starts_with("/lib"), "{wanted}");
        let Err(ElfError::Dynamic { wanted }) =
            is_static(&compiled(&["-shared", "-fPIC", "-Wl,--no-as-needed"], "int zero;"))
        else {
            panic!("a library that needs the C library")
        };
        assert_eq!(wanted, "shared libraries (1)");
        for no_program in [&b""[..], b"#!/bin/sh\n", &compiled(&["-c"], program)] {
            assert!(matches!(is_static(no_program), Err(ElfError::NotAProgram { .. })));
        }
        let cut = &compiled(&["-static"], program)[..70];
        assert!(matches!(is_static(cut), Err(ElfError::NotAProgram { .. })));
    }
}

//! One boot of one kernel, and the tests run in it.
//!
//! The machine is emulated in software (QEMU's TCG) with one CPU: it works where the host offers no virtualisation,
//! and kernels that patch their own code have been seen to fail with two CPUs. QEMU ends with status 0 whatever
//! happened inside, so all that counts comes over the second serial port, as lines that begin with [`MARK`].

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read},
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::{Path, PathBuf},
    process::Stdio,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use crate::{
    command::{Guarded, Scratch, quoted},
    error::Error,
    initramfs,
    kernel::Kernel,
    outcome::{self, Outcome},
    suite::Test,
};

/// Begins a line of the guest's report.
const MARK: &str = "@juneau ";

/// From the start of QEMU to the first line of the report. A boot takes three seconds on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// How much later than a test's own time limit its report may come.
const GRACE: Duration = Duration::from_secs(30);

/// Memory of a guest, shared with the file server. Pages that are not touched cost nothing.
const MEMORY: &str = "2G";

/// Where Debian's packages put the file server.
const VIRTIOFSD: &[&str] = &["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];

/// What came out of a guest.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// `uname -r` inside.
    pub(crate) release: Option<String>,
    /// The tests that were begun, in order.
    pub(crate) outcomes: Vec<Outcome>,
    /// Whether the last line of the report came.
    pub(crate) complete: bool,
    /// Faults of the kernel itself, from its console.
    pub(crate) faults: Vec<String>,
    /// All that the console said.
    pub(crate) console: String,
}

/// Boots `kernel` and runs `tests` in it. The whole root file system of the host is shared read-only, under an
/// overlay in the guest's memory.
///
/// A guest that hangs is ended; its report is then not complete.
///
/// # Errors
/// Only what keeps the guest from starting.
pub(crate) fn run(kernel: &Kernel, tests: &[Test], limit: Duration, name: &str) -> Result<Report, Error> {
    let scratch = Scratch::new(name)?;
    let work = scratch.path();
    let initrd = initramfs::pack_run(&kernel.initrd, &script(tests, limit), work)?;
    let console = work.join("console");
    let socket = work.join("files");
    let complaints = work.join("files.log");
    let _files = serve_root(&socket, &complaints)?;
    let mut machine = Guarded::start(Path::new("qemu-system-x86_64"), |command| {
        command
            .args(["-M", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", MEMORY])
            .args(["-nodefaults", "-display", "none", "-monitor", "none", "-no-reboot"])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(["-serial", "stdio"])
            .arg("-kernel")
            .arg(&kernel.vmlinuz)
            .arg("-initrd")
            .arg(&initrd)
            // Level 5 shows warnings, which are faults here.
            .args(["-append", "console=ttyS0 loglevel=5 panic=-1"])
            .arg("-object")
            .arg(format!("memory-backend-memfd,id=memory,size={MEMORY},share=on"))
            .args(["-numa", "node,memdev=memory"])
            .arg("-chardev")
            .arg(format!("socket,id=files,path={}", socket.display()))
            .args(["-device", "vhost-user-fs-pci,chardev=files,tag=hostroot"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
    })?;
    let mut report = Report::default();
    if let Some(stdout) = machine.0.stdout.take() {
        listen(stdout, BOOT_LIMIT, limit + GRACE, &mut report);
    }
    drop(machine);
    report.console =
        fs::read(&console).map(|bytes| String::from_utf8_lossy(&bytes).replace('\r', "")).unwrap_or_default();
    if !report.complete
        && let Ok(text) = fs::read_to_string(&complaints)
    {
        report.console.push_str(&text);
    }
    report.faults = outcome::faults(&report.console);
    Ok(report)
}

/// Starts the server of the host's root. It takes over a socket that listens already, so nobody waits for it.
///
/// What it has to say goes to the file `complaints`: it also complains whenever its guest ends.
fn serve_root(socket: &Path, complaints: &Path) -> Result<Guarded, Error> {
    let server = VIRTIOFSD.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or(Error::NoVirtiofsd)?;
    let listener = UnixListener::bind(socket).map_err(Error::file("listening on", socket))?;
    let log = fs::File::create(complaints).map_err(Error::file("making", complaints))?;
    Guarded::start(&server, |command| {
        command
            .args(["--fd=0", "-o", "source=/", "-o", "cache=always"])
            .args(["-o", "sandbox=chroot", "-o", "log_level=err"])
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(log);
    })
}

/// The script that runs in the guest, in the host's root.
fn script(tests: &[Test], limit: Duration) -> String {
    let mut text = format!(
        "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb\n\
         say() {{ printf '\\n{MARK}%s\\n' \"$*\"; }}\n\
         say release \"$(uname -r)\"\n"
    );
    for test in tests {
        let name = quoted(&test.name);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "say start {name}\n{}\nsay exit $?", test.script(limit));
    }
    text.push_str("say done\n");
    text
}

/// Reads the report until it is complete, the machine ends, or the next line is too late.
///
/// `first` is the time for the first mark, `between` that from one mark to the next.
fn listen(stream: impl Read + Send + 'static, first: Duration, between: Duration, report: &mut Report) {
    let (sender, lines) = mpsc::channel();
    // Ends with the machine, which `run` ends.
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).replace('\r', "");
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let mut reader = Reader::default();
    let mut deadline = Instant::now() + first;
    while !report.complete {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if reader.take(&line, report) {
                    deadline = Instant::now() + between;
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
}

/// Turns lines of the report into outcomes.
#[derive(Debug, Default)]
struct Reader {
    running: bool,
}

impl Reader {
    /// Takes one line; says whether it was a marked one.
    fn take(&mut self, line: &str, report: &mut Report) -> bool {
        let Some(mark) = line.strip_prefix(MARK) else {
            if let Some(outcome) = report.outcomes.last_mut().filter(|_| self.running) {
                outcome.output.push_str(line);
                outcome.output.push('\n');
            }
            return false;
        };
        let (word, rest) = mark.split_once(' ').unwrap_or((mark, ""));
        match word {
            "release" => report.release = Some(rest.to_owned()),
            "start" => {
                self.running = true;
                report.outcomes.push(Outcome { name: rest.to_owned(), code: None, output: String::new() });
            }
            "exit" => {
                self.running = false;
                if let Some(outcome) = report.outcomes.last_mut() {
                    outcome.code = rest.trim().parse().ok();
                    // The mark begins with a line break of its own.
                    if outcome.output.ends_with('\n') {
                        outcome.output.pop();
                    }
                }
            }
            "done" => report.complete = true,
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Report {
        let mut report = Report::default();
        let bytes = std::io::Cursor::new(text.as_bytes().to_vec());
        let second = Duration::from_secs(1);
        listen(bytes, second, second, &mut report);
        report
    }

    #[test]
    fn a_whole_report_is_read() {
        let report = read(
            "noise\r\n\r\n@juneau release 6.1.0\r\n\r\n@juneau start a\r\nhello\r\n\r\n@juneau exit 0\r\n\
             \r\n@juneau start b\r\nhalf a line\r\n@juneau exit 42\r\n\r\n@juneau done\r\nafter\r\n",
        );
        assert!(report.complete);
        assert_eq!(report.release.as_deref(), Some("6.1.0"));
        let outcome = |name: &str, code, output: &str| Outcome {
            name: name.to_owned(),
            code: Some(code),
            output: output.to_owned(),
        };
        assert_eq!(report.outcomes, [outcome("a", 0, "hello\n"), outcome("b", 42, "half a line")]);
    }

    #[test]
    fn a_report_that_breaks_off_is_not_complete() {
        let report = read("@juneau release 6.1.0\n@juneau start a\nhello\n");
        assert!(!report.complete);
        assert_eq!(report.outcomes[0].code, None);
    }

    #[test]
    fn a_silent_guest_is_given_up() {
        // The writer stays open and says nothing more.
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"@juneau release 6.1.0\n").unwrap();
        let mut report = Report::default();
        listen(reader, Duration::from_secs(60), Duration::from_millis(50), &mut report);
        assert!(!report.complete);
        assert_eq!(report.release.as_deref(), Some("6.1.0"));
    }

    #[test]
    fn the_script_reports_what_a_shell_ran() {
        let test = Test {
            name: "sh".to_owned(),
            binary: PathBuf::from("/bin/false"),
            folder: PathBuf::from("/"),
            only: Vec::new(),
        };
        let output = crate::command::text(
            std::process::Command::new("sh").args(["-c", &script(&[test], Duration::from_secs(5))]),
        )
        .unwrap();
        let report = read(&output);
        assert!(report.complete);
        assert_eq!(report.outcomes[0].code, Some(1));
    }
}

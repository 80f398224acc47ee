//! Where the commands of a page run: a folder of their own, with the program on the path and ports that nothing else uses.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_testing::ports::free_port;
use tollgate_testing::servers::PostgresServer;

use super::page::{Block, Page, ROOT, Step};
use crate::kit::TOLLGATE;

/// The ports in the pages.
const PORTS: [&str; 9] = [
    "8080", "8081", "8082", "3000", "6379", "5432", "7001", "7002", "7003",
];
/// How long a page may take.
const TIMEOUT: Duration = Duration::from_secs(300);

/// How much of a page was run.
#[derive(Debug, Default)]
pub(super) struct Ran {
    pub(super) commands: usize,
    pub(super) configurations: usize,
    pub(super) not_run: usize,
}

struct Stage {
    folder: TempDir,
    ports: Vec<(&'static str, u16)>,
}

impl Stage {
    fn new() -> Self {
        let stage = Self {
            folder: tempfile::tempdir().unwrap(),
            ports: PORTS.map(|port| (port, free_port())).to_vec(),
        };
        for folder in ["docs/gateways", "deploy/redis"] {
            stage.copy(folder);
        }
        stage
    }

    /// Copies the files that pages tell readers to copy, with other ports.
    fn copy(&self, folder: &str) {
        let to = self.folder.path().join(folder);
        std::fs::create_dir_all(&to).unwrap();
        for entry in std::fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            // A machine that is busy with tests is slow.
            let text = text.replace("timeout: 0.02s", "timeout: 10s");
            let text = self.with_own_ports(&text);
            std::fs::write(to.join(path.file_name().unwrap()), text).unwrap();
        }
    }

    fn port(&self, documented: &str) -> u16 {
        let found = self.ports.iter().find(|(port, _)| *port == documented);
        found.unwrap().1
    }

    fn with_own_ports(&self, text: &str) -> String {
        let digits = |c: char| c.is_ascii_digit();
        let mut mapped = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(digits) {
            let (before, from) = rest.split_at(at);
            mapped.push_str(before);
            let end = from.find(|c| !digits(c)).unwrap_or(from.len());
            let (number, after) = from.split_at(end);
            // A rate such as 3000/s is not a port.
            let alone = before.ends_with(' ') && !after.starts_with(['/', '.', '%']);
            let own = self.ports.iter().find(|(port, _)| *port == number);
            match own {
                Some((_, own)) if before.ends_with([':', '-']) || alone => {
                    write!(mapped, "{own}").unwrap();
                }
                _ => mapped.push_str(number),
            }
            rest = after;
        }
        mapped + rest
    }

    fn check_config(&self, place: &str, block: &Block) {
        let mut command = Command::new(TOLLGATE);
        command.current_dir(self.folder.path());
        for variable in block.text.split("${").skip(1) {
            let name = variable.split(['}', ':']).next().unwrap();
            command.env(name, format!("the-value-of-{name}"));
        }
        std::fs::write(self.folder.path().join("block.yaml"), &block.text).unwrap();
        let output = command
            .args(["check-config", "--no-files", "block.yaml"])
            .output();
        let output = output.unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{place}: {text}");
    }

    fn run(&self, page: &str, script: &str) {
        let folder = self.folder.path();
        std::fs::write(folder.join("commands.sh"), script).unwrap();
        let programs = Path::new(TOLLGATE).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let programs = programs.display();
        let mut command = Command::new("bash");
        let front = self.port("8080").to_string();
        command
            .arg("commands.sh")
            .process_group(0)
            .current_dir(folder)
            .env(
                "PATH",
                format!("{programs}:{ROOT}/target/servers:{path}:/usr/sbin"),
            )
            .env("HOME", folder)
            .env("FRONT", front)
            .env_remove("TOLLGATE_DATABASE")
            .stdin(Stdio::null());
        let log = File::create(folder.join("output")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.spawn().unwrap();
        let end = Instant::now() + TIMEOUT;
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > end => {
                    // With its servers, and all that it waits for.
                    let group = format!("-{}", child.id());
                    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                    let _ = child.wait();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let outputs: String = (1..)
            .map_while(|n| std::fs::read_to_string(folder.join(format!(".output-{n}"))).ok())
            .collect();
        assert!(
            status.is_some_and(|status| status.success()),
            "{page}, line {}: {status:?}\n{}{outputs}",
            read(".line").trim(),
            read("output")
        );
    }
}

/// Runs all blocks of a page, in their order.
pub(super) fn perform(page: &Page) -> Ran {
    let stage = Stage::new();
    let mut ran = Ran::default();
    let mut script = include_str!("prelude.sh").to_owned();
    let mut expected = Vec::new();
    let mut commands = String::new();
    for step in &page.steps {
        let block = match step {
            Step::Before(command) => {
                writeln!(commands, "{}", stage.with_own_ports(command)).unwrap();
                continue;
            }
            Step::Block(block) => block,
        };
        let place = format!("{}:{}", page.name, block.line);
        let text = stage.with_own_ports(&block.text);
        if block.not_run.is_some() {
            ran.not_run += 1;
            continue;
        }
        writeln!(commands, "echo {} >\"$page/.line\"", block.line).unwrap();
        match block.language.as_str() {
            "sh" => {
                commands.push_str(&text);
                ran.commands += 1;
            }
            "console" => {
                expected.extend(console(&text, &mut commands, expected.len(), &place));
                ran.commands += 1;
            }
            "yaml" => {
                stage.check_config(&place, block);
                ran.configurations += 1;
            }
            "json" => {
                let read: Result<serde_json::Value, _> = serde_json::from_str(&text);
                read.unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            // Examples in Rust are doc tests; text is only shown.
            "rust" | "text" => {}
            _ => assert!(block.file.is_some(), "{place}: the block is not used"),
        }
        if let Some(file) = &block.file {
            writeln!(
                commands,
                "cat >{file} <<'END OF THE FILE'\n{text}END OF THE FILE"
            )
            .unwrap();
        }
    }
    let postgres = commands
        .contains(&stage.port("5432").to_string())
        .then(|| PostgresServer::listening(stage.port("5432")));
    script.push_str(&commands);
    stage.run(&page.name, &script);
    for (nth, (place, command, lines)) in (1..).zip(&expected) {
        let file = stage.folder.path().join(format!(".output-{nth}"));
        let output = std::fs::read_to_string(file).unwrap();
        let output: Vec<&str> = output.lines().map(str::trim_end).collect();
        let expected: Vec<&str> = lines.lines().map(str::trim_end).collect();
        assert!(
            fits(&expected, &output),
            "{place}: `{command}` prints something else:\n{}",
            output.join("\n")
        );
    }
    drop(postgres);
    ran
}

/// Commands after `$ `, and what each must print.
fn console(
    text: &str,
    commands: &mut String,
    before: usize,
    place: &str,
) -> Vec<(String, String, String)> {
    let mut found: Vec<(String, String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let nth = before + found.len() + 1;
            writeln!(commands, "{{ {command}\n}} >\"$page/.output-{nth}\" 2>&1").unwrap();
            found.push((place.to_owned(), command.to_owned(), String::new()));
        } else {
            let last = found.last_mut();
            let (_, _, lines) = last.unwrap_or_else(|| panic!("{place}: begin with `$ `"));
            lines.push_str(line);
            lines.push('\n');
        }
    }
    found
}

/// `…` stands for anything in a line, and alone in a line for any lines.
fn fits(expected: &[&str], output: &[&str]) -> bool {
    match expected {
        [] => output.is_empty(),
        ["…", rest @ ..] => (0..=output.len()).any(|skip| fits(rest, &output[skip..])),
        [line, rest @ ..] => output
            .split_first()
            .is_some_and(|(first, others)| line_fits(line, first) && fits(rest, others)),
    }
}

fn line_fits(expected: &str, output: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = output.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut open = false;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        open = part.is_empty();
    }
    rest.is_empty() || open
}

#[test]
fn differing_output_is_found() {
    assert!(fits(&["a…c", "…", "e"], &["abc", "x", "y", "e"]));
    assert!(fits(&["a…"], &["a, and more"]));
    assert!(!fits(&["a"], &["ab"]) && !fits(&["a…c"], &["ab"]) && !fits(&["a", "b"], &["a"]));
}

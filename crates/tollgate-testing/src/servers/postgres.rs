//! Real PostgreSQL servers, each in a folder of its own behind a socket file, ended with the test.
//!
//! PostgreSQL refuses to run as root; then it runs as the user that Debian's package creates. `initdb` writes the same each
//! time, so its folder is written once and copied.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The user to run as when we are root.
const USER: &str = "postgres";
const PATIENCE: Duration = Duration::from_secs(60);

/// A PostgreSQL server.
#[derive(Debug)]
pub struct PostgresServer {
    process: Child,
    folder: TempDir,
    /// Where it listens, beside its socket file.
    port: Option<u16>,
    speaks_tls: bool,
}

impl PostgresServer {
    /// Starts one, and waits until it answers.
    #[must_use]
    pub fn start() -> Self {
        Self::start_at(None, None)
    }

    /// The same on this port as well, for clients that do not know socket files.
    #[must_use]
    pub fn listening(port: u16) -> Self {
        Self::start_at(Some(port), None)
    }

    /// The same on this port, with TLS: the certificate and its key, both in PEM.
    #[must_use]
    pub fn with_tls(port: u16, certificate: &str, key: &str) -> Self {
        Self::start_at(Some(port), Some((certificate, key)))
    }

    fn start_at(port: Option<u16>, tls: Option<(&str, &str)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        if let Some((certificate, key)) = tls {
            std::fs::write(folder.path().join("cert.pem"), certificate).unwrap();
            std::fs::write(folder.path().join("key.pem"), key).unwrap();
            // PostgreSQL takes no key that others can read.
            run(Command::new("chmod")
                .arg("600")
                .arg(folder.path().join("key.pem")));
        }
        run(Command::new("cp")
            .args(["-a", "--reflink=auto"])
            .arg(template())
            .arg(folder.path().join("data")));
        give_away(folder.path());
        let process = spawn(folder.path(), port, tls.is_some());
        let mut server = Self {
            process,
            folder,
            port,
            speaks_tls: tls.is_some(),
        };
        server.wait_until_it_answers();
        server
    }

    /// Kills it, as a crash would. Its children are killed as well, because they would answer a little longer.
    pub fn kill(&mut self) {
        let id = self.process.id().to_string();
        run(Command::new("kill").args(["-STOP", &id]));
        // It has no more children from here on.
        let children = self.children();
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        // Those that were faster are gone as well.
        let mut kill_children = Command::new("kill");
        let _ = (kill_children.arg("-KILL").args(children))
            .stderr(Stdio::null())
            .status();
    }

    /// Stops it and its children with SIGSTOP, so that it accepts connections and never answers.
    pub fn pause(&self) {
        let id = self.process.id().to_string();
        run(Command::new("kill").args(["-STOP", &id]));
        run(Command::new("kill").arg("-STOP").args(self.children()));
    }

    /// Lets it go on after a [`pause`](Self::pause).
    pub fn resume(&self) {
        run(Command::new("kill").arg("-CONT").args(self.children()));
        let id = self.process.id().to_string();
        run(Command::new("kill").args(["-CONT", &id]));
    }

    fn children(&self) -> Vec<String> {
        let id = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let children = children.unwrap_or_default();
        children.split_whitespace().map(str::to_owned).collect()
    }

    /// Starts it again after a [`kill`](Self::kill), with what it had.
    pub fn restart(&mut self) {
        self.process = spawn(self.folder.path(), self.port, self.speaks_tls);
        self.wait_until_it_answers();
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!(
            "postgres://{USER}@localhost/postgres?host={}",
            self.folder.path().display()
        )
    }

    fn wait_until_it_answers(&mut self) {
        let patience = Instant::now() + PATIENCE;
        let asked = || {
            let mut ask = Command::new(program("pg_isready"));
            ask.args(["--quiet", "--host"]).arg(self.folder.path());
            if let Some(port) = self.port {
                ask.args(["--port", &port.to_string()]);
            }
            ask.status().unwrap().success()
        };
        while !asked() {
            assert!(
                Instant::now() < patience,
                "postgres does not answer: {}",
                self.log()
            );
            // After a crash, it waits for those that the one before left behind to see that it is gone: it ends then,
            // and has to be started once more.
            if self.process.try_wait().unwrap().is_some() {
                self.process = spawn(self.folder.path(), self.port, self.speaks_tls);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            // At once, and with all its children; also if it was paused.
            let id = self.process.id().to_string();
            let _ = Command::new("kill").args(["-QUIT", &id]).status();
            let mut go_on = Command::new("kill");
            go_on.arg("-CONT").arg(id).args(self.children());
            let _ = go_on.stderr(Stdio::null()).status();
            let _ = self.process.wait();
        }
    }
}

fn spawn(folder: &Path, port: Option<u16>, speaks_tls: bool) -> Child {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    let socket = format!("unix_socket_directories={}", folder.display());
    let at = port.map(|port| format!("port={port}"));
    let mut settings = vec![
        if at.is_some() {
            "listen_addresses=127.0.0.1"
        } else {
            "listen_addresses="
        },
        "max_connections=40",
        "shared_buffers=16MB",
    ];
    // A crash of the server, not of the machine, is what tests do to it.
    settings.extend([
        "fsync=off",
        "full_page_writes=off",
        "wal_level=minimal",
        "max_wal_senders=0",
    ]);
    settings.push(&socket);
    let file = |setting, name| format!("{setting}={}", folder.join(name).display());
    let tls = [
        file("ssl_cert_file", "cert.pem"),
        file("ssl_key_file", "key.pem"),
    ];
    if speaks_tls {
        settings.push("ssl=on");
        settings.extend(tls.iter().map(String::as_str));
    }
    settings.extend(at.as_deref());
    let mut command = as_user(&program("postgres"));
    command.arg("-D").arg(folder.join("data"));
    for setting in settings {
        command.args(["-c", setting]);
    }
    command.stdout(Stdio::null()).stderr(log);
    command
        .spawn()
        .expect("postgresql must be installed: `make test` sees to that")
}

/// A folder as `initdb` writes it.
fn template() -> PathBuf {
    // Another version cannot read it.
    let version: String = program("postgres").display().to_string();
    let version: String = version.chars().filter(char::is_ascii_digit).collect();
    let folder = shared_folder();
    let template = folder.join(format!("postgres-{version}"));
    if template.exists() {
        return template;
    }
    let folder = tempfile::tempdir_in(folder).unwrap();
    give_away(folder.path());
    let data = folder.path().join("data");
    run(as_user(&program("initdb"))
        .args([
            "--no-sync",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        ])
        .args(["--username", USER, "--pgdata"])
        .arg(&data)
        .stdout(Stdio::null()));
    // Another test may have been faster: then its folder is as good.
    if let Err(error) = std::fs::rename(&data, &template) {
        assert!(template.exists(), "{error}");
    }
    template
}

/// A folder that all tests of this build share.
fn shared_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // target/debug/deps/it-…
    let profile = test.parent().and_then(Path::parent);
    let folder = profile.map_or_else(std::env::temp_dir, |profile| profile.join("tmp"));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn give_away(folder: &Path) {
    if is_root() {
        run(Command::new("chown").arg("-R").arg(USER).arg(folder));
    }
}

fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
    command.arg(program);
    command
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

/// Debian keeps them apart by version: the newest, or whatever is on the path.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .map(|entry| entry.unwrap().path())
        .max_by_key(number);
    match newest.map(|version| version.join("bin").join(name)) {
        Some(program) if program.exists() => program,
        _ => name.into(),
    }
}

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

//! Who stands in front of an upstream: Tollgate's gateway, or nginx that asks Tollgate's service.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_testing::Process;

use crate::Result;
use crate::lists::{self, Setup};
use crate::template::{Word, fill_text};
use crate::tollgate::Tollgate;

const NGINX_CONF: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/gateways/nginx.conf"
);

/// A running front.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    // Dropped in this order: nginx ends before whom it asks.
    _nginx: Option<Nginx>,
    pub(crate) tollgate: Tollgate,
}

impl Front {
    pub(crate) fn start(
        program: &Path,
        setup: &Setup,
        upstream: SocketAddr,
        cases: &[(&lists::Family, Word)],
    ) -> Result<Self> {
        let tollgate = Tollgate::start(program, &configuration(setup, upstream, cases));
        Ok(match setup.front {
            lists::Front::Gateway => Self {
                address: tollgate.listener("gateway"),
                _nginx: None,
                tollgate,
            },
            lists::Front::Nginx => {
                let nginx = Nginx::start(tollgate.listener("service"), upstream)?;
                Self {
                    address: nginx.address,
                    _nginx: Some(nginx),
                    tollgate,
                }
            }
        })
    }
}

/// The setup's configuration, with the rules and clients of the cases.
fn configuration(setup: &Setup, upstream: SocketAddr, cases: &[(&lists::Family, Word)]) -> String {
    let mut text = match setup.front {
        lists::Front::Gateway => format!(
            "gateway:
  listen: 127.0.0.1:0
  connections_per_address: 0
  head_timeout: 2s
  body_timeout: 2s
  upstreams: [{{ to: [\"http://{upstream}\"], response_timeout: 4s }}]
{}",
            setup.gateway
        ),
        lists::Front::Nginx => "service: { listen: 127.0.0.1:0 }\n".to_owned(),
    };
    text += setup.sections;
    let lines = |of: fn(&lists::Family) -> &'static str| {
        let lines = cases.iter().filter(|(family, _)| !of(family).is_empty());
        let lines = lines.map(|(family, word)| format!("  - {}\n", fill_text(of(family), *word)));
        lines.collect::<String>()
    };
    let other = "  - { id: roomy, plan: roomy, api_key_sha256: \"{other_sha256}\" }";
    text += &format!(
        "clients:\n{}\n{}",
        fill_text(other, Word(0)),
        lines(|family| family.client)
    );
    text + "rules:\n" + setup.rules + &lines(|family| family.rule)
}

/// A running nginx.
#[derive(Debug)]
struct Nginx {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Nginx {
    /// Runs the documented configuration, with other addresses.
    fn start(service: SocketAddr, upstream: SocketAddr) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let place = folder.path().display().to_string();
        let documented = std::fs::read_to_string(NGINX_CONF)?;
        let conf = documented
            .replace("127.0.0.1:8081", &service.to_string())
            .replace("127.0.0.1:3000", &upstream.to_string())
            .replace("127.0.0.1:8080", &address.to_string())
            .replace("events {}", "events { worker_connections 1024; }")
            .replace("http {", &format!("http {{ access_log off; client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;"));
        std::fs::write(folder.path().join("nginx.conf"), conf)?;
        let mut command = Command::new("nginx");
        command.env(
            "PATH",
            format!(
                "{}:/usr/sbin:/usr/local/sbin",
                std::env::var("PATH").unwrap_or_default()
            ),
        );
        command.args(["-p", &place, "-c", "nginx.conf", "-e", "stderr", "-g"]);
        command.arg(format!("daemon off; master_process off; pid {place}/pid;"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::spawn(&mut command)?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline {
                return Err("nginx did not start".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self {
            address,
            _process: process,
            _folder: folder,
        })
    }
}

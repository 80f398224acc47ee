//! `tollgate explain`: who a request would be taken for, which rules it meets and why not the others, and what is used. Charges nothing.

mod text;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tollgate::{MatchedRules, Source};
use tollgate_tower::policy::Head;

use super::database::block_on;
use super::setting::Setting;
use crate::cli::ExplainArgs;
use crate::explanation::{Asked, Report, Usage};
use crate::failure::Failure;

/// Where a request comes from if nobody says.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs the command.
pub(crate) fn explain(args: &ExplainArgs, out: &mut impl Write) -> Result<(), Failure> {
    let asked = Described::of(args)?;
    block_on(async {
        let report = asked.report(&Setting::read(&args.config).await?).await?;
        match args.json {
            true => {
                serde_json::to_writer_pretty(&mut *out, &report).map_err(std::io::Error::from)?;
                writeln!(out)?;
            }
            false => text::write(out, &report)?,
        }
        Ok(())
    })
}

/// A request as it was described.
struct Described {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    peer: IpAddr,
    peer_is_assumed: bool,
    client: Option<String>,
    cost: Option<u64>,
}

impl Described {
    fn of(args: &ExplainArgs) -> Result<Self, Failure> {
        let bad = |what: &str, said: &str, right: &str| {
            let said = tollgate_config::text::escaped(said, 100);
            Failure::BadInput(format!("\"{said}\" is not {what}; use {right}"))
        };
        let method = Method::from_bytes(args.method.to_ascii_uppercase().as_bytes())
            .map_err(|_| bad("a method", &args.method, "one such as GET or POST"))?;
        let uri: Uri = (args.path.parse()).map_err(|_| {
            bad(
                "a path or an address",
                &args.path,
                "one such as /v1/charges or https://api.example.com/v1/charges",
            )
        })?;
        let mut headers = HeaderMap::new();
        for line in &args.header {
            let wrong = || {
                // What stands behind the name may be a secret.
                let name = line.split(':').next().unwrap_or_default();
                bad("a header", name, "-H 'Name: value'")
            };
            let (name, value) = line.split_once(':').ok_or_else(wrong)?;
            let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
            let value: HeaderValue = value.trim().parse().map_err(|_| wrong())?;
            headers.append(name, value);
        }
        Ok(Self {
            method,
            uri,
            headers,
            peer: args.ip.unwrap_or(HERE),
            peer_is_assumed: args.ip.is_none(),
            client: args.client.clone(),
            cost: args.cost,
        })
    }

    async fn report(&self, setting: &Setting) -> Result<Report, Failure> {
        let policy = &setting.policy;
        let asked = Asked {
            head: Head {
                method: &self.method,
                uri: &self.uri,
                headers: &self.headers,
            },
            peer: self.peer,
            peer_is_assumed: self.peer_is_assumed,
            client: self.client.as_deref(),
            cost: self.cost,
        };
        let Some(limiter) = setting.limiter()? else {
            let elsewhere = async |_: &MatchedRules<'_>| Usage::InAnotherProcess;
            return Ok(asked.report(policy, elsewhere).await);
        };
        let usage = async |met: &MatchedRules<'_>| {
            let decision = limiter.matched(met).peek().await;
            match decision.source() {
                Source::Store => Usage::Known(Box::new(decision)),
                _ => Usage::Unreachable,
            }
        };
        Ok(asked.report(policy, usage).await)
    }
}
